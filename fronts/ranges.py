"""The front of a log whose partitions number their records: it labels ranges of offsets.

    with RangeFront("127.0.0.1:7070", "orders", "orders-topic", "parse", "/data/ranges") as front:
        front.publish({"orders/0": 48, "orders/1": 9})

Whoever writes the log, or looks how far it has come, reports its ends; what is new since the last time is
one batch, under one slot. It is recorded in a journal, a local file or a log in a store, and then committed. The
journal is the front's durable record, and where readers find the slots of what they read. A record that was written
and not reported before the front was killed is in the first batch of the next run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fronts.batches import PublishedBatch, ranges_batch
from fronts.durable import DurableFront, RecordedBatch
from fronts.front import (
    DEFAULTS,
    PUBLISH_TIMEOUT_S,
    Front,
    FrontOptions,
    OpenBatch,
)
from fronts.journals import journal_at
from tracker.client import Admin
from tracker.client.known import known_beside
from tracker.core.model.ranges import HIGHEST_OFFSET, NotedRanges
from tracker.files import parent


class RangeFront(DurableFront):
    """A front of ranges of offsets. Thread-safe; one at a time may run with a journal, and nobody else
    labels offsets of its partitions."""

    _KEEPS_LAST = True
    _ROLLED_BACK = (
        "restore the newer journal, or start under a new front name, over partitions that nobody has "
        "labelled"
    )

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        journal: str | os.PathLike[str],
        *,
        min_time: Callable[[], int] | None = None,
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """journal: a local or mounted file, or a directory of a store, made if it is not there. first:
        where partitions begin, 0 if not named. prune_above_bytes: how long a local journal may become.
        min_time: the whole pipeline's, asked of the tracker if not given. What the tracker acknowledged is recorded
        beside the journal (rule 9). The rest as for `Front`. Raises FilesError where the store is out of
        reach."""
        self._journal = journal_at(os.fspath(journal), front, options.prune_above_bytes)
        known = known_beside(parent(self._journal.where), pipeline, options.node_id or front)
        hold = self._journal.hold
        beneath = Front(
            target, pipeline, front, segment, known=known, owner=hold.owner, options=options
        )
        super().__init__(beneath, self.journal, hold)
        self._first = dict(options.first)
        self._min_time = min_time or (lambda: _min_time(target, pipeline))
        self._publishing = threading.Lock()
        self._ends: dict[str, int] = {}

    @property
    def journal(self) -> str:
        """Where the journal is."""
        return self._journal.where

    @property
    def ends(self) -> dict[str, int]:
        """The end of each partition, as published last."""
        with self._publishing:
            return dict(self._ends)

    def publish(self, ends: Mapping[str, int], timeout_s: float = PUBLISH_TIMEOUT_S) -> int | None:
        """Labels what lies between the ends reported last and these, and publishes it as one batch, under
        one slot; returns its number, None if nothing is new. Partitions that are not named have not
        moved on. When it raises OSError, nothing was published: report the ends again. Raises ValueError
        for an end that goes back; else as `Front.publish`."""
        with self._publishing:
            new = self._new(ends)
            if not new:
                self._front.check_running()
                return None

            def send(batch: OpenBatch) -> PublishedBatch:
                recorded = NotedRanges(batch.number, int(batch.slots[0]), new)
                self._journal.append(recorded, timeout_s)
                return _batch(recorded, self._segment_number)

            number = self._publish_now(1, send, timeout_s)
            self._ends |= {partition: end for partition, _, end in new}
            self._journal.prune(self._min_time, self._front.last_durable)
            return number

    # --- inside -----------------------------------------------------------------------------------

    def _new(self, ends: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        new = []
        for partition, end in sorted(ends.items()):
            begin = self._ends.get(partition, self._first.get(partition, 0))
            if not begin <= end <= HIGHEST_OFFSET:
                raise ValueError(
                    f"front {self._front.identity!r}: partition {partition!r} ends at {end} and was at "
                    f"{begin} before; ends go up, to {HIGHEST_OFFSET} at most"
                )
            if begin < end:
                new.append((partition, begin, end))
        return tuple(new)

    def _prepare(self) -> None:
        self._journal.prepare()

    def _newest(self) -> int:
        return max((batch.number for batch in self._journal.read()[0]), default=-1)

    def _recorded(self, durable: int) -> list[RecordedBatch]:
        batches, ends = self._journal.read()
        self._ends |= ends
        return [RecordedBatch(each.number, each.slot, partial(_batch, each)) for each in batches]


def _batch(recorded: NotedRanges, segment: int) -> PublishedBatch:
    return ranges_batch(segment, recorded.number, recorded.slot, recorded.ranges)


def _min_time(target: str | Sequence[str], pipeline: str) -> int:
    """A restart of the pipeline may begin there, and have all from there on committed anew."""
    with Admin(target) as admin:
        return min(each.min_time for each in admin.pipeline(pipeline).state.segments)
