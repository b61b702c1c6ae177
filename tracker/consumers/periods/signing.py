"""Signed messages over HTTP, in the way of Standard Webhooks: three headers, HMAC-SHA256.

`webhook-id` names the message, `webhook-timestamp` says when it was sent (unix seconds), and
`webhook-signature` signs both and the body, once for each secret, so that a secret can be replaced without
a gap. Libraries for many languages check it; `verify` does in Python.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets as random_bytes
from collections.abc import Mapping, Sequence
from hashlib import sha256

from tracker.client.credentials import read_file
from tracker.errors import Code, InvalidError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PREFIX = "whsec_"
MAX_SECRETS = 4
"""In one file: the newest, and those that receivers may still know."""
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
TOLERANCE_S = 300.0
"""How far the clocks of sender and receiver may differ; an older message may be a repeated one."""

_NEW_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret as a line of a file."""
    return PREFIX + base64.b64encode(random_bytes.token_bytes(_NEW_SECRET_BYTES)).decode()


def read_secrets(path: str | os.PathLike[str]) -> list[bytes]:
    """The secrets of a file, one a line. Raises InvalidError."""
    try:
        lines = read_file(os.fspath(path), "the secret").decode("ascii").split()
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):  # it would quote what is in the file
            raise InvalidError(
                f"{path} holds something else than secrets", Code.INVALID_CREDENTIALS
            ) from None
        raise InvalidError(str(error), Code.INVALID_CREDENTIALS) from None
    if not 1 <= len(lines) <= MAX_SECRETS:
        raise InvalidError(
            f"{path} holds {len(lines)} secrets, and must hold 1 to {MAX_SECRETS}, one a line",
            Code.INVALID_CREDENTIALS,
        )
    return [_decoded(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]


def _decoded(secret: str, where: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise InvalidError(
            f"{where} is not a secret: {PREFIX} and base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} "
            "random bytes; `lowmark credentials token --webhook` makes one",
            Code.INVALID_CREDENTIALS,
        )
    return key


def signed(
    secrets: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """The headers of a message. message_id: without a dot."""
    signatures = [_signature(key, message_id, str(timestamp_s), body) for key in secrets]
    return {ID: message_id, TIMESTAMP: str(timestamp_s), SIGNATURE: " ".join(signatures)}


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """For receivers: the id of a message that came with these headers (names in small letters) and this
    body, as it was sent. now_s: unix seconds. Raises InvalidError; InvalidError for what is no secret."""
    key = _decoded(secret.strip(), "what was given")
    message_id, sent = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not message_id or not sent.isascii() or not sent.isdigit():
        raise InvalidError(
            f"the message has no {ID}, or no {TIMESTAMP} in unix seconds", Code.INVALID_SIGNATURE
        )
    expected = _signature(key, message_id, sent, body).encode()
    given = [each.encode() for each in headers.get(SIGNATURE, "").split()]
    if not any(hmac.compare_digest(expected, each) for each in given):
        raise InvalidError("the message is not signed by this secret", Code.INVALID_SIGNATURE)
    if abs(now_s - int(sent)) > tolerance_s:
        raise InvalidError(
            f"the message is of {sent}, more than {tolerance_s:g} s from now: a repeated one, or clocks "
            "differ",
            Code.INVALID_SIGNATURE,
        )
    return message_id


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, content, sha256).digest()).decode()
