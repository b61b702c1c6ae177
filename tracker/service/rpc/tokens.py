"""Bearer tokens and what each may do, from a YAML file that holds their hashes alone.

    tokens:
      - name: jfk-front
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        pipelines:
          flights: [commit, subscribe]
          team-a-*: [register]
      - name: shards
        sha256: ...
        peer: true

A token is looked up by a keyed hash whose key nobody outside knows, and compared in constant time: how
long that takes says nothing of the tokens that there are.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tracker.client.credentials import MISSING, file_stamp, read_file
from tracker.client.yaml_text import load_mapping
from tracker.errors import Code, InvalidError

MAX_TOKENS = 10_000
MAX_FILE_CHARACTERS = 8 * 1024 * 1024
MAX_PATTERNS = 1_000
"""Names and patterns of pipelines that one token has."""
MAX_NAME_CHARACTERS = 200
TOKEN_BYTES = 32
"""Of randomness, in a token that is made here."""
TOKEN_PREFIX = "lowmark_"


class Right(Enum):
    """What may be done with a pipeline."""

    REGISTER = "register"
    COMMIT = "commit"
    SUBSCRIBE = "subscribe"
    ADMINISTER = "administer"


_FIELDS = {"name", "sha256", "pipelines", "peer", "max_segments", "max_nodes"}


@dataclass(frozen=True, slots=True)
class Token:
    """Who has a token, and what it may do. `rights`: by the name of a pipeline, or by the beginning of
    names where it ends in *. `peer`: it is a process of the tracker. max_segments: of all pipelines together that
    it may register; max_nodes: of all pipelines that it may commit to, at one process; None: what is usual."""

    name: str
    digest: bytes
    rights: Mapping[str, frozenset[Right]]
    peer: bool = False
    max_segments: int | None = None
    max_nodes: int | None = None

    def may(self, right: Right, pipeline: str) -> bool:
        return any(right in rights for rights in self._of(pipeline))

    def knows(self, pipeline: str) -> bool:
        """Whether it has any right there: then it may look."""
        return any(self._of(pipeline))

    def hears(self, pipeline: str) -> bool:
        """Whether it may hear of min time."""
        return self.may(Right.SUBSCRIBE, pipeline)

    def may_everywhere(self, right: Right) -> bool:
        return right in self.rights.get("*", ())

    def _of(self, pipeline: str) -> list[frozenset[Right]]:
        return [
            rights
            for pattern, rights in self.rights.items()
            if pattern == pipeline or (pattern.endswith("*") and pipeline.startswith(pattern[:-1]))
        ]


def digest_of(token: str) -> bytes:
    """What a file says of a token. A hash without salt is enough for one of 256 random bits."""
    return hashlib.sha256(token.encode()).digest()


def new_token() -> str:
    """A token that nobody can guess."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


class Tokens:
    """The tokens of a file, as it was read last."""

    def __init__(self, path: str) -> None:
        """Raises InvalidError."""
        self.path = path
        self._key = secrets.token_bytes(32)
        self._tokens: dict[bytes, Token] = {}
        self._stamp: tuple[int, int, int] | None = None
        self.reload()

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, token: str) -> Token | None:
        """None if it is not one of these."""
        digest = digest_of(token)
        found = self._tokens.get(self._keyed(digest))
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    def current(self, token: Token) -> Token | None:
        """What the file says now of a token that was found before."""
        return self._tokens.get(self._keyed(token.digest))

    def _keyed(self, digest: bytes) -> bytes:
        return hmac.digest(self._key, digest, "sha256")

    def reload(self) -> bool:
        """Reads the file again if it has changed; returns whether it has. Raises InvalidError, and
        keeps what it had: so nobody is locked out by a file that is just being written."""
        stamp = file_stamp(self.path)
        if stamp == self._stamp:
            return False
        if stamp == MISSING:
            self._stamp = stamp  # said once
        data = read_file(self.path, "the tokens")
        self._stamp = stamp
        self._tokens = {self._keyed(t.digest): t for t in parse_tokens(data, self.path)}
        return True


