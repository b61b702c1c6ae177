"""What Spark's own logs say was done, and when: the history's view of the queries, which must not come
from the code that is being checked.

A micro-batch is done when `commits/N` appears in its query's checkpoint. What it consumed is what
`sources/0` lists between the offsets of the batch before and its own; what it created is what the
file sink's `_spark_metadata/N` lists. A created file is labelled with the oldest slot consumed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.history import Recorder

POLL_INTERVAL_S = 0.1

_LABELLED = re.compile(r"/s(-?\d+)-[^/]*$")


@dataclass
class WitnessedQuery:
    """A query: the segment it reads, its checkpoint, where its file sink writes (None: not there),
    and the segment of who reads that."""

    segment: str
    checkpoint: Path
    output: Path | None = None
    creates: str | None = None
    next_batch: int = 0
    last_offset: int = -1
    created: dict[str, None] = field(default_factory=dict)

    def committed_ns(self, batch: int) -> int | None:
        """The moment of CLOCK_MONOTONIC at which a batch was committed; None if it is not yet."""
        try:
            changed_ns = (self.checkpoint / "commits" / str(batch)).stat().st_mtime_ns
        except FileNotFoundError:
            return None
        # Files are stamped by the wall clock: the way to the other one is taken right away, before
        # the wall clock is set.
        return changed_ns + time.monotonic_ns() - time.time_ns()

    def consumed(self, batch: int) -> tuple[int, list[str]]:
        """The offset of a batch, and the files that it read."""
        lines = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        offset = int(json.loads(lines[2])["logOffset"]) if len(lines) > 2 else self.last_offset
        names = []
        for entry in range(self.last_offset + 1, offset + 1):
            names += self._source_entry(entry)
        return offset, names

    def _source_entry(self, entry: int) -> list[str]:
        folder = self.checkpoint / "sources" / "0"
        path = folder / str(entry)
        if not path.exists():
            path = folder / f"{entry}.compact"
        return [line["path"] for line in _json_lines(path) if line["batchId"] == entry]

    def newly_created(self, batch: int) -> list[str]:
        """The files that the sink lists for a batch."""
        if self.output is None:
            return []
        folder = self.output / "_spark_metadata"
        path = folder / str(batch)
        if not path.exists():
            path = folder / f"{batch}.compact"
        if not path.exists():
            return []  # a batch that wrote nothing
        names = [line["path"] for line in _json_lines(path) if line["path"] not in self.created]
        self.created.update(dict.fromkeys(names))
        return names


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
        offset, names = query.consumed(batch)
        slots = self._slots_of(query.segment, names)
        if slots is None:
            return False  # written by a batch that is not written down yet
        created = query.newly_created(batch)
        if query.creates is not None:
            for name in created:
                self._slots[query.creates, name] = min(slots.values())
                self._recorder.created(query.creates, min(slots.values()), name, committed_ns)
        for name in names:
            self._slots.pop((query.segment, name), None)
            self._recorder.consumed(query.segment, name, committed_ns)
        query.next_batch, query.last_offset = batch + 1, offset
        return True

    def _slots_of(self, segment: str, names: Sequence[str]) -> Mapping[str, int] | None:
        """The slots of files; None if one of them is not known yet."""
        slots = {}
        for name in names:
            labelled = _LABELLED.search(name)
            slot = int(labelled[1]) if labelled else self._slots.get((segment, name))
            if slot is None:
                return None
            slots[name] = slot
        return slots


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]
