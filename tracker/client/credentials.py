"""How a client shows who it is, and knows whom it talks to: TLS files, and a token from a file.

Only files are named, never a secret itself: what stands in arguments, environments or logs can be seen
by others. They are read when a connection is made, and the token at each call, so that renewed ones are
taken without a restart.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tracker.errors import Code, InvalidError

CA_VARIABLE = "LOWMARK_TLS_CA"
CERT_VARIABLE = "LOWMARK_TLS_CERT"
KEY_VARIABLE = "LOWMARK_TLS_KEY"
TOKEN_VARIABLE = "LOWMARK_TOKEN_FILE"
MAX_TOKEN_BYTES = 4_096

Stamp = tuple[tuple[int, int, int], ...]
MISSING = (0, 0, 0)
"""Of a file that cannot be looked at now: perhaps it is just being replaced."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of PEM files, and of a file that holds one token. Empty: not used.

    ca: whose certificates are trusted; with it connections are TLS. cert, key: this client's own, for
    mutual TLS. token_file: a bearer token, which is sent over TLS alone.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    token_file: str = ""

    def __post_init__(self) -> None:
        """Raises InvalidError for files that do not go together."""
        if bool(self.cert) != bool(self.key):
            raise InvalidError(
                f"a certificate and its key go together: set {CERT_VARIABLE} and {KEY_VARIABLE}",
                Code.INVALID_CREDENTIALS,
            )
        for what, path in (("a certificate", self.cert), ("a token", self.token_file)):
            if path and not self.ca:
                raise InvalidError(
                    f"{what} ({path}) is sent over TLS alone: name the CA of the tracker's "
                    f"certificate by {CA_VARIABLE}",
                    Code.INVALID_CREDENTIALS,
                )

    @classmethod
    def from_environment(cls) -> Credentials:
        """By LOWMARK_TLS_CA, LOWMARK_TLS_CERT, LOWMARK_TLS_KEY and LOWMARK_TOKEN_FILE. Raises
        InvalidError."""
        get = os.environ.get
        return cls(
            get(CA_VARIABLE, ""), get(CERT_VARIABLE, ""), get(KEY_VARIABLE, ""),
            get(TOKEN_VARIABLE, ""),
        )  # fmt: skip

    def stamp(self) -> Stamp:
        """Changes when one of the TLS files does."""
        return tuple(file_stamp(path) for path in (self.ca, self.cert, self.key) if path)

    def channel(
        self,
        address: str,
        options: Sequence[tuple[str, Any]],
        known: grpc.ChannelCredentials | None = None,
    ) -> grpc.Channel:
        """A channel to host:port. known: what was read of the files before, if it is not to be read now. Raises InvalidError
        if a file cannot be read."""
        if not self.ca:
            return grpc.insecure_channel(address, options)
        return grpc.secure_channel(address, known or self.read(), options)

    def aio_channel(
        self,
        address: str,
        options: Sequence[tuple[str, Any]],
        known: grpc.ChannelCredentials | None = None,
    ) -> grpc.aio.Channel:
        """The same, for asyncio."""
        if not self.ca:
            return grpc.aio.insecure_channel(address, options)
        return grpc.aio.secure_channel(address, known or self.read(), options)

    def read(self) -> grpc.ChannelCredentials:
        """What the files hold now. Raises InvalidError if one cannot be read, or names no CA."""
        tls = grpc.ssl_channel_credentials(
            read_file(self.ca, "the CA"),
            read_file(self.key, "the key") if self.key else None,
            read_file(self.cert, "the certificate") if self.cert else None,
        )
        if not self.token_file:
            return tls
        read_token(self.token_file)  # what cannot be is refused at once, not at each call
        token = grpc.metadata_call_credentials(_Token(self.token_file))
        return grpc.composite_channel_credentials(tls, token)


class _Token(grpc.AuthMetadataPlugin):
    """Adds the token of a file to each call."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._header = ""

    def __call__(
        self,
        context: grpc.AuthMetadataContext,
        callback: Callable[[Any, Exception | None], None],
    ) -> None:
        try:
            stamp = file_stamp(self._path)
            if stamp != self._stamp or not self._header:
                self._header, self._stamp = f"Bearer {read_token(self._path)}", stamp
        except InvalidError as error:
            callback((), error)
            return
        callback((("authorization", self._header),), None)


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches host:port."""
    host = listen.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: str) -> str:
    """The token that a file holds, without the space around it. Raises InvalidError, which does
    not quote what is in the file."""
    data = read_file(path, "the token")
    token = data.decode("ascii", errors="replace").strip()
    if not token or len(data) > MAX_TOKEN_BYTES or not token.isascii() or not token.isprintable():
        raise InvalidError(
            f"the token file {path} does not hold one token: a line of 1 to {MAX_TOKEN_BYTES} "
            "printable ASCII characters",
            Code.INVALID_CREDENTIALS,
        )
    if any(character.isspace() for character in token):
        raise InvalidError(
            f"the token file {path} holds more than one word, or line", Code.INVALID_CREDENTIALS
        )
    return token


def read_file(path: str, what: str) -> bytes:
    """Raises InvalidError, which says what could not be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidError(
            f"{what} cannot be read from {path}: {error.strerror}", Code.INVALID_CREDENTIALS
        ) from None


def file_stamp(path: str) -> tuple[int, int, int]:
    """Changes when a file does; MISSING where it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return MISSING
    return (found.st_mtime_ns, found.st_size, found.st_ino)