def parse_tokens(data: bytes, path: str) -> list[Token]:
    """Raises InvalidError, which names the place and never quotes the file: somebody may have
    written a token where its hash belongs."""
    of = "with a list named tokens"
    try:
        text = data.decode(errors="replace")
        document = load_mapping(text, path, MAX_FILE_CHARACTERS, of, secret=True)
    except ValueError as error:
        raise InvalidError(str(error), Code.INVALID_CREDENTIALS) from None
    entries = document.get("tokens")
    if not isinstance(entries, list) or set(document) != {"tokens"}:
        raise InvalidError(f"{path} must hold one mapping {of}", Code.INVALID_CREDENTIALS)
    if len(entries) > MAX_TOKENS:
        raise InvalidError(
            f"{path} has {len(entries)} tokens, the limit is {MAX_TOKENS}", Code.INVALID_CREDENTIALS
        )
    tokens = [_token(entry, f"{path}: token {number}") for number, entry in enumerate(entries, 1)]
    for what, known in (("name", {t.name for t in tokens}), ("hash", {t.digest for t in tokens})):
        if len(known) != len(tokens):
            raise InvalidError(f"{path}: two tokens have the same {what}", Code.INVALID_CREDENTIALS)
    return tokens


def _token(entry: Any, where: str) -> Token:
    if not isinstance(entry, dict) or not set(entry) <= _FIELDS:
        raise InvalidError(
            f"{where} is not a mapping with name, sha256 and pipelines or peer, and max_segments or max_nodes; "
            "never write a token itself into this file",
            Code.INVALID_CREDENTIALS,
        )
    name, digest = entry.get("name"), entry.get("sha256")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidError(
            f"{where} needs a name of 1 to {MAX_NAME_CHARACTERS} characters",
            Code.INVALID_CREDENTIALS,
        )
    try:
        known = bytes.fromhex(digest) if isinstance(digest, str) else b""
    except ValueError:
        known = b""
    if len(known) != hashlib.sha256().digest_size:
        raise InvalidError(
            f"{where} ({name}): sha256 is not 64 hexadecimal digits (in quotes, if they are all "
            "decimal); lowmark credentials token prints it",
            Code.INVALID_CREDENTIALS,
        )
    peer = entry.get("peer", False)
    if not isinstance(peer, bool):
        raise InvalidError(f"{where} ({name}): peer is true or false", Code.INVALID_CREDENTIALS)
    rights = _rights(entry.get("pipelines", {}), f"{where} ({name})")
    budgets = (entry.get("max_segments"), entry.get("max_nodes"))
    if not all(budget is None or (type(budget) is int and budget >= 0) for budget in budgets):
        raise InvalidError(
            f"{where} ({name}): max_segments and max_nodes are numbers from 0 on",
            Code.INVALID_CREDENTIALS,
        )
    return Token(name, known, rights, peer, *budgets)


def _rights(given: Any, where: str) -> dict[str, frozenset[Right]]:
    words = [right.value for right in Right]
    if not isinstance(given, dict) or len(given) > MAX_PATTERNS:
        raise InvalidError(
            f"{where}: pipelines maps at most {MAX_PATTERNS} names, or beginnings with *, to lists of "
            f"{', '.join(words)}",
            Code.INVALID_CREDENTIALS,
        )
    rights = {}
    for pattern, listed in given.items():
        if not isinstance(pattern, str) or not pattern or "*" in pattern[:-1]:
            raise InvalidError(
                f"{where}: {pattern!r} is no name of a pipeline; a * stands at its end alone",
                Code.INVALID_CREDENTIALS,
            )
        if not isinstance(listed, list) or not all(word in words for word in listed):
            raise InvalidError(
                f"{where}: {pattern!r} needs a list of {', '.join(words)}", Code.INVALID_CREDENTIALS
            )
        rights[pattern] = frozenset(Right(word) for word in listed)
    return rights
