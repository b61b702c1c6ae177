"""Several tracker processes on one machine, for development: started, watched and ended together."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from tracker.client.signals import ToldToEnd, ending_signals
from tracker.service.settings import ServeSettings, variables

log = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 0.1
RESTART_PAUSE_S = 0.5
MAX_RESTARTS = 100
"""Restarts of one process, before the whole gives up."""
STOP_TIMEOUT_S = 15.0
"""How long a process may take to end in good order, before it is killed."""
CANNOT_RUN = 1
"""What a process returns that could not start or go on, for a reason that it has logged."""
LEFT = 10
"""What a process returns whose shard has left the tracker: it is not started again."""
_PR_SET_PDEATHSIG = 1


def consecutive_addresses(listen: str, count: int, option: str = "--listen") -> tuple[str, ...]:
    """host:port, host:port+1, ...; raises ValueError, which names the option, if `listen` is not
    host:port."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{option} {listen!r} is not host:port")
    if count > 1 and not 0 < int(port) <= 65_536 - count:
        raise ValueError(f"{option} {listen!r} leaves no room for {count} consecutive ports")
    return tuple(f"{host}:{int(port) + index}" for index in range(count))


def supervise(processes: Sequence[ServeSettings]) -> int:
    """Runs a process for each shard, by settings of its own, until SIGTERM, SIGINT or SIGHUP; restarts what is
    killed; returns the exit status: 0 when told to stop, 1 if a process could not run."""
    return _Supervisor(processes).run()


class _Supervisor:
    def __init__(self, settings: Sequence[ServeSettings]) -> None:
        self._settings = settings
        self._environment = dict(os.environ)
        for name in variables(os.environ):  # the settings have what they say
            del self._environment[name]
        self._told = ToldToEnd(ending_signals())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._left: set[int] = set()
        self._restarts = dict.fromkeys(range(len(settings)), 0)

    def run(self) -> int:
        status = 0
        try:
            for shard in range(len(self._settings)):
                self._start(shard)
            while status == 0 and not self._told.wait(CHECK_INTERVAL_S):
                status = self._look()
        finally:
            status = self._stop() or status
        return status

    def _start(self, shard: int) -> None:
        # The number is for those who list processes. All else goes through a pipe: the store's address
        # may hold a password, which is not for everybody to see.
        command = [sys.executable, "-m", "tracker.cli", "serve", "--shard", str(shard)]
        process = subprocess.Popen(
            [*command, "--config", "-"],
            stdin=subprocess.PIPE,
            env=self._environment,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509 - this process has no other threads
        )
        self._processes[shard] = process
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as settings:  # it may be gone by now
            settings.write(self._settings[shard].model_dump_json().encode())
        log.info("shard_started", shard=shard, pid=process.pid)

    def _look(self) -> int:
        """Starts again what has ended; returns the exit status if there is no point in it."""
        for shard, process in self._processes.items():
            if process.poll() is None or shard in self._left:
                continue
            if process.returncode == LEFT:
                log.info("shard_left", shard=shard)
                self._left.add(shard)
                continue
            if process.returncode == CANNOT_RUN or self._restarts[shard] >= MAX_RESTARTS:
                log.error("shard_failed", shard=shard, status=process.returncode)
                return CANNOT_RUN
            log.warning("shard_restarts", shard=shard, status=process.returncode)
            self._restarts[shard] += 1
            if self._told.wait(RESTART_PAUSE_S):
                return 0
            self._start(shard)
        return 0

    def _stop(self) -> int:
        """Ends all processes; returns 1 if one had to be killed."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        status = 0
        for shard, process in self._processes.items():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                log.error("shard_killed", shard=shard, waited_s=STOP_TIMEOUT_S)
                process.kill()
                process.wait()
                status = 1
        return status


def _end_with_parent() -> Callable[[], None] | None:
    """What a child runs before it becomes a shard: on Linux, it is told to stop when this process
    dies without having told it."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died in between
            os._exit(0)

    return prepare
