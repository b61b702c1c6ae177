"""Programs of a scheduler that run beside the tests: started, killed, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

LOOK_S = 0.2
END_S = 20.0


class RunFailed(Exception):
    """A scheduler did not do what it was asked for; says which, and where its log is."""


class Programs:
    """Processes by name, each with a log of its own in a directory and a process group of its own."""

    def __init__(self, directory: Path, variables: Mapping[str, str]) -> None:
        self.directory, self.variables = directory, dict(variables)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts one; its log goes on where an earlier one of its name ended."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, cwd=self.directory, env=self.variables, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip

    def log(self, name: str) -> Path:
        """Where it writes."""
        return self.directory / f"{name}.log"

    def kill(self, name: str) -> None:
        """SIGKILL to it and all that it has started."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def call(self, name: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Runs one to its end; its exit status and what it has said, which is in its log too."""
        done = subprocess.run(
            command, cwd=self.directory, env=self.variables, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False,
        )  # fmt: skip
        with self.log(name).open("a") as log:
            log.write(done.stdout)
        return done.returncode, done.stdout

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Until something is so. Raises RunFailed after a while, or when a program has ended by itself."""
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RunFailed(f"{name} ended with {process.returncode}: {self.tail(name)}")
            if time.monotonic() > deadline_s:
                logs = "; ".join(f"{name}: {self.tail(name)}" for name in self._running)
                raise RunFailed(f"not within {timeout_s:.0f} s: {what}. {logs}")
            time.sleep(LOOK_S)

    def tail(self, name: str) -> str:
        """The end of its log."""
        return self.log(name).read_text(errors="replace")[-1_500:]

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for name, process in list(self._running.items()):
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            del self._running[name]
            process.wait()
