"""What a sink in order promises: all rows, each once, by (slot, key), and none before min time has passed it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from tests.check.history import History

Violations = Iterator[str]


def rows_lost(history: History) -> Violations:
    """Every row that went in is in the sink, with the slot and key that it had."""
    there = {row.name: row for row in history.rows_out}
    for row in history.rows_in:
        found = there.get(row.name)
        if found is None:
            yield f"lost: row {row.name!r} of slot {row.slot} is not in the sink"
        elif (found.slot, found.key) != (row.slot, row.key):
            yield (
                f"changed: row {row.name!r} had slot {row.slot} and key {row.key!r}, and has {found.slot} "
                f"and {found.key!r} in the sink"
            )


def rows_once(history: History) -> Violations:
    """No row is in the sink twice, and none that did not go in."""
    known = {row.name for row in history.rows_in}
    for name, times in Counter(row.name for row in history.rows_out).items():
        if name not in known:
            yield f"invented: row {name!r} is in the sink, and did not go in"
        if times > 1:
            yield f"twice: row {name!r} is in the sink {times} times"


def rows_in_order(history: History) -> Violations:
    """The sink's own order is that of (slot, key)."""
    for before, row in pairwise(history.rows_out):
        if (row.slot, row.key) < (before.slot, before.key):
            yield (
                f"misplaced: row {row.name!r} of slot {row.slot} and key {row.key!r} comes behind "
                f"{before.name!r} of slot {before.slot} and key {before.key!r}"
            )


def rows_in_time(history: History) -> Violations:
    """Whatever the sink has committed at a moment, somebody had heard by then that min time has passed it."""
    heard = [each for each in history.heard if each.segment == history.released_by]
    moments = [each.at_ns for each in heard]
    highest = list(accumulate((each.min_time for each in heard), max))
    for row in history.rows_out:
        place = bisect_right(moments, row.at_ns)
        known = highest[place - 1] if place else None
        if known is None or row.slot >= known:
            yield (
                f"early: row {row.name!r} of slot {row.slot} was in the sink at {row.at_ns}, when "
                f"{'no min time' if known is None else f'min time {known}'} had been heard"
            )


def rows_vacuous(history: History) -> Violations:
    """A run in which nothing happened, or nothing had to be put in order, proves nothing."""
    if not history.rows_in:
        yield "nothing to check: no row went in"
    if not any(row.slot < before.slot for before, row in pairwise(history.rows_in)):
        yield "nothing to check: the rows went in in order"


ROW_RULES: tuple[Callable[[History], Violations], ...] = (
    rows_lost,
    rows_once,
    rows_in_order,
    rows_in_time,
    rows_vacuous,
)
