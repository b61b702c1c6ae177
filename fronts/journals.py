"""Journals of ranges: a local file with a line for each batch, or in a store a log with a record for each.

A journal is the durable record of a range front, and where readers find the slots of what they read
(`local_tracker/spark/formats/ranges.py`). What lies below min time no reader needs any more; it is let go of when the
journal has become long.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path

from fronts.holds import Hold, LockFile, StoredLog
from tracker.core.model.ranges import NotedRanges, note, parse_note
from tracker.errors import Code, LowmarkError, NotPublishedError, StateError, TrackingError
from tracker.files import STORES, scheme
from tracker.files.local import sync, write_durably

PRUNE_ABOVE_RECORDS = 100
"""The same, of a journal in a store."""

LINE, ENDS = "line", "ends"
"""Of a record in a store: the batch, as a line of a local journal; or how far the partitions had come."""

log = logging.getLogger("lowmark.front")

MinTime = Callable[[], int]


class Journal(ABC):
    """The journal of one front, for the run that has it. where: its location."""

    where: str
    hold: Hold

    @abstractmethod
    def prepare(self) -> None:
        """Makes it if it is not there; removes what a killed run did not write to its end, which was not
        published."""

    @abstractmethod
    def read(self) -> tuple[list[NotedRanges], dict[str, int]]:
        """The batches that it holds, in order, and the end of each partition. Raises StateError where
        it is damaged."""

    @abstractmethod
    def append(self, batch: NotedRanges, timeout_s: float) -> None:
        """Adds a batch durably. When it raises NotPublishedError, the journal is as it was; when
        TrackingError, that is not known, or another run has it."""

    @abstractmethod
    def prune(self, min_time: MinTime, durable: int) -> None:
        """Lets go of what no reader needs any more, if it has become long; what is left sets the next
        limit. durable: the last batch that the tracker has; those behind it stay, though min time may have passed
        them, as where the front was evicted: the next run is to find them."""


def journal_at(text: str, front: str, prune_above_bytes: int) -> Journal:
    """The journal of a front at a path, or in a store. Raises FilesError."""
    where = STORES.location(text)
    if scheme(where):
        return StoredJournal(where, front)
    return JournalFile(Path(where), front, prune_above_bytes)


class JournalFile(Journal):
    """A local or mounted file; its lock is beside it."""

    def __init__(self, path: Path, front: str, prune_above_bytes: int) -> None:
        self.path, self.where, self._front = path, str(path), front
        self.hold = LockFile(path.with_name(f"{path.name}.lock"))
        self._prune_above_bytes = prune_above_bytes

    def prepare(self) -> None:
        with open(self.path, "a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            os.fsync(file.fileno())
        sync(self.path.parent)

    def read(self) -> tuple[list[NotedRanges], dict[str, int]]:
        try:
            batches = [parse_note(line) for line in self.path.read_text().splitlines()]
        except ValueError as error:
            raise StateError(
                f"{self.path} is damaged: {error}; restore it", Code.STATE_ROLLED_BACK
            ) from None
        return batches, _ends(batches)

    def append(self, batch: NotedRanges, timeout_s: float) -> None:
        line = f"{note(batch)}\n".encode()
        try:
            opened = open(self.path, "ab", buffering=0)  # noqa: SIM115 - what fails later is told apart
        except OSError as error:
            raise NotPublishedError(str(error)) from error
        with opened as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{self.path}: the disk took a part of a line only")
            except OSError as error:
                # Readers pass over what is no whole line.
                try:
                    file.truncate(before)
                except OSError as worse:
                    raise self._unsure(worse) from error
                raise NotPublishedError(str(error)) from error
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise self._unsure(error) from error

    def _unsure(self, error: OSError) -> TrackingError:
        return TrackingError(
            f"{self.path} may hold a batch that cannot be taken back ({error}); start "
            f"front {self._front!r} again, which goes by what is there",
            Code.TRACKING_FRONT,
        )

    def prune(self, min_time: MinTime, durable: int) -> None:
        try:
            if self.path.stat().st_size <= self._prune_above_bytes:
                return
            kept = self._needed(self.read()[0], min_time(), durable)
            contents = "".join(f"{note(batch)}\n" for batch in kept).encode()
            write_durably(self.path, contents)
            self._prune_above_bytes = max(self._prune_above_bytes, 2 * len(contents))
        except (OSError, LowmarkError) as error:
            self._prune_above_bytes *= 2
            log.warning("front %r: %s is not pruned: %s", self._front, self.path, error)

    @staticmethod
    def _needed(batches: list[NotedRanges], min_time: int, durable: int) -> list[NotedRanges]:
        """The batches that are not complete, the last one, and those that hold a partition's end."""
        ends = {partition: batch.number for batch in batches for partition, _, _ in batch.ranges}
        last = {batches[-1].number, *ends.values()}
        return [
            batch
            for batch in batches
            if batch.slot >= min_time or batch.number > durable or batch.number in last
        ]


