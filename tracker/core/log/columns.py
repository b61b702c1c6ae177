"""The cells of many ticks, column by column: as a run has them (rule 3).

What a shard owns of a tick is mostly a cell or two. One by one, such ticks cost an object, a message, a check and
a look-up each, at the home and at each shard; their cells one behind the other are the same four arrays however
many ticks they are of.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tracker.core.log.entries import KeyTick
from tracker.core.model import Cells, NodeKey, Tick, TickContent


@dataclass(slots=True, eq=False)
class TickColumns:
    """Ticks of a pipeline in a run, of each its cells alone: none has names of units, or consumption that came late.

    places: of each its place in the run, from 0 and rising; keys: whose it is, by the place of its key among the run's;
    numbers: its number; created, consumed: the cells of all, in the order of the ticks; created_ends, consumed_ends: of
    each tick, how many of those there are up to its last.
    """

    pipeline: str
    places: tuple[int, ...]
    keys: tuple[int, ...]
    numbers: tuple[int, ...]
    created: Cells
    created_ends: tuple[int, ...]
    consumed: Cells
    consumed_ends: tuple[int, ...]

    def __len__(self) -> int:
        """Of how many ticks they are."""
        return len(self.places)

    def is_possible(self, count: int, keys: int) -> bool:
        """Whether there can be such columns in a run of so many entries and keys, whatever they are of."""
        size = len(self.places)
        lists = self.keys, self.numbers, self.created_ends, self.consumed_ends
        return (
            size > 0
            and all(len(each) == size for each in lists)
            and self.places[0] >= 0
            and self.places[-1] < count
            and all(itertools.starmap(int.__lt__, itertools.pairwise(self.places)))
            and min(self.keys) >= 0
            and max(self.keys) < keys
            and _end(self.created_ends, len(self.created))
            and _end(self.consumed_ends, len(self.consumed))
        )

    def behind(self, place: int) -> TickColumns:
        """Those of the ticks from a place of the run on, as of a run that begins there."""
        first = bisect_left(self.places, place)
        created, created_ends = _behind(self.created, self.created_ends, first)
        consumed, consumed_ends = _behind(self.consumed, self.consumed_ends, first)
        places = tuple([each - place for each in self.places[first:]])
        keys, numbers = self.keys[first:], self.numbers[first:]
        return TickColumns(
            self.pipeline, places, keys, numbers, created, created_ends, consumed, consumed_ends
        )

    def first_numbers(self) -> dict[int, int]:
        """By key the number of its first tick here."""
        return dict(zip(reversed(self.keys), reversed(self.numbers), strict=True))

    def ticks(self, keys: Sequence[NodeKey]) -> Iterator[tuple[int, KeyTick]]:
        """The ticks one by one, each with its place in the run. keys: those of the run."""
        created = _parts(self.created, self.created_ends)
        consumed = _parts(self.consumed, self.consumed_ends)
        for place, key, number, put, taken in zip(
            self.places, self.keys, self.numbers, created, consumed, strict=True
        ):
            content = TickContent(created=put, consumed=taken)
            yield place, KeyTick(Tick(self.pipeline, keys[key], number, content), Cells.empty())


def _end(ends: Sequence[int], size: int) -> bool:
    """Whether these can be the ends of parts that come to so many cells."""
    rise = all(itertools.starmap(int.__le__, itertools.pairwise(ends)))
    return rise and ends[0] >= 0 and ends[-1] == size


def _behind(cells: Cells, ends: tuple[int, ...], first: int) -> tuple[Cells, tuple[int, ...]]:
    """The cells and the ends of the ticks from this one on."""
    skipped = ends[first - 1] if first else 0
    return cells.between(skipped, cells.size), tuple([end - skipped for end in ends[first:]])


def _parts(cells: Cells, ends: Iterable[int]) -> Iterator[Cells]:
    first = 0
    for end in ends:
        yield cells.between(first, end)
        first = end
