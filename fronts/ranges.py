"""The front of a log whose partitions number their records: it labels ranges of offsets.

    with RangeFront("127.0.0.1:7070", "orders", "orders-topic", "parse", "/data/ranges") as front:
        front.publish({"orders/0": 48, "orders/1": 9})

Whoever writes the log, or looks how far it has come, tells its ends; what is new since the last time is
one batch, under one slot. It is noted in a journal, a local file, and then committed. The journal is the
front's durable record, and where readers find the slots of what they read. A record that was written
and not told before the front was killed is in the first batch of the next run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fronts.batches import PublishedBatch, ranges_batch
from fronts.client import (
    HEARTBEAT_INTERVAL_MS,
    JOIN_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    Clock,
    Front,
    FrontFailedError,
    Node,
    NotPublishedError,
    OpenBatch,
)
from fronts.core import MAX_WAITING_BATCHES, RolledBackError
from fronts.locks import left_after, note_leave, take_lock
from tracker.client import Admin
from tracker.client.errors import LowmarkError
from tracker.core.model import Batch
from tracker.core.ranges import HIGHEST_OFFSET, NotedRanges, note, parse_note
from tracker.core.slots import LOWEST_SLOT

PRUNE_ABOVE_BYTES = 16 * 2**20
"""A journal that is longer lets go of what is below min time: every reader has told of it."""

log = logging.getLogger("lowmark.front")


class RangeFront:
    """A front of ranges of offsets. Thread-safe; one at a time may run with a journal, and nobody else
    labels offsets of its partitions."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        journal: str | os.PathLike[str],
        *,
        first: Mapping[str, int] | None = None,
        node_id: str | None = None,
        clock: Clock = time.time_ns,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        max_waiting_batches: int = MAX_WAITING_BATCHES,
        prune_above_bytes: int = PRUNE_ABOVE_BYTES,
        pass_over_late: bool = False,
        node: Node | None = None,
        min_time: Callable[[], int] | None = None,
    ) -> None:
        """journal: a local file, made if it is not there. first: where partitions begin, 0 if not
        named. min_time: the segment's, asked of the tracker if not given. The rest as for `Front`."""
        self.journal = Path(os.path.abspath(journal))
        self._first = dict(first or {})
        self._front = Front(
            target, pipeline, front, segment, node_id=node_id, clock=clock,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_waiting_batches=max_waiting_batches, pass_over_late=pass_over_late, node=node,
        )  # fmt: skip
        self._min_time = min_time or (lambda: _min_time(target, pipeline, segment))
        self._prune_above_bytes = prune_above_bytes
        self._publishing = threading.Lock()
        self._ends: dict[str, int] = {}
        self._segment = -1
        self._lock_fd: int | None = None

    @property
    def front(self) -> Front:
        """The front beneath: its waits and failure."""
        return self._front

    @property
    def ends(self) -> dict[str, int]:
        """The end of each partition, as published last."""
        with self._publishing:
            return dict(self._ends)

    def start(
        self, timeout_s: float = JOIN_TIMEOUT_S, *, lock_timeout_s: float | None = None
    ) -> RangeFront:
        """Takes the journal, joins, and commits what earlier runs published; then as `Front.start`.
        Raises FrontHeldError if another process has the front for `lock_timeout_s` seconds (None: as
        `timeout_s`), RolledBackError if the journal is older than what the tracker has, or was
        rewritten."""
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        lock = self.journal.with_name(self.journal.name + ".lock")
        patience_s = timeout_s if lock_timeout_s is None else lock_timeout_s
        self._lock_fd = take_lock(lock, patience_s, self._front.identity)
        try:
            self._cut_torn_line()
            after, generation = left_after(self._lock_fd)
            self._front.start(self._recover, timeout_s, left_after=after, left_in=generation)
        except BaseException:
            self._release()
            raise
        return self

    def publish(self, ends: Mapping[str, int], timeout_s: float = PUBLISH_TIMEOUT_S) -> int | None:
        """Labels what lies between the ends told last and these, and publishes it as one batch, under
        one slot; returns its number, None if nothing is new. Partitions that are not named have not
        moved on. When it raises OSError, nothing was published: tell the ends again. Raises ValueError
        for an end that goes back; else as `Front.publish`."""
        with self._publishing:
            new = self._new(ends)
            if not new:
                return None

            def send(batch: OpenBatch) -> PublishedBatch:
                noted = NotedRanges(batch.number, int(batch.slots[0]), new)
                self._append(noted)
                return self._batch(self._segment, noted)

            try:
                number = self._front.publish_now(1, send, timeout_s)
            except NotPublishedError as error:
                assert error.__cause__ is not None
                raise error.__cause__ from None
            self._ends |= {partition: end for partition, _, end in new}
            return number

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """As `Front.wait_durable`."""
        return self._front.wait_durable(timeout_s)

    def leave(self) -> None:
        """As `Front.leave`; a front of this name that is started later goes on from here."""
        fd = self._lock_fd
        note = None if fd is None else partial(note_leave, fd, self._front.generation)
        self._front.leave(note=note)
        self._release()

    def close(self) -> None:
        """As `Front.close`."""
        self._front.close()
        self._release()

    def __enter__(self) -> RangeFront:
        return self if self._lock_fd is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def _batch(self, segment: int, noted: NotedRanges) -> PublishedBatch:
        return ranges_batch(segment, noted.number, noted.slot, noted.ranges)

    def _recover(self, segment: int, last: Batch | None) -> list[PublishedBatch]:
        """The batches that the tracker may not have, and the last one that it has, to compare. It has
        none where the pipeline was restarted: those below the first slot then are complete, and may
        have been let go."""
        self._segment = segment
        noted = self._noted()
        for batch in noted:
            self._ends |= {partition: end for partition, _, end in batch.ranges}
        durable = max(self._front.left_after, -1 if last is None else last.id)
        if durable < 0 and self._front.replay_from > LOWEST_SLOT:
            # The last one tells the next number, if nothing else does.
            noted = [b for b in noted if b.slot >= self._front.replay_from] or noted[-1:]
            durable = noted[0].number - 1 if noted else -1
        numbers = [batch.number for batch in noted if batch.number > durable]
        newest = noted[-1].number if noted else -1
        if newest < durable or numbers != list(range(durable + 1, durable + 1 + len(numbers))):
            raise RolledBackError(
                f"front {self._front.identity!r}: {self.journal} ends with batch {newest}, and of those "
                f"behind {durable}, which the tracker has, it holds {numbers[:5]}: restore the newer "
                f"journal, or start under a new front name, over partitions that nobody has labelled"
            )
        return [self._batch(segment, batch) for batch in noted if batch.number >= durable]

    # --- the journal ------------------------------------------------------------------------------

    def _noted(self) -> list[NotedRanges]:
        try:
            return [parse_note(line) for line in self.journal.read_text().splitlines()]
        except ValueError as error:
            raise RolledBackError(f"{self.journal} is damaged: {error}; restore it") from None

    def _cut_torn_line(self) -> None:
        """What a killed run did not write to its end was not published."""
        with open(self.journal, "a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            os.fsync(file.fileno())
        self._sync_directory()

    def _sync_directory(self) -> None:
        fd = os.open(self.journal.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _append(self, noted: NotedRanges) -> None:
        """When it raises NotPublishedError, the journal is as it was."""
        line = f"{note(noted)}\n".encode()
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
        """Let go of what every reader has told of; what is left sets the next limit."""
        try:
            kept = _needed(self._noted(), self._min_time())
            hidden = self.journal.with_name(f".{self.journal.name}.tmp")
            with open(hidden, "w") as file:
                file.writelines(f"{note(batch)}\n" for batch in kept)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            os.replace(hidden, self.journal)
            self._sync_directory()
            self._prune_above_bytes = max(self._prune_above_bytes, 2 * size)
        except (OSError, LowmarkError) as error:
            self._prune_above_bytes *= 2
            log.warning("front %r: %s is not pruned: %s", self._front.identity, self.journal, error)

    def _release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def _needed(noted: Iterable[NotedRanges], min_time: int) -> list[NotedRanges]:
    """The batches that are not complete, the last one, and those that tell a partition's end."""
    batches = list(noted)
    ends = {partition: batch.number for batch in batches for partition, _, _ in batch.ranges}
    last = {batches[-1].number, *ends.values()}
    return [batch for batch in batches if batch.slot >= min_time or batch.number in last]


def _min_time(target: str | Sequence[str], pipeline: str, segment: str) -> int:
    with Admin(target) as admin:
        state = admin.pipeline(pipeline).state
    return min(each.min_time for each in state.segments if each.segment == segment)
