"""Processes of an example: started with a log each, heard, and ended for sure."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lowmark import testing

ROOT = Path(__file__).resolve().parent.parent
STOP_TIMEOUT_S = 45.0


@dataclass(frozen=True, slots=True)
class Said:
    """A JSON line that a child wrote to its standard output; or its end, with its exit status."""

    child: str
    event: dict[str, Any] | None
    status: int = 0


def tell(event: str, **fields: object) -> None:
    """In a child: one JSON line to the program that started it."""
    print(json.dumps({"event": event, **fields}), flush=True)


class Child:
    """A Python module running in a process of its own. What it says as JSON lines, and its end, go to
    `said`; anything else it writes goes to its log."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        logs: Path,
        said: queue.Queue[Said],
        *,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        paths = [str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [python, "-m", *arguments],
                cwd=ROOT, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                # Ctrl-C reaches the parent, which ends its children in order.
                start_new_session=True,
            )  # fmt: skip
        self._hearing = threading.Thread(target=self._hear, args=(said,), daemon=True)
        self._hearing.start()

    def _hear(self, said: queue.Queue[Said]) -> None:
        output: IO[bytes] | None = self.process.stdout
        assert output is not None
        with open(self.log, "ab") as log:
            for line in output:
                try:
                    said.put(Said(self.name, dict(json.loads(line))))
                except (ValueError, TypeError):
                    log.write(line)
                    log.flush()
        said.put(Said(self.name, None, self.process.wait()))

    def tell(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def stop(self, *, terminate: bool = True) -> int:
        """Ends it: closes its standard input and, if asked, sends SIGTERM; kills it if it does not
        end in time. Returns its exit status."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        if terminate and self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._hearing.join(STOP_TIMEOUT_S)
        return self.process.returncode

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports of the loopback address that are free now."""
    return testing.free_ports(count)[0]


@contextmanager
def tracker_process(directory: Path, sabotage: str | None = None) -> Iterator[str]:
    """A tracker in a process of its own, with its store in `directory` and its log in the `logs` there; gives where
    it listens. sabotage: a fault of `tests.sabotage` in it."""
    target = f"127.0.0.1:{free_ports(1)}"
    planted = ["tests.sabotage", sabotage, "--"] if sabotage else ["tracker.cli"]
    serve = ["serve", "--listen", target, "--store", f"sqlite:{directory / 'store'}"]
    child = Child("tracker", [*planted, *serve], directory / "logs", queue.Queue())
    try:
        yield target
    finally:
        child.stop()
