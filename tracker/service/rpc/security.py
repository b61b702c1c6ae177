"""Who may reach a process, and how: its TLS files, its tokens, and what it says when it has none."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import grpc
import structlog

from tracker.client.credentials import Credentials, Stamp, is_loopback, read_file
from tracker.errors import Code, InvalidError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """Files of one process; empty: not used.

    tls_cert, tls_key: its certificate (with what leads to the CA) and key; with them it speaks TLS
    only, also to the other processes. tls_ca: clients, and other processes, must show a certificate
    of this CA. tokens: the YAML file of tokens and their rights; with it every call needs a token.
    peer: how it shows itself to other processes beyond that (by the environment of clients).
    """

    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tokens: str = ""
    peer: Credentials = field(default_factory=Credentials)

    def __post_init__(self) -> None:
        """Raises InvalidError for files that do not go together."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidError("--tls-cert and --tls-key go together", Code.INVALID_CREDENTIALS)
        if self.tls_ca and not self.tls_cert:
            raise InvalidError(
                "--tls-ca asks clients for certificates, by TLS: give --tls-cert",
                Code.INVALID_CREDENTIALS,
            )
        if self.tokens and not self.tls_cert:
            raise InvalidError(
                "--tokens needs TLS: a token that is sent in the clear is everybody's; give "
                "--tls-cert and --tls-key",
                Code.INVALID_CREDENTIALS,
            )

    @property
    def to_peers(self) -> Credentials:
        """How it reaches other processes."""
        if not self.tls_cert:
            return Credentials()
        own = (self.tls_cert, self.tls_key) if self.tls_ca else ("", "")
        return Credentials(self.tls_ca or self.peer.ca, *own, self.peer.token_file)

    def check(self, *, alone: bool) -> None:
        """Reads the files once. `alone`: there are no other processes. Raises InvalidError."""
        if not self.tls_cert:
            return
        check_files(self.tls_cert, self.tls_key, self.tls_ca)
        if alone:
            return
        if not self.to_peers.ca:
            raise InvalidError(
                "the other processes of this tracker have certificates too: name their CA by "
                "--tls-ca (clients then need certificates), or by LOWMARK_TLS_CA alone",
                Code.INVALID_CREDENTIALS,
            )
        if self.tokens and not self.tls_ca and not self.peer.token_file:
            raise InvalidError(
                "the other processes of this tracker ask for a token: name a file with one that has "
                "the right `peer` by LOWMARK_TOKEN_FILE, or let processes know each other by "
                "certificates, with --tls-ca",
                Code.INVALID_CREDENTIALS,
            )

    def warnings(self, listen: str) -> list[str]:
        """What anybody may do who reaches the address: nothing is logged of one that only this machine
        can reach."""
        if is_loopback(listen):
            return []
        found = []
        if not self.tls_cert:
            found.append(
                "it speaks without TLS: what it is told and tells can be read and changed on the "
                "way; give --tls-cert and --tls-key"
            )
        if not self.tls_ca and not self.tokens:
            found.append(
                "it asks nobody who they are: whoever reaches it may register, commit, restart and "
                "act as a shard; give --tokens, or --tls-ca for certificates of clients"
            )
        elif not self.tokens:
            found.append(
                "whoever has a certificate of the CA may do everything with every pipeline; give "
                "--tokens for rights by pipeline"
            )
        return found


def check_files(cert: str, key: str, ca: str) -> None:
    """Whether a certificate, its key and a CA can be used. Raises InvalidError."""
    for path, what in ((cert, "the certificate"), (key, "its key"), (ca, "the CA")):
        if path:
            read_file(path, what)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
        if ca:
            context.load_verify_locations(ca)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise InvalidError(
            f"the certificate {cert}, its key {key}{f' and the CA {ca}' if ca else ''} cannot be "
            f"used: {reason}; they are PEM files, and the key has no password",
            Code.INVALID_CREDENTIALS,
        ) from None


def _no_password() -> str:
    raise ValueError("the key has a password")


class _Reloading:
    """Gives gRPC the files as they are when somebody connects."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._files = Credentials(security.tls_ca or security.tls_cert,
                                  security.tls_cert, security.tls_key)  # fmt: skip
        self._stamp: Stamp = self._files.stamp()
        self._reported: Stamp = ()
        """Of files of which it was logged that they cannot be used."""

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        security = self._security
        pair = (
            read_file(security.tls_key, "the key"),
            read_file(security.tls_cert, "the certificate"),
        )
        ca = read_file(security.tls_ca, "the CA") if security.tls_ca else None
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """A new configuration if the files are others; files that cannot be used are passed over, and looked at again
        when the next one connects: perhaps they could not be read just then."""
        stamp = self._files.stamp()
        if stamp == self._stamp:
            return None
        security = self._security
        try:
            check_files(security.tls_cert, security.tls_key, security.tls_ca)
            fresh = self.configuration()
        except InvalidError as error:
            if stamp != self._reported:
                log.error("certificate_not_renewed", reason=str(error))
            self._reported = stamp
            return None
        self._stamp = stamp
        log.info("certificate_renewed", file=security.tls_cert)
        return fresh


def listen_at(
    server: grpc.aio.Server, listen: str, security: Security, *, who: str, address: str = ""
) -> str:
    """Lets a server listen at host:port, with TLS where that is set up. address: where others reach it, if not there. Returns
    that, with the port that it got where port 0 stands for any. Raises OSError if it cannot, which names `who` and
    the place; InvalidError for files that cannot be used."""
    try:
        port = _add_port(server, listen, security)
    except RuntimeError as error:
        raise OSError(
            f"{who} cannot listen on {listen}: another process has the port, or the host is no address of this machine; "
            "name another place, or end that process"
        ) from error
    host, _, wanted = (address or listen).rpartition(":")
    return f"{host}:{port if wanted == '0' else wanted}"


def _add_port(server: grpc.aio.Server, listen: str, security: Security) -> int:
    if not security.tls_cert:
        return server.add_insecure_port(listen)
    files = _Reloading(security)
    return server.add_secure_port(
        listen,
        grpc.dynamic_ssl_server_credentials(
            files.configuration(),
            cast("Callable[[], grpc.ServerCertificateConfiguration]", files.changed),
            require_client_authentication=bool(security.tls_ca),
        ),
    )
