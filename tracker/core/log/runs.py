"""Runs: ticks of a home log that follow one another, as a shard that owns little of them is told (rule 3)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from tracker.core.log.columns import TickColumns
from tracker.core.log.entries import Entry, GroupKnown, KeyTick, Placed
from tracker.core.log.steps import MoveBegun, MoveEnded, MoveReady
from tracker.core.model import Heartbeat, NodeKey
from tracker.core.model.levels import MOVES, OLDEST_LEVEL, RUNS

MAX_ENTRIES_PER_RUN = 65_536


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """What the ticks of a key in a run come to: the number of the last one, and of each front the furthest
    promise. Touched slots it has none: what touches a slot is a part."""

    pipeline: str
    key: NodeKey
    number: int
    heartbeats: tuple[Heartbeat, ...] = ()


@dataclass(slots=True, eq=False)
class TickRun:
    """The next `count` entries of a home log, all of them ticks by which no front joins or leaves.

    keys: what they come to, of each key that has one; columns: by pipeline those that have cells for the receiver,
    and nothing else; parts: those that have names of units for it, or late consumption, each with its place in the run, from
    0 and rising, and with what the receiver owns of it alone. Applied whole, it does what its entries do one after the
    other.
    """

    count: int
    keys: tuple[KeyProgress, ...]
    columns: tuple[TickColumns, ...] = ()
    parts: tuple[tuple[int, KeyTick], ...] = ()

    def without(self, first: int) -> TickRun:
        """What is left of it behind its first entries, which the receiver has: fewer than all. What the keys
        come to stays, since what was counted before changes nothing."""
        rest = [columns.behind(first) for columns in self.columns if columns.places[-1] >= first]
        return TickRun(
            self.count - first,
            self.keys,
            tuple(rest),
            tuple((place - first, part) for place, part in self.parts if place >= first),
        )

    @property
    def is_possible(self) -> bool:
        """Whether there can be such a run, whatever it is of."""
        places = [place for place, _ in self.parts]
        return (
            1 <= self.count <= MAX_ENTRIES_PER_RUN
            and 1 <= len(self.keys) <= self.count
            and len(self.columns) <= len(self.keys)
            and all(columns.is_possible(self.count, len(self.keys)) for columns in self.columns)
            and all(0 <= place < self.count for place in places)
            and all(one < other for one, other in itertools.pairwise(places))
        )

    def ticks(self) -> Iterator[tuple[int, KeyTick]]:
        """What the receiver owns of its ticks, one by one in their order, each with its place in the run."""
        keys = [progress.key for progress in self.keys]
        columns = [columns.ticks(keys) for columns in self.columns]
        return heapq.merge(self.parts, *columns, key=itemgetter(0))

    @property
    def pipelines(self) -> dict[str, None]:
        """The names of the pipelines whose ticks it has."""
        return dict.fromkeys(each.pipeline for each in self.keys)


Told = Entry | TickRun
"""What a home tells another shard of its log: an entry, or many at once."""


def level_of(told: Told) -> int:
    """The feature level from which on it may be recorded and sent. That of `FeatureLevelRaised` is the oldest: it is what
    raises it."""
    return _LEVELS.get(type(told), OLDEST_LEVEL)


_LEVELS: dict[type, int] = {
    TickRun: RUNS, Placed: MOVES, GroupKnown: MOVES, MoveBegun: MOVES, MoveReady: MOVES, MoveEnded: MOVES,
}  # fmt: skip


def count_of(told: Told) -> int:
    """Of how many entries it is."""
    return told.count if type(told) is TickRun else 1


def numbered(first: int, told: Iterable[Told]) -> Iterator[tuple[int, Told]]:
    """Each with the number of its first entry, where those of all begin at `first`."""
    for each in told:
        yield first, each
        first += count_of(each)


def last_of(first: int, told: Iterable[Told]) -> int:
    """The number of the last entry, where those of all begin at `first`."""
    return first - 1 + sum(map(count_of, told))


def behind(told: tuple[Told, ...], skipped: int) -> tuple[Told, ...]:
    """What is left behind so many entries: of a run that they end in, its rest."""
    for index, each in enumerate(told):
        count = count_of(each)
        if skipped < count:
            rest = told[index:]
            return (each.without(skipped), *rest[1:]) if skipped and type(each) is TickRun else rest
        skipped -= count
    return ()
