"""A reader of what fronts publish: it knows every item, and when it let go of each."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from tests.processes.running import WAIT_S
from tracker.client import NodeClient
from tracker.core.ack_values import child_value, unit_value
from tracker.core.model import Cells, TickContent, Unit
from tracker.core.units import LabelledFile, parse_file_name, unit_name

IN, OUT = 0, 1
"""Numbers of the pipeline's segments: files are items of the first, and make items of the second."""
HELD_BACK = 10
"""The reader leaves this many of the newest files alone, so that something is always open."""
_LOOK_PAUSE_S = 0.01


@dataclass(frozen=True)
class Read:
    """A file and the item that it made. Moments are nanoseconds of CLOCK_MONOTONIC, before the tick
    that said so was handed over: no announcement can rightly come earlier."""

    file: LabelledFile
    name: str
    file_done_ns: int
    child_done_ns: int


class Reader:
    """Consumes files in a thread; each makes an item of the second segment, consumed after it."""

    def __init__(self, target: str, pipeline: str, directory: Path) -> None:
        self._node = NodeClient(target, pipeline, "reader")
        self._directory = directory
        self.read: list[Read] = []
        self._seen: set[str] = set()
        self._commits: list[Future[int]] = []
        self._reading = threading.Condition()
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")

    def start(self) -> None:
        self._node.join(WAIT_S)
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Waits until it has read so many files more."""
        with self._reading:
            enough = len(self.read) + count
            assert self._reading.wait_for(lambda: len(self.read) >= enough, WAIT_S), "nothing comes"

    def finish(self) -> None:
        """All fronts have left: reads what is there, and waits until all of it is durable."""
        self._last.set()
        self._thread.join(WAIT_S)
        for commit in self._commits:
            commit.result(WAIT_S)

    def close(self) -> None:
        self._last.set()
        if self._thread.ident is not None:
            self._thread.join(WAIT_S)
        self._node.close()

    def _run(self) -> None:
        while True:
            last = self._last.is_set()
            found = [name for name in os.listdir(self._directory) if name[0] != "."]
            fresh = sorted(set(found) - self._seen, reverse=True)
            for name in fresh if last else fresh[HELD_BACK:]:
                self._consume(name)
            if last:
                return
            self._last.wait(_LOOK_PAUSE_S)

    def _consume(self, name: str) -> None:
        self._seen.add(name)
        file = parse_file_name(name)
        assert file is not None, name
        unit = unit_name(str(self._directory / name))
        value = unit_value(unit)
        child = child_value(value, "reader", 0)
        file_done_ns = time.monotonic_ns()
        self._commit(
            TickContent(
                consumed=Cells.of([(IN, file.slot, value, 1)]),
                units_consumed=(Unit(IN, unit, file.slot),),
                created=Cells.of([(OUT, file.slot, child, 1)]),
            )
        )
        child_done_ns = time.monotonic_ns()
        self._commit(TickContent(consumed=Cells.of([(OUT, file.slot, child, 1)])))
        with self._reading:
            self.read.append(Read(file, name, file_done_ns, child_done_ns))
            self._reading.notify_all()

    def _commit(self, content: TickContent) -> None:
        self._commits.append(self._node.commit(content))
