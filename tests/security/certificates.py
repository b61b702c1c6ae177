"""Certificates for tests, made by the openssl command: a CA and what it signs, expired ones too."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.waits import HANG_S

_NOT_AFTER_DAYS = 2


@dataclass(frozen=True)
class Pair:
    """PEM files of a certificate and its key."""

    cert: str
    key: str


class Authority:
    """A CA of its own in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._name = directory, name
        self.cert, self._key = str(directory / f"{name}.pem"), str(directory / f"{name}.key")
        self._key_of(self._key)
        _openssl(
            "req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={name}", "-out", self.cert,
            "-days", str(_NOT_AFTER_DAYS),
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def server(self, name: str = "server") -> Pair:
        """For processes on this machine: valid for 127.0.0.1 and localhost, as server and client."""
        return self.signed(name, "subjectAltName=IP:127.0.0.1,DNS:localhost")

    def client(self, name: str = "client", *, expired: bool = False) -> Pair:
        """For a client, with a name that no process has."""
        return self.signed(name, f"subjectAltName=DNS:{name}.clients", expired=expired)

    def signed(self, name: str, names: str, *, expired: bool = False) -> Pair:
        """names: the certificate's, as OpenSSL writes them."""
        base = self._directory / f"{self._name}-{name}"
        pair = Pair(f"{base}.pem", f"{base}.key")
        self._key_of(pair.key)
        request, extensions = f"{base}.csr", Path(f"{base}.ext")
        extensions.write_text(
            f"{names}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        )
        _openssl("req", "-new", "-key", pair.key, "-subj", f"/CN={name}", "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key,
            "-CAcreateserial", "-out", pair.cert, "-extfile", str(extensions),
            "-days", str(-1 if expired else _NOT_AFTER_DAYS),
        )  # fmt: skip
        return pair

    def _key_of(self, path: str) -> None:
        _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
