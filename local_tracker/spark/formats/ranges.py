"""Tracking by ranges of offsets, for sources whose partitions number their records.

The record at offset `o` has the ack value `h(o) ^ h(o+1)`, so a range of any length is
`h(begin) ^ h(end)`, and what a producer created in its ranges is cancelled by whatever ranges a query
consumes. A query's ranges stand in Spark's offset log. Which slots they have must be known to whoever
reads them, by the records' own timestamps, say, or by what the producer recorded.
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tracker.core.model import Cells
from tracker.core.model.ack_values import range_value
from tracker.core.model.ranges import HIGHEST_OFFSET, NotedRanges, parse_note
from tracker.errors import Code, UnavailableError
from tracker.files import STORES, AwayError, Chain, Files, FilesError, Stores, scheme

Pieces = Iterable[tuple[int, int, int | None]]
"""Parts of a range: (begin, end, slot), each end the next begin. Where the slot is None the offsets are
nobody's: no record of the pipeline."""


class RangesError(Exception):
    """Offsets are not known; names the source and the offsets."""


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets begin <= o < end of a partition, in a segment by its number. is_first: nothing of the
    partition was read before; then it may be empty."""

    segment: int
    partition: str
    begin: int
    end: int
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """How a source with partitioned offsets is read.

    segment: the one that its records are in. slots(partition, begin, end): the pieces of a range, with
    the slot of each, in order and without gaps; it is asked when the batch is over, and again after a
    restart, and raises UnavailableError where it has to be asked later (`PublishedRanges(...).slots`
    does). first: where partitions begin (0 if not named). Nested offsets, as Kafka's, make partitions
    `topic/0`. only: the names that number records, of an offset that holds other numbers too. within: the
    topic whose partitions these are, of an offset that holds several. begins(partition): from where the
    partition's records are labelled, if that is known; raises as `slots`. from_earliest: the source began
    with the earliest records that there were, so labelled ones before its first offset had been removed.
    """

    segment: str
    slots: Callable[[str, int, int], Pieces]
    first: Mapping[str, int] = field(default_factory=dict)
    only: frozenset[str] | None = None
    within: str | None = None
    begins: Callable[[str], int] | None = None
    from_earliest: bool = False

    def has(self, partition: str) -> bool:
        """Whether a partition of an offset is one of these."""
        if self.within is not None and not partition.startswith(f"{self.within}/"):
            return False
        return self.only is None or partition in self.only


def partitions(text: str | None, what: str) -> dict[str, int]:
    """The offset of each partition, from an offset's JSON text. Raises RangesError."""
    if text is None:
        return {}
    found: dict[str, int] = {}
    try:
        _flatten(json.loads(text), "", found, what)
    except (RecursionError, ValueError) as error:
        raise RangesError(f"{what}: the offset {text[:200]!r} is not JSON: {error}") from None
    return found


def _flatten(value: object, path: str, found: dict[str, int], what: str) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            name.encode()  # raises ValueError for what is no Unicode text
            _flatten(inner, f"{path}/{name}" if path else name, found, what)
    elif type(value) is int and -HIGHEST_OFFSET <= value <= HIGHEST_OFFSET:
        found[path] = value
    else:
        raise RangesError(
            f"{what}: {repr(value)[:200]} at {path[:200] or 'the top'} is no whole number of 64 bits: "
            f"only offsets that number the records of partitions can be tracked as ranges"
        )


def ranges(
    segment: int,
    source: OffsetRanges,
    before: str | None,
    after: str | None,
    what: str,
    *,
    is_first: bool = False,
) -> tuple[Range, ...]:
    """What a batch consumed between two offsets. is_first: it is the first that read from the source.
    Raises RangesError where a partition went back, or is gone."""
    begins, ends = partitions(before, what), partitions(after, what)
    _check_gone(source, begins, ends, what)
    found = []
    for partition, end in sorted(ends.items()):
        if not source.has(partition):
            continue
        begin = begins.get(partition, source.first.get(partition, 0))
        if end < begin:
            raise RangesError(
                f"{what}: partition {partition!r} went back from {begin} to {end}; the source was "
                f"made anew, and its offsets name other records than before"
            )
        begins_here = source.begins is not None and (is_first or partition not in begins)
        if begin < end or begins_here:
            found.append(Range(segment, partition, begin, end, begins_here))
    return tuple(found)


