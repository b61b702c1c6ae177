"""Processes that tests start, listen to, kill and start again; none outlives its test."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.docs.pages import ROOT
from tracker.client.embedded import free_ports

WAIT_S = 60.0
"""Far more than anything here takes; a test that waits so long has failed."""


def until(is_so: Callable[[], object], what: str = "it does not come to be so") -> None:
    """Asks until something is so that nobody announces."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


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

    def __init__(self, module: str, *arguments: str, errors: Path) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._errors = errors
        self.lines: list[tuple[int, str]] = []
        """The number of the run, from 0, and a line that it said."""
        self.run = -1
        self._silent = -1  # the last run whose output has ended
        self._said = threading.Condition()
        self._errors_begin = 0
        self._process: subprocess.Popen[str] | None = None
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
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process, self.run))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str], run: int) -> None:
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
            self._said.wait_for(heard, WAIT_S)
        assert found, f"{self._command} said nothing of the kind; its errors: {self.errors()}"

    def until_line(self, place: int) -> str:
        """Waits until it has said a line in a place of `lines`, and returns that."""
        with self._said:
            self._said.wait_for(lambda: len(self.lines) > place or self._silent == self.run, WAIT_S)
            assert len(self.lines) > place, f"{self._command} is silent: {self.errors()}"
            return self.lines[place][1]

    def tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._gone()

    def end(self) -> int:
        """Waits until it has ended by itself; returns its exit status."""
        assert self._process is not None
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._command} does not end: {self.errors()}") from None
        return self._gone()

    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> int:
        """SIGTERM, and waits until it has ended; returns its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self.end()

    def _gone(self) -> int:
        assert self._process is not None and self._reader is not None
        status = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
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
        return self._errors.read_text(encoding="utf-8")[-3000:]

    def errors_of_run(self) -> str:
        """All that this run has said on standard error, as far as its lines are whole."""
        with open(self._errors, encoding="utf-8") as errors:
            errors.seek(self._errors_begin)
            text = errors.read()
        return text[: text.rfind("\n") + 1]


def shards(count: int, directory: Path) -> tuple[list[Running], str]:
    """The processes of a tracker of `count` shards, not started, and its target."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    store = ["--store", f"sqlite:{directory / 'store'}", "--log-level", "warning"]
    peers = ",".join(addresses)
    if count == 1:
        ways: list[Sequence[str]] = [["--listen", peers]]
    else:
        ways = [["--shard", str(shard), "--peers", peers] for shard in range(count)]
    processes = [
        Running("tracker.cli", "serve", *way, *store, errors=directory / f"shard-{shard}.log")
        for shard, way in enumerate(ways)
    ]
    return processes, peers
