"""Readers of what fronts publish: they know every item, and when they let go of each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, TickContent, Unit
from tracker.core.model.ack_values import child_value, unit_value
from tracker.core.model.units import LabelledFile, parse_file_name, unit_name

IN, OUT = 0, 1
"""Numbers of the pipeline's segments: files are items of the first, and make items of the second."""
HELD_BACK = 10
"""A reader leaves this many of the newest files alone, so that something is always open."""
_LOOK_PAUSE_S = 0.01  # paces: its looks


@dataclass(frozen=True)
class File:
    """A file as its front published it, and the item that it is."""

    labels: LabelledFile
    name: str
    unit: str

    @property
    def slot(self) -> int:
        return self.labels.slot

    @property
    def value(self) -> int:
        return unit_value(self.unit)

    @property
    def child(self) -> int:
        """The ack value of the item that it makes."""
        return child_value(self.value, "reader", 0)


@dataclass(frozen=True)
class Read:
    """A file and the item that it made. Moments are nanoseconds of CLOCK_MONOTONIC, before whatever
    said so was handed over: no announcement can rightly come earlier."""

    file: File
    file_done_ns: int
    child_done_ns: int


class FileReader:
    """Consumes files in a thread, in the way of its subclass, until it is told that these are all."""

    def __init__(self, directory: Path) -> None:
        self.read: list[Read] = []
        self._directory = directory
        self._seen: set[str] = set()
        self._reading = threading.Condition()
        self._last = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reader")

    def start(self) -> None:
        self._open()
        self._thread.start()

    def until_more(self, count: int) -> None:
        """Waits until so many files more are done, and what they made."""
        with self._reading:
            enough = len(self.read) + count
            ready = lambda: len(self.read) >= enough or self._failure  # noqa: E731
            came = self._reading.wait_for(ready, HANG_S)
        if self._failure is not None:
            raise self._failure
        assert came, "nothing comes"

    def finish(self) -> None:
        """All fronts have left: reads what is there, and waits until all of it is durable."""
        self._last.set()
        self._thread.join(HANG_S)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._last.set()
        if self._thread.ident is not None:
            self._thread.join(HANG_S)
        self._close()

    # --- what subclasses do -----------------------------------------------------------------------

    def _open(self) -> None:
        """Before anything is read."""

    def _consume(self, files: Sequence[File]) -> None:
        """Consumes files; calls `_done` for each when what it made is consumed too."""
        raise NotImplementedError

    def _end(self) -> None:
        """When there are no more files: returns when all is durable."""

    def _close(self) -> None:
        """At the end of a test, however it went."""

    def _done(self, file: File, file_done_ns: int, child_done_ns: int) -> None:
        with self._reading:
            self.read.append(Read(file, file_done_ns, child_done_ns))
            self._reading.notify_all()

    # --- inside -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._last.is_set():
                if fresh := self._fresh(HELD_BACK):
                    self._consume(fresh)
                self._last.wait(_LOOK_PAUSE_S)
            self._consume(self._fresh(0))
            self._end()
        except BaseException as failure:
            with self._reading:
                self._failure = failure
                self._reading.notify_all()

    def _fresh(self, held_back: int) -> list[File]:
        found = {name for name in os.listdir(self._directory) if name[0] != "."}
        files = []
        for name in sorted(found - self._seen, reverse=True)[held_back:]:
            self._seen.add(name)
            labels = parse_file_name(name)
            assert labels is not None, name
            files.append(File(labels, name, unit_name(str(self._directory / name))))
        return files


class Reader(FileReader):
    """A plain node: a tick consumes a file and makes an item of the second segment, the next consumes
    that. Ticks are on their way together."""

    def __init__(self, target: str, pipeline: str, directory: Path) -> None:
        super().__init__(directory)
        self._node = NodeClient(target, pipeline, "reader")
        self._commits: list[Future[int]] = []

    def _open(self) -> None:
        self._node.join(HANG_S)

    def _consume(self, files: Sequence[File]) -> None:
        for file in files:
            child = Cells.of([(OUT, file.slot, file.child, 1)])
            file_done_ns = time.monotonic_ns()
            self._commit(
                TickContent(
                    consumed=Cells.of([(IN, file.slot, file.value, 1)]),
                    units_consumed=(Unit(IN, file.unit, file.slot),),
                    created=child,
                )
            )
            child_done_ns = time.monotonic_ns()
            self._commit(TickContent(consumed=child))
            self._done(file, file_done_ns, child_done_ns)

    def _commit(self, content: TickContent) -> None:
        self._commits.append(self._node.commit(content))

    def _end(self) -> None:
        for commit in self._commits:
            commit.result(HANG_S)

    def _close(self) -> None:
        self._node.close()