def _check_gone(
    source: OffsetRanges, before: Mapping[str, int], after: Mapping[str, int], what: str
) -> None:
    """Raises RangesError where a partition of a topic is in a batch's offsets no longer: Spark goes on
    without it if it is told to, and nobody will ever read what was labelled there."""
    gone = [p for p in before if p not in after and source.within is not None and source.has(p)]
    if gone:
        raise RangesError(
            f"{what}: partition {gone[0]!r} is gone after offset {before[gone[0]]}: the topic was "
            f"deleted or made anew; what was labelled there and not read stays open"
        )


def range_cells(source: OffsetRanges, consumed: Iterable[Range]) -> Cells:
    """The cells of ranges, by the slots that the source reports. Raises RangesError."""
    rows = []
    for wanted in consumed:
        first = at = _first_offset(source, wanted)
        pieces = source.slots(wanted.partition, first, wanted.end) if first < wanted.end else ()
        for begin, end, slot in pieces:
            if begin != at or not begin < end <= wanted.end:
                break
            if slot is not None:
                value = range_value(wanted.partition, begin, end)
                rows.append((wanted.segment, slot, value, end - begin))
            at = end
        if at != wanted.end:
            raise RangesError(
                f"the slots told for partition {wanted.partition!r} end at offset {at}, or leave a "
                f"gap there; the batch consumed {first} to {wanted.end}"
            )
    return Cells.of(rows)


def _first_offset(source: OffsetRanges, wanted: Range) -> int:
    """Where a range begins for the pipeline: what was labelled before a source's first offset, and removed
    before the source could read it, is accounted for with that. Raises RangesError where a source has
    left out labelled records, for which min time would wait for ever."""
    if not wanted.is_first or source.begins is None:
        return wanted.begin
    labelled = source.begins(wanted.partition)
    if labelled >= wanted.begin or source.from_earliest:
        return min(labelled, wanted.begin)
    raise RangesError(
        f"partition {wanted.partition!r} is labelled from offset {labelled} on, and the query began to "
        f"read at {wanted.begin}: min time would wait for the records between for ever; start the query "
        f"anew, on an empty checkpoint, with startingOffsets=earliest, or at the offset where the labels begin"
    )


class PublishedRanges:
    """What range fronts (`fronts.ranges`) have recorded in their journals, for the readers of the log.
    Thread-safe."""

    def __init__(self, *journals: str, stores: Stores = STORES) -> None:
        """journals: local files, or directories of stores; one that is not there yet has nothing. stores:
        what the program reaches."""
        self._journals = [
            journal_of(stores.files(where), where) for where in map(stores.location, journals)
        ]
        self._lock = threading.Lock()

    def slots(self, partition: str, begin: int, end: int) -> Pieces:
        """The pieces of a range. Raises UnavailableError where the front has not come so far, and
        RangesError where it never published a part of it, or has let go of it."""
        with self._lock:
            for journal in self._journals:
                journal.read_on()
            found = [n for j in self._journals if (n := j.published.get(partition)) is not None]
        return published_pieces(found, partition, begin, end)


def published_pieces(
    found: Sequence[PublishedPieces], partition: str, begin: int, end: int
) -> Pieces:
    """The pieces of a range of a partition, among all that were published of it. Raises as
    `PublishedRanges.slots`."""
    newest = max((each.ends[-1] for each in found), default=None)
    if newest is None or newest < end:
        raise UnavailableError(
            f"offsets up to {end} of partition {partition!r}; published are those up to {newest}",
            Code.UNAVAILABLE_SLOTS,
        )
    pieces = sorted((p for each in found for p in each.pieces(begin, end)), key=lambda p: p[:2])
    at = begin
    for first, last, _ in pieces:
        if first != at:
            break
        at = last
    if at != end:
        raise RangesError(
            f"no front has published offset {at} of partition {partition!r} alone, or its journal "
            f"has let go of it, which is below min time: it was never in the pipeline, or counted "
            f"as consumed; begin behind it (first), or see who else labels the partition"
        )
    return pieces


