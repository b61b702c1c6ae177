"""Programs of a scheduler that run beside the tests: started, killed, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

LOOK_S = 0.1
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
        _end(family(process.pid))
        if process.poll() is None:
            _send(os.killpg, process.pid, signal.SIGKILL)  # with what was started meanwhile
            process.wait()

    def ended(self, name: str, timeout_s: float) -> int:
        """Its exit status, once it has ended by itself. Raises RunFailed after a while."""
        try:
            status = self._running[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RunFailed(
                f"{name} did not end within {timeout_s:.0f} s: {self.tail(name)}"
            ) from None
        self.kill(name)  # whatever it has left behind
        return status

    def call(self, name: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Runs one to its end; its exit status and what it has said, which is in its log too."""
        before = self.started(name, command)
        status = self.ended(name, timeout_s)
        return status, self.said(name, before)

    def started(self, name: str, command: Sequence[str]) -> int:
        """Starts one; how long its log was before."""
        before = self.log(name).stat().st_size if self.log(name).exists() else 0
        self.start(name, command)
        return before

    def said(self, name: str, since: int) -> str:
        """What its log has behind a length."""
        return self.log(name).read_bytes()[since:].decode(errors="replace")

    def wait_for(
        self, what: str, is_so: Callable[[], bool], timeout_s: float, look_s: float = LOOK_S
    ) -> None:
        """Until something is so. Raises RunFailed after a while, or when a program has ended by itself before."""
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            for name, process in self._running.items():
                if process.poll() is not None and not is_so():
                    raise RunFailed(
                        f"{name} ended with {process.returncode} before {what}: {self.tail(name)}"
                    )
            if time.monotonic() > deadline_s:
                logs = "; ".join(f"{name}: {self.tail(name)}" for name in self._running)
                raise RunFailed(f"not within {timeout_s:.0f} s: {what}. {logs}")
            time.sleep(look_s)  # paces: its looks

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
        families = [family(process.pid) for process in self._running.values()]
        for process in self._running.values():
            if process.poll() is None:
                _send(os.killpg, process.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + END_S
        for name, process in list(self._running.items()):
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            self.kill(name)
        for found in families:
            _end(found)


class _Known(NamedTuple):
    """What the system says of a process: its parent, its group, and when it was started."""

    parent: int
    group: int
    started: int


def _known(pid: int | str) -> _Known | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has ended
    return _Known(int(fields[1]), int(fields[2]), int(fields[19]))


def family(pid: int) -> dict[int, _Known]:
    """The processes that live in the group of a process or were started by those, sessions of their own
    included. Those whose parents had ended before are found by the group alone."""
    all_known = {
        int(each.name): known
        for each in Path("/proc").glob("[0-9]*")
        if (known := _known(each.name)) is not None
    }
    found = {one for one, known in all_known.items() if known.group == pid}
    new = found | {pid}
    while new:
        new = {one for one, known in all_known.items() if known.parent in new} - found
        found |= new
    return {one: all_known[one] for one in found}


def _end(found: Mapping[int, _Known]) -> None:
    """SIGKILL to those that are still what they were: a number may be another's by now."""
    for pid, known in found.items():
        now = _known(pid)
        if now is not None and now.started == known.started:
            _send(os.kill, pid, signal.SIGKILL)


def _send(send: Callable[[int, int], None], number: int, number_of_signal: int) -> None:
    try:
        send(number, number_of_signal)
    except ProcessLookupError:
        pass
