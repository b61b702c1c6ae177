"""What a test asserts of a pipeline and of its rows; a failure reads like a report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.client.admin import Admin
from tracker.client.waiting import Outcome, wait_complete
from tracker.testing.hand import When, slot_of_moment

SHOWN_ROWS = 3
"""So many rows of each kind are shown; of the others, how many there are."""


def assert_complete(
    target: str | Sequence[str],
    pipeline: str,
    until: When,
    segment: str | None = None,
    *,
    timeout_s: float = 10.0,
) -> None:
    """Waits until all that was let in before a moment is completely processed, in the whole pipeline or in a segment and
    all that leads to it. Raises AssertionError after `timeout_s` seconds, with what `lowmark explain` shows: what min time
    waits for, and what to do about it."""
    __tracebackhide__ = True
    with Admin(target) as admin:
        slot = slot_of_moment(until, admin.pipeline(pipeline).spec, up=True)
        waited = wait_complete(
            target, pipeline, slot, segment, timeout_s=timeout_s, silent_after_s=None
        )
        if waited.outcome is Outcome.REACHED:
            return
        from tracker.view.explanations import explanation_text

        why = explanation_text(admin.explain(pipeline, segment, at=slot))
    where = f"segment {segment!r} of {pipeline!r}" if segment else f"pipeline {pipeline!r}"
    raise AssertionError(f"{where} is not complete up to {until} after {timeout_s:g} s:\n{why}")


def assert_nothing_lost(expected: Iterable[Any], found: Iterable[Any]) -> None:
    """Each expected row is found once, and no other. Rows are dicts, tuples, or rows of Spark, in any order; their
    columns are compared by name where they have names. Raises AssertionError, which names the rows that are lost, that are
    there more than once, and that nobody expected; TypeError for what gives out anything else than its rows."""
    __tracebackhide__ = True
    for rows in (expected, found):
        if isinstance(rows, Mapping) or hasattr(rows, "columns"):
            raise TypeError(
                f"a {type(rows).__name__} gives out its columns and not its rows: pass those, as by collect() of a "
                f'DataFrame of Spark, to_dict("records") of one of pandas, to_pylist() of a table of Arrow'
            )
    differences = Differences.between(expected, found)
    if differences:
        raise AssertionError(str(differences))


@dataclass(frozen=True)
class Differences:
    """How rows that are there differ from those that should be, each row as text, as often as it is lost or too many."""

    expected: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    strange: tuple[str, ...]
    """Rows that were not expected at all."""

    @classmethod
    def between(cls, expected: Iterable[Any], found: Iterable[Any]) -> Differences:
        wanted, there = (Counter(map(_text, rows)) for rows in (expected, found))
        too_many = there - wanted
        return cls(
            wanted.total(),
            tuple((wanted - there).elements()),
            tuple(row for row in too_many.elements() if row in wanted),
            tuple(row for row in too_many.elements() if row not in wanted),
        )

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.strange)

    def __str__(self) -> str:
        kinds = {"lost": self.lost, "doubled": self.doubled, "not expected": self.strange}
        said = [f"{len(rows)} {kind}: {_some(rows)}" for kind, rows in kinds.items() if rows]
        return f"of {self.expected} rows " + ("; ".join(said) or "each is there once")


def _text(row: Any) -> str:
    """A row such that two rows are equal where their texts are."""
    names = getattr(row, "__fields__", ())
    if names and len({*names}) == len(names):
        row = row.asDict(recursive=True)  # of Spark; of two columns of a name one would be left out
    elif hasattr(row, "_asdict"):
        row = row._asdict()
    if isinstance(row, Mapping):
        row = dict(row)
    return json.dumps(row, sort_keys=True, default=repr, ensure_ascii=False)


def _some(rows: Sequence[str]) -> str:
    more = len(rows) - SHOWN_ROWS
    return ", ".join(rows[:SHOWN_ROWS]) + (f" and {more} more" if more > 0 else "")
