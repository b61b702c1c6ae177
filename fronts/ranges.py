"""The front of a log whose partitions number their records: it labels ranges of offsets.

    with RangeFront("127.0.0.1:7070", "orders", "orders-topic", "parse", "/data/ranges") as front:
        front.publish({"orders/0": 48, "orders/1": 9})

Whoever writes the log, or looks how far it has come, reports its ends; what is new since the last time is
one batch, under one slot. It is recorded in a journal, a local file, and then committed. The journal is the
front's durable record, and where readers find the slots of what they read. A record that was written
and not reported before the front was killed is in the first batch of the next run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from fronts.batches import PublishedBatch, ranges_batch
from fronts.core import RolledBackError
from fronts.durable import DurableFront, RecordedBatch, sync
from fronts.front import (
    PUBLISH_TIMEOUT_S,
    Front,
    FrontFailedError,
    FrontOptions,
    NotPublishedError,
    OpenBatch,
)
from tracker.client import Admin
from tracker.client.errors import LowmarkError
from tracker.client.known import known_beside
from tracker.consumers.durable import write_durably
from tracker.core.model.ranges import HIGHEST_OFFSET, NotedRanges, note, parse_note

PRUNE_ABOVE_BYTES = 16 * 2**20
"""A journal that is longer lets go of what is below min time: no reader needs it any more."""

log = logging.getLogger("lowmark.front")


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
        first: Mapping[str, int] | None = None,
        prune_above_bytes: int = PRUNE_ABOVE_BYTES,
        min_time: Callable[[], int] | None = None,
        **options: Unpack[FrontOptions],
    ) -> None:
        """journal: a local file, made if it is not there. first: where partitions begin, 0 if not
        named. min_time: the segment's, asked of the tracker if not given. What the tracker acknowledged is
        recorded beside the journal (rule 9). The rest as for `Front`."""
        self.journal = Path(os.path.abspath(journal))
        known = known_beside(self.journal.parent, pipeline, options.get("node_id") or front)
        beneath = Front(target, pipeline, front, segment, known=known, **options)
        super().__init__(beneath, self.journal, self.journal.with_name(f"{self.journal.name}.lock"))
        self._first = dict(first or {})
        self._min_time = min_time or (lambda: _min_time(target, pipeline, segment))
        self._prune_above_bytes = prune_above_bytes
        self._publishing = threading.Lock()
        self._ends: dict[str, int] = {}

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
                return None

            def send(batch: OpenBatch) -> PublishedBatch:
                recorded = NotedRanges(batch.number, int(batch.slots[0]), new)
                self._append(recorded)
                return _batch(recorded, self._segment_number)

            number = self._publish_now(1, send, timeout_s)
            self._ends |= {partition: end for partition, _, end in new}
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

    # --- the journal ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """What a killed run did not write to its end was not published."""
        with open(self.journal, "a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            os.fsync(file.fileno())
        sync(self.journal.parent)

    def _recorded(self) -> list[RecordedBatch]:
        journal = self._read()
        for batch in journal:
            self._ends |= {partition: end for partition, _, end in batch.ranges}
        return [RecordedBatch(each.number, each.slot, partial(_batch, each)) for each in journal]

    def _read(self) -> list[NotedRanges]:
        try:
            return [parse_note(line) for line in self.journal.read_text().splitlines()]
        except ValueError as error:
            raise RolledBackError(f"{self.journal} is damaged: {error}; restore it") from None

    def _append(self, recorded: NotedRanges) -> None:
        """When it raises NotPublishedError, the journal is as it was."""
        line = f"{note(recorded)}\n".encode()
        with open(self.journal, "ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{self.journal}: the disk took a part of a line only")
                os.fsync(file.fileno())
            except OSError as error:
                try:
                    file.truncate(before)
                except OSError as worse:
                    raise FrontFailedError(
                        f"{self.journal} may hold a batch that cannot be taken back ({worse}); start "
                        f"front {self._front.identity!r} again, which goes by what is there"
                    ) from error
                raise NotPublishedError(str(error)) from error
        if before + len(line) > self._prune_above_bytes:
            self._prune()

    def _prune(self) -> None:
        """Removes what no reader needs any more; what is left sets the next limit."""
        try:
            kept = _needed(self._read(), self._min_time())
            contents = "".join(f"{note(batch)}\n" for batch in kept).encode()
            write_durably(self.journal, contents)
            self._prune_above_bytes = max(self._prune_above_bytes, 2 * len(contents))
        except (OSError, LowmarkError) as error:
            self._prune_above_bytes *= 2
            log.warning("front %r: %s is not pruned: %s", self._front.identity, self.journal, error)


def _batch(recorded: NotedRanges, segment: int) -> PublishedBatch:
    return ranges_batch(segment, recorded.number, recorded.slot, recorded.ranges)


def _needed(recorded: Iterable[NotedRanges], min_time: int) -> list[NotedRanges]:
    """The batches that are not complete, the last one, and those that hold a partition's end."""
    batches = list(recorded)
    ends = {partition: batch.number for batch in batches for partition, _, _ in batch.ranges}
    last = {batches[-1].number, *ends.values()}
    return [batch for batch in batches if batch.slot >= min_time or batch.number in last]


def _min_time(target: str | Sequence[str], pipeline: str, segment: str) -> int:
    with Admin(target) as admin:
        state = admin.pipeline(pipeline).state
    return min(each.min_time for each in state.segments if each.segment == segment)
