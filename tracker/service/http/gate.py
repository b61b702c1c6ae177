"""Tokens of requests over HTTP: the same file, and the same rights, as of calls."""

from __future__ import annotations

import base64
import binascii
import time

import structlog

from tracker.dashboard.rights import Unknown
from tracker.errors import InvalidError
from tracker.service.rpc.access import RELOAD_INTERVAL_S
from tracker.service.rpc.tokens import Token, Tokens
from tracker.service.stats import CALLS_REFUSED

log = structlog.get_logger(__name__)

_HOW = "send one as `Authorization: Bearer TOKEN`, or as the password of a user of any name"


class TokenGate:
    """Judges requests by a file of tokens, which is read again when it has changed."""

    def __init__(self, path: str) -> None:
        """Raises InvalidError."""
        self._tokens = Tokens(path)
        self._looked_s = time.monotonic()

    def viewer(self, authorization: str) -> Token:
        """Whose token it is. Raises Unknown."""
        self._reload()
        found = self._tokens.find(_secret(authorization)) if authorization else None
        if found is None:
            CALLS_REFUSED["unauthenticated"] += 1
            had = (
                "whose token is not known here, or not any more" if authorization else "without one"
            )
            raise Unknown(f"this tracker asks for a token, and refuses a request {had}: {_HOW}")
        return found

    def _reload(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < RELOAD_INTERVAL_S:
            return
        self._looked_s = now_s
        try:
            self._tokens.reload()
        except InvalidError as error:
            log.error("tokens_not_read", reason=str(error))


def _secret(authorization: str) -> str:
    """The token in a header, of either scheme."""
    scheme, _, said = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(said.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return pair.partition(":")[2]
    return said.strip() if scheme.lower() == "bearer" else ""
