"""Tracking by ranges of offsets, for sources whose partitions number their records.

The record at offset `o` has the ack value `h(o) ^ h(o+1)`, so a range of any length is
`h(begin) ^ h(end)`, and what a producer created in its ranges is cancelled by whatever ranges a query
consumes. A query's ranges stand in Spark's offset log. Which slots they have must be known to whoever
reads them, by the records' own timestamps, say, or by what the producer noted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tracker.core.ack_values import range_value
from tracker.core.model import Cells

Pieces = Iterable[tuple[int, int, int]]
"""Parts of a range: (begin, end, slot), each end the next begin."""


class RangesError(Exception):
    """Offsets cannot be told; names the source and the offsets."""


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets begin <= o < end of a partition, in a segment by its number."""

    segment: int
    partition: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """How a source with partitioned offsets is read.

    segment: the one that its records are in. slots(partition, begin, end): the pieces of a range, with
    the slot of each, in order and without gaps; it is asked when the batch is over, and again after a
    restart. first: where partitions begin (0 if not named). Nested offsets, as Kafka's, make partitions
    `topic/0`.
    """

    segment: str
    slots: Callable[[str, int, int], Pieces]
    first: Mapping[str, int] = field(default_factory=dict)


def partitions(text: str | None, what: str) -> dict[str, int]:
    """The offset of each partition, from an offset's JSON text. Raises RangesError."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RangesError(f"{what}: the offset {text[:200]!r} is not JSON: {error}") from None
    found: dict[str, int] = {}
    _flatten(value, "", found, what)
    return found


def _flatten(value: object, path: str, found: dict[str, int], what: str) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flatten(inner, f"{path}/{name}" if path else str(name), found, what)
    elif isinstance(value, int) and not isinstance(value, bool):
        found[path] = value
    else:
        raise RangesError(
            f"{what}: {value!r} at {path or 'the top'} is no whole number: only offsets that number "
            f"the records of partitions can be tracked as ranges"
        )


def ranges(
    segment: int, source: OffsetRanges, before: str | None, after: str | None, what: str
) -> tuple[Range, ...]:
    """What a batch consumed between two offsets. Raises RangesError where a partition went back."""
    begins, ends = partitions(before, what), partitions(after, what)
    found = []
    for partition, end in sorted(ends.items()):
        begin = begins.get(partition, source.first.get(partition, 0))
        if end < begin:
            raise RangesError(
                f"{what}: partition {partition!r} went back from {begin} to {end}; the source was "
                f"made anew, and its offsets name other records than before"
            )
        if begin < end:
            found.append(Range(segment, partition, begin, end))
    return tuple(found)


def range_cells(source: OffsetRanges, consumed: Iterable[Range]) -> Cells:
    """The cells of ranges, by the slots that the source tells. Raises RangesError."""
    rows = []
    for wanted in consumed:
        at = wanted.begin
        for begin, end, slot in source.slots(wanted.partition, wanted.begin, wanted.end):
            if begin != at or not begin < end <= wanted.end:
                break
            rows.append(
                (wanted.segment, slot, range_value(wanted.partition, begin, end), end - begin)
            )
            at = end
        if at != wanted.end:
            raise RangesError(
                f"the slots told for partition {wanted.partition!r} end at offset {at}, or leave a "
                f"gap there; the batch consumed {wanted.begin} to {wanted.end}"
            )
    return Cells.of(rows)
