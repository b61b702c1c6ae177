"""What was committed when, from what Spark leaves on disk: nothing of it comes from the code that is
being judged.

A micro-batch is done when `commits/N` appears in its query's checkpoint. What it consumed stands
between the offsets of the batch before and its own; what it created is what its sink has listed for
it, and is labelled with the oldest slot that it consumed. Files are looked at while the row runs,
since Spark purges them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from examples.history import Recorder
from tests.spark_matrix.places import Looked, StoreAway

POLL_S = 0.03  # paces: its looks

_LABELLED = re.compile(r"/s(-?\d+)-[^/]*$")

Item = tuple[str, str, int]
"""A segment, an item's name, its slot."""


@dataclass(frozen=True)
class Output:
    """Where a query's batches leave files: by `_spark_metadata` (`sink`), or named by batch
    (`published`, or `noted` by a sink of the user's own); and the segments of who reads them."""

    kind: str
    directory: Looked
    creates: tuple[str, ...]
    names: Callable[[Followed, int], list[str]] | None = None
    """For sinks with logs of their own: the items that a batch has created."""


@dataclass(frozen=True)
class Done:
    """A batch that is over: when, the files that it took, and those that it left."""

    batch: int
    done_ns: int
    consumed: tuple[str, ...]
    created: tuple[str, ...]


@dataclass
class Followed:
    """A query. reads: the segment of all its file sources, or by source number. side: its code hands
    every row with an odd number to segment `side`."""

    checkpoint: Looked
    reads: str | Mapping[str, str]
    outputs: Sequence[Output] = ()
    side: bool = False
    delays: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ranges: Callable[[Any, Any], Iterable[tuple[str, int | None]]] | None = None
    """For sources with offsets of their own: the items, with slots, between two offsets. One without a slot
    has that under which it was created."""
    emits: Callable[[int], int | None] | None = None
    """For a query that is a front of its output: under which slot a batch was told, once it was."""
    rows: str | None = None
    """The column of the slots of the rows, where they are the items."""
    done: list[Done] = field(default_factory=list)
    last_batch: int = -1
    offsets: dict[str, Any] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)

    def next_batch(self) -> int | None:
        """The first batch that is done and not taken yet."""
        done = _numbers(self.checkpoint / "commits")
        later = [batch for batch in done if batch > self.last_batch]
        return min(later) if later else None

    def logged_offsets(self, batch: int) -> dict[str, Any]:
        """Up to where a batch has read, by source."""
        return _offsets(self.checkpoint / "offsets" / str(batch))

    def segment(self, source: str) -> str:
        return self.reads if isinstance(self.reads, str) else self.reads[source]


