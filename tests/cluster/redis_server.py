"""Redis servers of the tests' own: on free ports of this host, in directories of theirs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis

from tests.cluster.network import Place, fresh_address
from tests.cluster.part import PartProcess

STRICT = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
"""What a store asks for."""


class RedisServer(PartProcess):
    """One server; started, killed and started again with what it had on disk."""

    def __init__(
        self,
        directory: Path,
        options: Sequence[str] = STRICT,
        *,
        port: int = 0,
        sentinel: str = "",
        place: Place | None = None,
    ) -> None:
        """place: where it runs, if not on loopback."""
        at = place.listen if place else f"127.0.0.1:{port}" if port else fresh_address()
        host, _, own = at.rpartition(":")
        self.host, self.port = host, int(own)
        self.directory = directory.absolute()
        self.options = list(options)
        self._sentinel = sentinel
        self._before = place.command if place else ()
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(("redis-server",), self.directory / "server.log", self._answers)

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def client(self) -> redis.Redis:
        return redis.Redis(self.host, self.port)

    def start(self) -> Self:
        """Starts it; returns when it answers, with what is on disk loaded."""
        program = [*self._before, os.environ.get("REDIS_SERVER", "redis-server")]
        if self._sentinel:
            config = self.directory / "sentinel.conf"
            config.write_text(self._sentinel)
            program += [str(config), "--sentinel"]
        at = ["--port", str(self.port), "--bind", self.host, "--dir", str(self.directory)]
        saves = [] if self._sentinel else ["--save", ""]
        self.command = [*program, *at, *saves, *self.options]
        return super().start()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
