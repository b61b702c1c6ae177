"""What the state of a query holds, batch by batch: which slots, and until which watermark.

Each batch that consumed something leaves an *entry* in each segment that the query creates in: the slot that
what it consumed allows there, held until the watermark by which all that it absorbed is out. The tracker keeps
an entry as a hold of the query's node (rule 11), whose name says the bound, and nobody else keeps any of it:
after a restart they are found again by their names.

An entry that another one covers, whose slot is no higher and whose bound is no lower, is not kept: it would
change nothing. So of one segment, those of higher slots have higher bounds, and few are left where bounds fall
together, as those of windows do. Where more are left than `MAX_ENTRIES` their bounds are rounded up, to a grid
that is as coarse as it must be: that holds for longer, never for less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tracker.client.state_names import UNKNOWN, UNSEEN, Bound, Rows, batch_of, bound_of, name_of
from tracker.core.model import HeldSlot, HoldMove
from tracker.core.model.slots import FOREVER

MAX_ENTRIES = 256
"""Of one query at one time, in all segments."""
MAX_SEGMENTS = 42
"""That a query with state creates in: each has room for some entries of each kind."""

_Key = tuple[int, Bound]


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a committed batch. over_ms: entries of bounds up to this are over, those of the batch
    itself as well. bound_ms: the watermark by which all that it absorbed is out, or why that is not known.
    earlier_ms: the same of all that was absorbed before it and was `UNKNOWN`; None if it still is. left_ms: what
    is left in the state after the batch was all absorbed with event times above this, so that entries of `Rows`
    up to it are over; None where nobody has looked. is_empty: the state is, so that all entries are over.
    in_state_ms: the watermark by which all is out that is in the state after the batch, whenever it was absorbed, so
    that it is the bound of all that have none; None where nobody has looked."""

    over_ms: int
    bound_ms: Bound
    earlier_ms: int | Rows | None = None
    left_ms: int | None = None
    is_empty: bool = False
    in_state_ms: int | None = None

    def known(self, bound: Bound) -> Bound:
        """What a bound is by what is known now."""
        if bound == UNKNOWN and self.earlier_ms is not None:
            return self.earlier_ms
        if bound in (UNKNOWN, UNSEEN) and self.in_state_ms is not None:
            return self.in_state_ms
        return bound

    def is_over(self, bound: Bound) -> bool:
        if self.is_empty:
            return True
        if isinstance(bound, Rows):
            return self.left_ms is not None and bound.up_to_ms <= self.left_ms
        return isinstance(bound, int) and bound <= self.over_ms


@dataclass(frozen=True, slots=True)
class Entry:
    slot: int
    name: str
    """Of the hold."""


class Entries:
    """The entries of a query as they are after one of its batches. Never changed: each batch makes new ones."""

    def __init__(self, kept: Mapping[_Key, Entry], most: int = MAX_ENTRIES) -> None:
        """kept: by segment number and bound. most: that there may be."""
        self._kept, self._most = dict(kept), most

    @classmethod
    def found(cls, holds: Iterable[HeldSlot], most: int = MAX_ENTRIES) -> Entries:
        """Those of a node, by what it holds: a name that is not of here keeps its slot until all is let go
        of, but for what is held for a single batch."""
        kept: dict[_Key, Entry] = {}
        for held in (each for each in holds if batch_of(each.name) is None):
            bound = bound_of(held.name)
            key: _Key = (held.segment, held.name if bound is None else bound)
            if key in kept:  # nobody makes two of one bound
                key = held.segment, held.name
            kept[key] = Entry(held.slot, held.name)
        return cls(kept, most)

    def __len__(self) -> int:
        return len(self._kept)

    def lowest(self) -> dict[int, int]:
        """The lowest slot that is held, by segment number."""
        lowest: dict[int, int] = {}
        for (segment, _), entry in self._kept.items():
            lowest[segment] = min(entry.slot, lowest.get(segment, entry.slot))
        return lowest

    def bounds(self) -> list[tuple[int, Bound, int]]:
        """Segment number, bound and slot of each."""
        return [(segment, bound, entry.slot) for (segment, bound), entry in self._kept.items()]

    def labels(self, slots: Mapping[int, int]) -> dict[int, int]:
        """The slots under which a batch creates, by segment number, that consumed what allows `slots`: some of
        what it emits may be of any entry that there is before it."""
        labels = self.lowest()
        for segment, slot in slots.items():
            labels[segment] = min(slot, labels.get(segment, slot))
        return labels

    def after(
        self,
        slots: Mapping[int, int],
        told: Told,
        others: Iterable[tuple[Bound, Mapping[int, int]]] = (),
    ) -> tuple[Entries, tuple[HoldMove, ...]]:
        """The entries after a batch, and what its tick does to holds. slots: what it consumed allows, in the
        segments that it creates in; empty where it consumed nothing. others: the same of parts of what it consumed
        whose bounds are known apart."""
        wanted: dict[_Key, int] = {}

        def add(segment: int, bound: Bound, slot: int) -> None:
            if told.is_over(bound):
                return
            wanted[segment, bound] = min(slot, wanted.get((segment, bound), slot))

        for (segment, bound), entry in self._kept.items():
            add(segment, told.known(bound), entry.slot)
        for bound, allowed in ((told.bound_ms, slots), *others):
            for segment, slot in allowed.items():
                add(segment, told.known(bound), slot)
        return self._changed(_bounded(_uncovered(wanted), self._most))

    def later(
        self, by_ms: int, rows_out_ms: Callable[[int], int] | None = None
    ) -> tuple[HoldMove, ...]:
        """What moves all bounds that are known further off, where the query has got a plan that keeps rows for
        longer. rows_out_ms: where by the new plan nobody looks into the state, the watermark by which all is out
        that was absorbed with event times up to one, in ms since 1970; else entries of `Rows` stay."""
        moved: dict[_Key, int] = {}
        for (segment, bound), entry in self._kept.items():
            if isinstance(bound, int):
                bound += by_ms
            elif isinstance(bound, Rows) and rows_out_ms is not None:
                bound = rows_out_ms(bound.up_to_ms)
            moved[segment, bound] = min(entry.slot, moved.get((segment, bound), entry.slot))
        return self._changed(_uncovered(moved))[1]

    def in_time(self, min_times: Mapping[int, int]) -> tuple[Entries, tuple[HoldMove, ...]]:
        """Those that min time has not passed, and what lets go of the others, which hold nothing: what they stand
        for had come too late. min_times: by segment number."""
        kept = {key: entry for key, entry in self._kept.items() if entry.slot >= min_times[key[0]]}
        return Entries(kept, self._most), _moves(self._kept, kept)

    def same(self, after: Entries) -> tuple[HoldMove, ...]:
        """What says again that the entries that are there still, after a batch, stand where they stood."""
        names = {entry.name for entry in after._kept.values()}
        return tuple(
            HoldMove(entry.name, segment, entry.slot)
            for (segment, _), entry in self._kept.items()
            if entry.name in names
        )

    def emptied(self) -> tuple[HoldMove, ...]:
        """What lets go of all."""
        return _moves(self._kept, {})

    def _changed(self, wanted: Mapping[_Key, int]) -> tuple[Entries, tuple[HoldMove, ...]]:
        kept: dict[_Key, Entry] = {}
        for key, slot in wanted.items():
            before = self._kept.get(key)
            if before is None or before.slot != slot:
                before = Entry(slot, name_of(*key, None if before is None else before.name))
            kept[key] = before
        return Entries(kept, self._most), _moves(self._kept, kept)

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        names = [entry.name for entry in self._kept.values()]
        assert len(set(names)) == len(names), "two entries share a hold"
        assert len(names) <= self._most, f"{len(names)} entries, the limit is {self._most}"
        for (segment, bound), entry in self._kept.items():
            assert bound_of(entry.name) in (bound, None), (bound, entry)
            for (other, later), upper in self._kept.items():
                if other == segment and _is_later(later, bound):
                    assert upper.slot > entry.slot, (entry, upper)


