"""Redis servers of the tests' own: on free ports of this host, in directories of theirs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import redis

from tests.cluster.children import until
from tests.cluster.network import Place, fresh_address

START_S = 30.0
STRICT = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
"""What a store asks for."""


class RedisServer:
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
        self.directory = directory
        self.options = list(options)
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._before = place.command if place else ()
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> redis.Redis:
        return redis.Redis(self.host, self.port)

    def start(self) -> RedisServer:
        """Starts it; returns when it answers, with what is on disk loaded."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        assert self._process is None
        command = [*self._before, os.environ.get("REDIS_SERVER", "redis-server")]
        if self._sentinel:
            config = self.directory / "sentinel.conf"
            config.write_text(self._sentinel)
            command += [str(config), "--sentinel"]
        command += ["--port", str(self.port), "--bind", self.host, "--dir", str(self.directory)]
        command += ["--save", ""] if not self._sentinel else []
        log = open(self.directory / "server.log", "ab")  # noqa: SIM115 - the server's, from here on
        with log:
            self._process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log)
        until(self._answers, self._log, START_S)  # one that starts says nothing to wait for
        return self

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self._log()
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _log(self) -> str:
        return f"Redis: {(self.directory / 'server.log').read_text()[-2000:]}"

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def discard(self) -> None:
        """At the end of a test, however it went."""
        if self._process is not None:
            self.kill()

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.discard()
