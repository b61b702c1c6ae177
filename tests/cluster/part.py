"""A part that is a process of its own: started, killed, paused, and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.waits import HANG_S, until

_LOG_SHOWN = 2000


class PartProcess:
    """One process, with its output in `log`. Nobody announces that it is ready: `ready` is asked."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command, self.log = list(command), log
        self._ready, self._environment = ready, dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.command[0]} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts it; returns when it is ready."""
        assert not self.running, "it is running"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._log_begin = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.log.parent, env={**os.environ, **self._environment},
            )  # fmt: skip
        try:
            until(self._is_ready, lambda: f"{self.command[0]} is not ready: {self.said()}", HANG_S)
        except BaseException:
            self.discard()
            raise
        return self

    def _is_ready(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.said()
        return bool(self._ready())

    def logged(self, text: str) -> bool:
        """Whether this run has said a text."""
        with open(self.log, "rb") as log:
            log.seek(self._log_begin)
            return text.encode() in log.read()

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_SHOWN:] if self.log.exists() else ""

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(HANG_S)
        self._process = None

    def stop(self) -> None:
        """SIGTERM, and waits until it has ended."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(HANG_S)
        self._process = None

    def pause(self) -> None:
        """It stands still: connections stay, nobody is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def discard(self) -> None:
        """At the end, however it went."""
        if self._process is not None:
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.discard()
