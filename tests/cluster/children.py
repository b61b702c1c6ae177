"""Processes that tests start, listen to, pause, kill and start again; none outlives its test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from scripts.summary import ROOT
from tests.cluster.forked import Forked, fork
from tests.waits import HANG_S, until
from tracker.core.model.slots import DEFAULT_SLACK_NS, slot_of


def now_slot() -> int:
    """The slot of this moment, of the width that pipelines have unless they say otherwise."""
    return slot_of(time.time_ns(), DEFAULT_SLACK_NS)


def ends_of_logs(directory: Path, pattern: str = "*.log") -> str:
    """The last lines of each log of a directory, for a failure's message."""
    texts = []
    for path in sorted(directory.glob(pattern)):
        lines = path.read_text(errors="replace").splitlines()[-6:]
        texts.append("\n".join([f"-- {path.name}", *lines]))
    return "\n".join(texts)


class Running:
    """A Python process: `python -m MODULE ARGUMENTS`, started anew as often as is wanted. The lines
    of its standard output are kept over all its runs."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        errors: Path,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        imported: tuple[str, ...] = (),
    ) -> None:
        """errors: the file of its standard error; before: what its command is put behind; environment:
        variables beside those of this process. It is forked from a process that has imported most of it, and
        `imported`, but for one with a `before`."""
        self.command = [*before, sys.executable, "-m", module, *arguments]
        self._module, self._arguments = module, arguments
        self._is_forked, self._imported = not before, imported
        self.root = ROOT
        """Whose code its next run is of: the root of a tree of files."""
        self._errors, self._environment = errors, environment or {}
        self.lines: list[tuple[int, str]] = []
        """The number of the run, from 0, and a line that it said."""
        self.run = -1
        self._silent = -1  # the last run whose output has ended
        self._said = threading.Condition()
        self._errors_begin = 0
        self._process: subprocess.Popen[str] | Forked | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None
        self.run += 1
        with open(self._errors, "a", encoding="utf-8") as errors:
            self._errors_begin = errors.tell()
            self._process = self._started(errors.fileno())
        self._reader = threading.Thread(target=self._read, args=(self._process, self.run))
        self._reader.start()

    def _started(self, errors: int) -> subprocess.Popen[str] | Forked:
        environment = {**os.environ, **self._environment}
        if self.root != ROOT:
            environment["PYTHONPATH"] = f"{self.root}:{self.root / 'proto'}"
        elif self._is_forked:
            return fork(self._module, self._arguments, environment, errors, imported=self._imported)
        return subprocess.Popen(
            self.command, cwd=self.root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, env=environment,
        )  # fmt: skip

    def _read(self, process: subprocess.Popen[str] | Forked, run: int) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._said:
                self.lines.append((run, line.rstrip("\n")))
                self._said.notify_all()
        with self._said:
            self._silent = run
            self._said.notify_all()

    def until(self, wanted: Callable[[str], object]) -> None:
        """Waits until this run has said a line that is wanted."""
        looked_at, found = 0, False

        def heard() -> bool:
            nonlocal looked_at, found
            fresh = self.lines[looked_at:]
            looked_at += len(fresh)
            found = found or any(run == self.run and wanted(line) for run, line in fresh)
            return found or self._silent == self.run

        with self._said:
            self._said.wait_for(heard, HANG_S)
        assert found, f"{self.command} said nothing of the kind; its errors: {self.errors()}"

    def until_says(self, line: str) -> None:
        self.until(lambda said: said == line)

    def until_line(self, place: int) -> str:
        """Waits until it has said a line in a place of `lines`, and returns that."""
        with self._said:
            self._said.wait_for(lambda: len(self.lines) > place or self._silent == self.run, HANG_S)
            assert len(self.lines) > place, f"{self.command} is silent: {self.errors()}"
            return self.lines[place][1]

    def until_logs(self, text: str, timeout_s: float = HANG_S) -> None:
        """Waits until this run has written a text to standard error."""

        def logged() -> bool:
            ended = self.has_ended()
            if text in self.errors_of_run():
                return True
            assert not ended, f"it has ended without {text!r}: {self.errors()}"
            return False

        until(logged, lambda: f"it does not log {text!r}: {self.errors()}", timeout_s)

    def tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._gone()

    def end(self, timeout_s: float = HANG_S) -> int:
        """Waits until it has ended by itself; returns its exit status."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} does not end: {self.errors()}") from None
        return self._gone()

    def ends_well(self, timeout_s: float = HANG_S) -> None:
        """Waits until it has ended by itself, with status 0."""
        status = self.end(timeout_s)
        assert status == 0, f"{self.command} ended with status {status}: {self.errors()}"

    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> int:
        """SIGTERM, and waits until it has ended; returns its exit status."""
        self.signal(signal.SIGTERM)
        return self.end()

    def _gone(self) -> int:
        assert self._process is not None and self._reader is not None
        status = self._process.wait(HANG_S)
        self._reader.join(HANG_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None
        return status

    def discard(self) -> None:
        """At the end of a test, however it went."""
        if self._process is not None:
            self.kill()

    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")[-3000:] if self._errors.exists() else ""

    def errors_of_run(self) -> str:
        """All that this run has said on standard error, as far as its lines are whole."""
        with open(self._errors, encoding="utf-8") as errors:
            errors.seek(self._errors_begin)
            text = errors.read()
        return text[: text.rfind("\n") + 1]

    def events(self) -> list[dict[str, Any]]:
        """What this run has logged as JSON."""
        lines = self.errors_of_run().splitlines()  # of gRPC's, too
        return [json.loads(line) for line in lines if line.startswith("{")]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


@contextmanager
def paused(*victims: Running) -> Iterator[None]:
    """They stand still for a while."""
    for victim in victims:
        victim.pause()
    try:
        yield
    finally:
        for victim in victims:
            victim.go_on()


def discard(running: Iterable[Running]) -> None:
    """Ends them, however their test went."""
    for process in running:
        process.discard()


def processor_s(pid: int) -> float:
    """Processor time that a process has used, all its threads together, in seconds."""
    return sum(
        int(Path(thread.path, "schedstat").read_text().split()[0]) / 1e9
        for thread in os.scandir(f"/proc/{pid}/task")
    )
