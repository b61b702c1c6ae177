"""Ranges of offsets as a front records them: a line for each batch, with its slot.

    7 1234 flights%2F0:40:48 flights%2F1:3:9

is batch 7, under slot 1234: the offsets 40 to 47 of partition `flights/0` and 3 to 8 of `flights/1`.
A reader, whose own batches cut the offsets elsewhere, finds the slots of its ranges in such lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

HIGHEST_OFFSET = 2**63 - 1

_NUMBER = r"(0|-?[1-9][0-9]{0,18})"
_RANGE = re.compile(rf"([A-Za-z0-9_.~%-]*):{_NUMBER}:{_NUMBER}")
_HEAD = re.compile(rf"{_NUMBER} {_NUMBER}")


@dataclass(frozen=True, slots=True)
class NotedRanges:
    """A published batch. number: the front's own, from 0; ranges: (partition, begin, end), each with
    begin < end, a partition once."""

    number: int
    slot: int
    ranges: tuple[tuple[str, int, int], ...]


def note(batch: NotedRanges) -> str:
    """A batch as a line, without its end."""
    ranges = (f"{quote(name, safe='')}:{begin}:{end}" for name, begin, end in batch.ranges)
    return " ".join([str(batch.number), str(batch.slot), *ranges])


def parse_note(line: str) -> NotedRanges:
    """The batch that a line records. Raises ValueError if `note` did not make it."""
    number, _, rest = line.partition(" ")
    slot, _, rest = rest.partition(" ")
    texts = rest.split(" ")
    parts = [_RANGE.fullmatch(text) for text in texts]
    if _HEAD.fullmatch(f"{number} {slot}") is None or not all(parts):
        raise ValueError(f"{line[:200]!r} notes no ranges of offsets")
    ranges = tuple((unquote(p[1]), int(p[2]), int(p[3])) for p in parts if p is not None)
    batch = NotedRanges(int(number), int(slot), ranges)
    if batch.number < 0 or not LOWEST_SLOT <= batch.slot <= HIGHEST_SLOT:
        raise ValueError(f"{line[:200]!r} has a number or slot out of range")
    if any(not begin < end <= HIGHEST_OFFSET for _, begin, end in ranges):
        raise ValueError(f"{line[:200]!r} has a range without offsets, or beyond {HIGHEST_OFFSET}")
    return batch