class Truth:
    """Writes down what the queries of a row do, in a thread of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self.queries: list[Followed] = []
        self.failure: Exception | None = None
        self._recorder = recorder
        self._slots: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="truth", daemon=True)
        self._thread.start()

    def follow(self, query: Followed) -> Followed:
        with self._lock:
            self.queries.append(query)
        return query

    def close(self) -> None:
        """Writes down what is left, and ends. Raises what made it fail."""
        self._stop.set()
        self._thread.join()
        self.look()
        if self.failure is not None:
            raise self.failure

    def created(self, segment: str, name: str, slot: int, at_ns: int | None = None) -> None:
        """An item that came into being outside of the queries."""
        self._slots[segment, name] = slot
        self._recorder.created(segment, slot, name, at_ns)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            self.look()

    def look(self) -> None:
        """Takes all batches that are done."""
        with self._lock:
            try:
                while self.failure is None and any(self._take(query) for query in self.queries):
                    pass
            except StoreAway:
                return
            except Exception as error:
                self.failure = error

    def _take(self, query: Followed) -> bool:
        batch = query.next_batch()
        if batch is None:
            return False
        done_ns = _moment_of(query.checkpoint / "commits" / str(batch))
        offsets = query.logged_offsets(batch)
        consumed = self._consumed(query, offsets)
        if consumed is None:
            return False  # written by a batch that is not taken yet
        emitted: int | None = None
        if query.emits is not None and any(
            self._peek(query, output, batch) for output in query.outputs
        ):
            emitted = query.emits(batch)
            if emitted is None:
                return False  # not told yet
        # All is read before anything is written down: a store may be away at any moment.
        created = [(output, _created(query, output, batch)) for output in query.outputs]
        oldest: dict[str, int] = {}
        for segment, _, slot in consumed:
            oldest[segment] = min(slot, oldest.get(segment, slot))
        for output, names in created:
            query.listed.update(names)
            for name in names:
                for target in output.creates:
                    if query.rows is not None:
                        for item, slot in rows_of(name, query.rows):
                            self._recorder.created(target, slot, item, done_ns)
                        continue
                    slots = [
                        slot + query.delays.get((source, target), 0)
                        for source, slot in oldest.items()
                    ]
                    if emitted is not None:
                        slots = [emitted]
                    self._slots[target, name] = min(slots)
                    self._recorder.created(target, min(slots), name, done_ns)
        if query.side:
            for name, slot in odd_rows(name for _, name, _ in consumed):
                self._recorder.created("side", slot, name, done_ns)
        for segment, name, _ in consumed:
            self._recorder.consumed(segment, name, done_ns)
        made = tuple(name for _, names in created for name in names)
        took = tuple(name for _, name, _ in consumed)
        query.done.append(Done(batch, done_ns, took, made))
        query.last_batch = batch
        query.offsets.update({source: offset for source, offset in offsets.items() if offset})
        return True

    @staticmethod
    def _peek(query: Followed, output: Output, batch: int) -> bool:
        """Whether a batch created anything, of outputs that can be asked twice."""
        return output.kind in ("published", "sink") and bool(_created(query, output, batch))

    def _consumed(self, query: Followed, offsets: Mapping[str, Any]) -> list[Item] | None:
        found: dict[tuple[str, str], int] = {}
        for source, offset in offsets.items():
            segment = query.segment(source)
            before = query.offsets.get(source)
            if offset is None or offset == before:
                continue
            if isinstance(offset, dict) and set(offset) == {"logOffset"}:
                first = -1 if before is None else int(before["logOffset"])
                names = [
                    name
                    for entry in range(first + 1, int(offset["logOffset"]) + 1)
                    for name in listed_by_source(query.checkpoint / "sources" / source, entry)
                ]
                for name in names:
                    if query.rows is not None:
                        found |= {(segment, item): slot for item, slot in rows_of(name, query.rows)}
                        continue
                    slot = self._slot(segment, name)
                    if slot is None:
                        return None
                    found[segment, name] = slot
            elif query.ranges is not None:
                for name, told in query.ranges(before, offset):
                    slot = self._slots.get((segment, name)) if told is None else told
                    if slot is None:
                        return None
                    found[segment, name] = slot
        return [(segment, name, slot) for (segment, name), slot in found.items()]

    def _slot(self, segment: str, name: str) -> int | None:
        labelled = _LABELLED.search(name)
        return int(labelled[1]) if labelled else self._slots.get((segment, name))


def odd_rows(names: Iterable[str]) -> list[tuple[str, int]]:
    """The rows with odd numbers of Parquet files, as items of `side`, each with its slot."""
    found = []
    for name in names:
        table = pq.ParquetFile(path_of(name)).read(columns=["slot", "row"])
        found += [
            (f"row {row}", int(slot))
            for slot, row in zip(*(table[c].to_pylist() for c in ("slot", "row")), strict=True)
            if row % 2 == 1
        ]
    return found


def rows_of(name: str, column: str) -> list[tuple[str, int]]:
    """The rows of a Parquet file, as items, each with the slot in a column."""
    slots = pq.ParquetFile(path_of(name)).read(columns=[column])[column].to_pylist()
    return [(f"{name}#{place}", int(slot)) for place, slot in enumerate(slots)]


def path_of(name: str) -> str:
    """The path of a file as Spark names it. Names of rows need no unquoting."""
    return re.sub("^file:/+", "/", name)


def _created(query: Followed, output: Output, batch: int) -> list[str]:
    if output.names is not None:
        return output.names(query, batch)
    if output.kind in ("published", "noted"):
        assert isinstance(output.directory, Path)
        return sorted(
            f"file://{path}"
            for path in output.directory.rglob(f"b{batch:08d}-*")
            if "_lowmark" not in path.parts
        )
    return listed_by_sink(query, output.directory, batch)


def listed_by_sink(query: Followed, directory: Looked, batch: int) -> list[str]:
    """The files that a batch of a query has added to the list of its file sink."""
    folder = directory / "_spark_metadata"
    path = folder / str(batch)
    if not path.exists():
        path = folder / f"{batch}.compact"
    if not path.exists():
        return []  # a batch that wrote nothing
    return [line["path"] for line in _json_lines(path) if line["path"] not in query.listed]


def _offsets(path: Looked) -> dict[str, Any]:
    version, _, *lines = path.read_text().splitlines()
    named = (
        [line.partition(":")[::2] for line in lines]
        if version == "v2"
        else [(str(place), line) for place, line in enumerate(lines)]
    )
    return {source: None if text == "-" else json.loads(text) for source, text in named}


def listed_by_source(folder: Looked, entry: int) -> list[str]:
    """The files of an entry in the list of a file source."""
    path = folder / str(entry)
    if not path.exists():
        compactions = sorted(n for n in _numbers(folder, ".compact") if n >= entry)
        path = folder / f"{compactions[0]}.compact"
    return [line["path"] for line in _json_lines(path) if line["batchId"] == entry]


def _json_lines(path: Looked) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def _numbers(folder: Looked, suffix: str = "") -> list[int]:
    if not folder.exists():
        return []
    stems = [p.name.removesuffix(suffix) for p in folder.iterdir() if p.name.endswith(suffix)]
    return [int(stem) for stem in stems if stem.isdigit()]


def _moment_of(path: Looked) -> int:
    """When a file was written, by CLOCK_MONOTONIC; taken right away, before the wall clock is set."""
    return path.stat().st_mtime_ns + time.monotonic_ns() - time.time_ns()