class StoredJournal(Journal):
    """A log in a store. Before it lets go of batches it notes the ends of the partitions, which may be quiet
    for long."""

    hold: StoredLog

    def __init__(self, where: str, front: str) -> None:
        self.where, self._front = where, front
        self.hold = StoredLog(STORES.files(where), where)
        self._prune_above = PRUNE_ABOVE_RECORDS
        self._kept: list[tuple[int, tuple[int, int] | None]] = []
        """The numbers of the records that are there, in order, each with its batch's number and slot, if it is one."""
        self._ends: dict[str, int] = {}

    def prepare(self) -> None:
        """A record is there whole, or not at all."""

    def read(self) -> tuple[list[NotedRanges], dict[str, int]]:
        batches: list[NotedRanges] = []
        self._kept, self._ends = [], {}
        try:
            for record in self.hold.records:
                assert record.value is not None
                batch = parse_note(record.value[LINE]) if LINE in record.value else None
                known = None if batch is None else (batch.number, batch.slot)
                self._kept.append((record.number, known))
                if batch is not None:
                    batches.append(batch)
                    self._ends |= _ends([batch])
                else:
                    self._ends |= record.value.get(ENDS, {})
        except ValueError as error:
            raise StateError(
                f"{self.where} is damaged: {error}; restore it", Code.STATE_ROLLED_BACK
            ) from None
        return batches, dict(self._ends)

    def append(self, batch: NotedRanges, timeout_s: float) -> None:
        number = self.hold.append({LINE: note(batch)}, timeout_s)
        self._kept.append((number, (batch.number, batch.slot)))
        self._ends |= _ends([batch])

    def prune(self, min_time: MinTime, durable: int) -> None:
        if len(self._kept) <= self._prune_above:
            return
        try:
            complete = self._complete(min_time(), durable)
            if complete:
                self._kept.append((self.hold.append({ENDS: self._ends}, 0.0), None))
                self.hold.delete(complete)
                self._kept = self._kept[len(complete) :]
            self._prune_above = max(PRUNE_ABOVE_RECORDS, 2 * len(self._kept))
        except (LowmarkError, OSError) as error:
            self._prune_above *= 2
            log.warning("front %r: %s is not pruned: %s", self._front, self.where, error)

    def _complete(self, min_time: int, durable: int) -> list[int]:
        """The numbers of the records before the last batch that is complete. The tracker has that batch, so nobody asks
        any more where the front had left before it."""
        complete = [
            n for n, b in self._kept if b is not None and b[0] <= durable and b[1] < min_time
        ]
        return [number for number, _ in self._kept if number < max(complete, default=0)]


def _ends(batches: Iterable[NotedRanges]) -> dict[str, int]:
    return {partition: end for batch in batches for partition, _, end in batch.ranges}
