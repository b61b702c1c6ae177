"""Several tracker processes on one machine, for development: started, watched and ended together."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

import structlog

log = structlog.get_logger(__name__)

RESTART_PAUSE_S = 0.5
MAX_RESTARTS = 100
"""Restarts of one process, before the whole gives up."""
STOP_TIMEOUT_S = 15.0


def consecutive_addresses(listen: str, count: int) -> tuple[str, ...]:
    """host:port, host:port+1, ...; raises ValueError if `listen` is not host:port."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--listen {listen!r} is not host:port")
    if int(port) + count - 1 > 65_535:
        raise ValueError(f"--listen {listen!r} leaves no room for {count} consecutive ports")
    return tuple(f"{host}:{int(port) + place}" for place in range(count))


class _Supervisor:
    def __init__(self, addresses: Sequence[str], options: Sequence[str]) -> None:
        self._addresses = addresses
        self._options = options
        self._stopping = threading.Event()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts = dict.fromkeys(range(len(addresses)), 0)

    def _start(self, shard: int) -> None:
        command = [sys.executable, "-m", "tracker.cli", "serve", "--shard", str(shard)]
        command += ["--peers", ",".join(self._addresses), *self._options]
        self._processes[shard] = subprocess.Popen(command)
        log.info("shard_started", shard=shard, pid=self._processes[shard].pid)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        for shard in range(len(self._addresses)):
            self._start(shard)
        status = 0
        while not self._stopping.wait(0.1):
            for shard, process in self._processes.items():
                if process.poll() is None:
                    continue
                if process.returncode == 1 or self._restarts[shard] >= MAX_RESTARTS:
                    log.error("shard_failed", shard=shard, status=process.returncode)
                    status = 1
                    self._stopping.set()
                    break
                log.warning("shard_restarts", shard=shard, status=process.returncode)
                self._restarts[shard] += 1
                self._stopping.wait(RESTART_PAUSE_S)
                self._start(shard)
        self._stop()
        return status

    def _stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def supervise(addresses: Sequence[str], options: Sequence[str]) -> int:
    """Runs one process an address until SIGTERM or SIGINT; restarts what is killed; returns the exit
    status: 1 if a process could not run."""
    return _Supervisor(addresses, options).run()
