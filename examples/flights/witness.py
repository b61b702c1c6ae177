"""What Spark's own logs say was done, and when: the history's view of the queries, which must not come
from the code that is being checked.

A micro-batch is done when `commits/N` appears in its query's checkpoint. What it consumed is what its source
lists between the offsets of the batch before and its own; what it created is what its sink lists for it.
What is created is labelled with the oldest slot that was consumed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from examples.history import Recorder
from lowmark.nodes import unit_name

POLL_INTERVAL_S = 0.1

_LABELLED = re.compile(r"/s(-?\d+)-[^/]*$")


@dataclass(frozen=True, slots=True)
class Taken:
    """Names of items. whole: those that a batch has read to their end; parts: those of which it has read
    something, and which are not read to their end."""

    whole: list[str]
    parts: list[str] = field(default_factory=list)


class WitnessedSource(Protocol):
    """The log of what a query reads."""

    def taken(self, before: str | None, after: str) -> Taken:
        """What lies between two offsets, as the checkpoint has them; `before` is None in the beginning."""

    def slot(self, name: str) -> int | None:
        """Under which an item came in; None if that is not said by the source."""


class WitnessedSink(Protocol):
    """The log of what a query writes."""

    def created(self, batch: int) -> list[str]:
        """The items of a batch that is done. Batches are asked for in their order, perhaps again."""


@dataclass
class WitnessedQuery:
    """A query: the segment it reads, its checkpoint, its source, and where others read on: its sinks, by their
    segments."""

    segment: str
    checkpoint: Path
    source: WitnessedSource
    creates: Mapping[str, WitnessedSink] = field(default_factory=dict)
    next_batch: int = 0
    last_offset: str | None = None

    def committed_ns(self, batch: int) -> int | None:
        """The moment of CLOCK_MONOTONIC at which a batch was committed; None if it is not yet."""
        try:
            changed_ns = (self.checkpoint / "commits" / str(batch)).stat().st_mtime_ns
        except FileNotFoundError:
            return None
        # Files are stamped by the wall clock: the way to the other one is taken right away, before
        # the wall clock is set.
        return changed_ns + time.monotonic_ns() - time.time_ns()

    def offset(self, batch: int) -> str | None:
        """Up to where a batch has read."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        return lines[2] if len(lines) > 2 else self.last_offset


class FileSource:
    """Files in a directory, by `sources/0` of the query's checkpoint; a front's have slots in their names."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "sources" / "0"

    def taken(self, before: str | None, after: str) -> Taken:
        first = -1 if before is None else _log_offset(before)
        entries = range(first + 1, _log_offset(after) + 1)
        return Taken([name for entry in entries for name in self._entry(entry)])

    def slot(self, name: str) -> int | None:
        labelled = _LABELLED.search(name)
        return int(labelled[1]) if labelled else None

    def _entry(self, entry: int) -> list[str]:
        path = self._folder / str(entry)
        if not path.exists():
            path = self._folder / f"{entry}.compact"
        return [line["path"] for line in _json_lines(path) if line["batchId"] == entry]


@dataclass
class FileSink:
    """Files in a directory, by its `_spark_metadata`."""

    output: Path
    _batches: dict[str, int] = field(default_factory=dict)
    """Of each file that was asked for."""

    def created(self, batch: int) -> list[str]:
        folder = self.output / "_spark_metadata"
        path = folder / str(batch)
        if not path.exists():
            path = folder / f"{batch}.compact"
        if not path.exists():
            return []  # a batch that wrote nothing
        names = [line["path"] for line in _json_lines(path)]
        return [name for name in names if self._batches.setdefault(name, batch) == batch]


class PublishedSink:
    """Files that a query publishes within `foreachBatch`, by the manifests beside them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def created(self, batch: int) -> list[str]:
        manifests = self._directory.glob(f"_lowmark/*/{batch:08}.json")
        placed = [file for each in manifests for _, file in json.loads(each.read_text())["files"]]
        return [unit_name(str(self._directory / file)) for file in placed]


class Witness:
    """Writes down what the queries do, as `created` and `consumed` lines, in a thread of its own."""

    def __init__(self, recorder: Recorder, queries: Sequence[WitnessedQuery]) -> None:
        self._recorder, self._queries = recorder, queries
        self._slots: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Writes down what is left, and ends. Raises what made it fail."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(POLL_INTERVAL_S):
                self.look()
            self.look()
        except Exception as error:
            self.failure = error

    def look(self) -> None:
        """Writes down all batches that are done and not written down yet."""
        while any(self._next_batch(query) for query in self._queries):
            pass

    def _next_batch(self, query: WitnessedQuery) -> bool:
        batch = query.next_batch
        committed_ns = query.committed_ns(batch)
        if committed_ns is None:
            return False
        offset, taken = query.offset(batch), Taken([])
        if offset is not None and offset != query.last_offset:
            taken = query.source.taken(query.last_offset, offset)
        slots = self._slots_of(query, [*taken.whole, *taken.parts])
        if slots is None:
            return False  # written by a batch that is not written down yet
        for segment, sink in query.creates.items():
            for name in sink.created(batch):
                self._slots[segment, name] = min(slots.values())
                self._recorder.created(segment, min(slots.values()), name, committed_ns)
        for name in taken.whole:
            self._slots.pop((query.segment, name), None)
            self._recorder.consumed(query.segment, name, committed_ns)
        query.next_batch, query.last_offset = batch + 1, offset
        return True

    def _slots_of(self, query: WitnessedQuery, names: Sequence[str]) -> Mapping[str, int] | None:
        """The slots of items; None if one of them is not known yet."""
        slots = {}
        for name in names:
            slot = query.source.slot(name)
            if slot is None:
                slot = self._slots.get((query.segment, name))
            if slot is None:
                return None
            slots[name] = slot
        return slots


def _log_offset(offset: str) -> int:
    return int(json.loads(offset)["logOffset"])


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]