@dataclass(slots=True)
class PublishedPieces:
    """The published ranges of a partition, in order. A slot is None where a range is nobody's."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    slots: list[int | None] = field(default_factory=list)
    let_go: int = 0
    """How many of them, from the first on, the log has let go of."""
    _asked: int = -HIGHEST_OFFSET

    def add(self, begin: int, end: int, slot: int | None) -> None:
        self.begins.append(begin)
        self.ends.append(end)
        self.slots.append(slot)

    def forget(self) -> None:
        """Forgets what the log has let go of, as far as whoever reads the partition has come: nobody asks for it."""
        count = min(self.let_go, bisect_right(self.ends, self._asked))
        self.let_go -= count
        for column in (self.begins, self.ends, self.slots):
            del column[:count]

    def pieces(self, begin: int, end: int) -> list[tuple[int, int, int | None]]:
        self._asked = begin
        first = bisect_right(self.ends, begin)
        last = bisect_left(self.begins, end)
        return [
            (max(begin, self.begins[i]), min(end, self.ends[i]), self.slots[i])
            for i in range(first, last)
        ]


class PublishedRecords:
    """The published ranges of a log of numbered records, by partition, as long as a reader may ask for them."""

    def __init__(self) -> None:
        self.published: dict[str, PublishedPieces] = {}
        self._records = deque[tuple[int, list[str]]]()
        """The numbers of the records, in order, and their partitions."""

    def add(self, number: int, ranges: Sequence[tuple[str, int, int]], slot: int | None) -> None:
        _publish(self.published, ranges, slot)
        self._records.append((number, [partition for partition, _, _ in ranges]))

    def forget(self, there: Container[int]) -> None:
        """Forgets what the log has let go of, from the first record on, and the reader of its partition has passed."""
        while self._records and self._records[0][0] not in there:
            for partition in self._records.popleft()[1]:
                self.published[partition].let_go += 1
        for partition, pieces in [*self.published.items()]:
            pieces.forget()
            if not pieces.ends:
                del self.published[partition]


class Journal(ABC):
    """What a front's journal holds, by partition. ends: up to where it held a partition when it let go of batches."""

    published: dict[str, PublishedPieces]
    ends: dict[str, int]

    def begin(self, partition: str) -> int | None:
        """From where on it holds a partition: it lets go of what is complete, the oldest first. None if it knows
        nothing of it."""
        held = self.published.get(partition)
        return self.ends.get(partition) if held is None else held.begins[0]

    @abstractmethod
    def read_on(self) -> None:
        """Reads what it has more than the last time. Raises RangesError where it is damaged, AwayError."""


def journal_of(files: Files, where: str) -> Journal:
    """The journal at a location among files."""
    return StoredJournal(files, where) if scheme(where) else JournalFile(where)


class StoredJournal(Journal):
    """A log in a store: a look costs a listing, and each new batch is read once."""

    def __init__(self, files: Files, where: str) -> None:
        self._records = PublishedRecords()
        self.published, self.ends = self._records.published, {}
        self._where, self._chain, self._read = where, Chain(files, where), 0

    def read_on(self) -> None:
        try:
            there = self._chain.numbers()
            records = self._chain.read(number for number in there if number > self._read)
        except AwayError:
            raise
        except FilesError as error:
            raise RangesError(str(error)) from None
        self._records.forget(set(there))
        for record in records:
            if record.value is not None and "line" in record.value:
                batch = _noted(str(record.value["line"]), self._where)
                self._records.add(record.number, batch.ranges, batch.slot)
            self.ends |= (record.value or {}).get("ends", {})
            self._read = record.number


class JournalFile(Journal):
    """A local or mounted file; it is read anew when it was replaced."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.published, self.ends = {}, {}
        self._inode: int | None = None
        self._read_bytes = 0

    def read_on(self) -> None:
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._read_bytes:
                    self.published, self._inode, self._read_bytes = {}, found.st_ino, 0
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")  # a line may be half written
                if whole:
                    _sync(file)  # its front may not have yet, and the machine crash
        except FileNotFoundError:
            return
        self._read_bytes += len(whole) + len(newline)
        for line in whole.split(b"\n"):
            if line:
                batch = _noted(line.decode(errors="replace"), self.path)
                _publish(self.published, batch.ranges, batch.slot)


def _sync(file: BinaryIO) -> None:
    try:
        os.fsync(file.fileno())
    except OSError as error:
        raise AwayError(f"{file.name} cannot be made durable: {error}") from error


def _noted(line: str, where: str) -> NotedRanges:
    """The batch that a line records. Raises RangesError where it records none."""
    try:
        return parse_note(line)
    except ValueError as error:
        raise RangesError(f"{where} is damaged: {error}") from None


def _publish(
    published: dict[str, PublishedPieces],
    ranges: Iterable[tuple[str, int, int]],
    slot: int | None,
) -> None:
    for partition, begin, end in ranges:
        published.setdefault(partition, PublishedPieces()).add(begin, end, slot)