def _moves(before: Mapping[_Key, Entry], after: Mapping[_Key, Entry]) -> tuple[HoldMove, ...]:
    """From some entries to those after them. A hold cannot move down: where an entry's slot is lower than it was,
    its hold changes places with another, in one step."""
    known = {entry.name for entry in before.values()}
    names = {entry.name for entry in after.values()}
    begun = [
        HoldMove(entry.name, segment, entry.slot)
        for (segment, _), entry in after.items()
        if entry.name not in known
    ]
    released = [
        HoldMove(entry.name, segment, FOREVER)
        for (segment, _), entry in before.items()
        if entry.name not in names
    ]
    return (*begun, *released)


def _is_later(one: Bound, other: Bound) -> bool:
    """Whether an entry of one bound is over no sooner than one of the other, and they differ."""
    if isinstance(one, Rows):
        return isinstance(other, Rows) and one > other
    return isinstance(one, int) and isinstance(other, int) and one > other


def _uncovered(wanted: Mapping[_Key, int]) -> dict[_Key, int]:
    """Without those that others cover. One of an unknown bound covers nothing: it may be over first; nor does
    one of rows cover one of a watermark."""
    kept = {key: slot for key, slot in wanted.items() if isinstance(key[1], str)}
    lowest: dict[tuple[int, bool], int] = {}
    bounded = [
        (bound.up_to_ms if isinstance(bound, Rows) else bound, (segment, bound), slot)
        for (segment, bound), slot in wanted.items()
        if not isinstance(bound, str)
    ]
    for _, key, slot in sorted(bounded, key=lambda item: -item[0]):
        kind = key[0], isinstance(key[1], Rows)
        if slot < lowest.get(kind, FOREVER):
            kept[key] = lowest[kind] = slot
    return kept


def _bounded(wanted: dict[_Key, int], most: int) -> dict[_Key, int]:
    """At most so many, bounds rounded up where there are more: then to half as many, so that there is room
    again for a while."""
    if len(wanted) <= most:
        return wanted
    others = sum(isinstance(bound, str) for _, bound in wanted)
    kinds = len({(segment, type(bound)) for segment, bound in wanted if not isinstance(bound, str)})
    room = max((most - others) // 2, 2 * kinds)  # of each, those before 1970 and the others
    grid_ms = 1
    while len(rounded := _rounded(wanted, grid_ms)) - others > room:
        grid_ms *= 2
    return rounded


def _rounded(wanted: Mapping[_Key, int], grid_ms: int) -> dict[_Key, int]:
    rounded: dict[_Key, int] = {}
    for (segment, bound), slot in wanted.items():
        if isinstance(bound, Rows):
            bound = Rows(_up(bound.up_to_ms, grid_ms))
        elif isinstance(bound, int):
            bound = _up(bound, grid_ms)
        rounded[segment, bound] = min(slot, rounded.get((segment, bound), slot))
    return rounded


def _up(time_ms: int, grid_ms: int) -> int:
    return -(-time_ms // grid_ms) * grid_ms
