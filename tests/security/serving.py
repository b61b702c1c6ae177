"""A tracker process with TLS and tokens, as an operator starts it, and those who come to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from examples.children import free_ports
from tests.cluster.network import Place
from tests.cluster.tracker import Server
from tests.security.certificates import Authority, Pair
from tests.waits import HANG_S
from tracker.client import Admin, Credentials, SecureTarget
from tracker.service.rpc.tokens import digest_of, new_token


class Served:
    """Processes, their files, and credentials for those who come."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.certificate = self.authority.server()
        self.client = self.authority.client()
        self.tokens_file = directory / "tokens.yaml"
        self.entries: list[dict[str, object]] = []
        self.secrets: dict[str, str] = {}
        self.addresses: list[str] = []
        self.errors = directory / "served.log"

    def token(self, name: str, *, peer: bool = False, **pipelines: list[str]) -> str:
        """Adds a token; returns the file that holds it. `_any` names every pipeline."""
        self.secrets[name] = new_token()
        rights = {("*" if p == "_any" else p): words for p, words in pipelines.items()}
        entry: dict[str, object] = {
            "name": name, "sha256": digest_of(self.secrets[name]).hex(), "pipelines": rights,
        }  # fmt: skip
        self.entries.append(entry | ({"peer": True} if peer else {}))
        self.write_tokens()
        path = self.directory / f"{name}.token"
        path.write_text(self.secrets[name] + "\n")
        path.chmod(0o600)
        return str(path)

    def write_tokens(self) -> None:
        """As it is replaced in production: at once."""
        fresh = self.tokens_file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"tokens": self.entries}))
        os.replace(fresh, self.tokens_file)

    def target(self, pair: Pair | None = None, token_file: str = "", ca: str = "") -> SecureTarget:
        cert, key = (pair.cert, pair.key) if pair is not None else ("", "")
        credentials = Credentials(ca or self.authority.cert, cert, key, token_file)
        return SecureTarget(self.addresses, credentials)

    def server(
        self,
        name: str,
        address: str,
        *way: str,
        environment: Mapping[str, str] | None = None,
        fault: str = "",
    ) -> Server:
        """A process with the server's certificate; not started."""
        pair = self.certificate
        return Server(
            Place(name, address, address), (*way, "--tls-cert", pair.cert, "--tls-key", pair.key),
            self.directory, environment=environment, fault=fault,
        )  # fmt: skip

    def said(self) -> str:
        """All that the processes have written to standard error."""
        return self.errors.read_text()


@contextmanager
def serving(
    served: Served,
    *options: str,
    shards: int = 1,
    environment: Mapping[str, str] | None = None,
    fault: str = "",
) -> Iterator[None]:
    """Runs `lowmark serve` with the server's certificate, until the end."""
    port = free_ports(shards)
    served.addresses = [f"127.0.0.1:{port + shard}" for shard in range(shards)]
    way = ("--shards", str(shards), "--store", f"sqlite:{served.directory / 'data'}")
    process = served.server(
        "served", served.addresses[0], *way, *options, environment=environment, fault=fault
    )
    with process:
        yield
        assert process.stop() == 0, process.errors()


def wait_for(target: SecureTarget) -> None:
    """Returns when a process answers whoever may ask."""
    with Admin(target, HANG_S) as admin:
        admin.shards()
