"""Marks: a period's completeness, written where the readers of a table look.

A mark is in one place, such as a table or its partition folders. Each period that is complete gets its
marks in all places, then it is given out, then the follower's record says so. Whoever dies in between is
given the period again: so a mark looks first whether the period has been marked, and what readers see is
there once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from tracker.client.errors import LowmarkError
from tracker.consumers.commits import MAX_ATTEMPTS, try_to_commit
from tracker.consumers.periods import Period, PeriodFollower, Periods

NAMES_COMPARED = 10_000
"""How many periods in a row must have names of their own for a template to be taken: of hours, more than
a year's."""

_T = TypeVar("_T")
"""A table, as its library has it."""

_COMPARED_FROM = datetime(2000, 1, 1, tzinfo=UTC)


class MarkError(LowmarkError):
    """A place cannot be marked; says which, why, and what to do."""


class Mark(Protocol):
    """One place that periods are marked in."""

    def mark(self, period: Period, at: datetime | None) -> None:
        """Marks a period, unless it has been marked; durable on return. at: when the tracker announced
        that it is complete, as far as anybody remembers. Raises MarkError, FilesError."""


class TableMark(ABC, Generic[_T]):
    """A mark by a commit of its own in a table that others write, too: whoever commits in between is let
    through, and the table looked at again."""

    def __init__(self, what: str, conflicts: Callable[[], tuple[type[Exception], ...]]) -> None:
        """what: the table, for messages; conflicts: what a commit fails with by another's, or by one that may
        have been this one."""
        self._what, self._conflicts = what, conflicts

    def mark(self, period: Period, at: datetime | None) -> None:
        if not try_to_commit(lambda: self._mark_once(period, at), self._conflicts()):
            raise MarkError(
                f"{self._what}: others committed before each of {MAX_ATTEMPTS} attempts to mark period "
                f"{period.key}; it will be marked by who starts again"
            )

    def _mark_once(self, period: Period, at: datetime | None) -> None:
        """Raises MarkError, and one of the conflicts."""
        table = self._read()
        if self._is_marked(table, period):
            return
        try:
            self._commit(table, period, at)
        except self._conflicts():
            raise
        except Exception as error:
            raise self._failed(error) from error

    @abstractmethod
    def _read(self) -> _T:
        """The table as it is now. Raises MarkError."""

    @abstractmethod
    def _is_marked(self, table: _T, period: Period) -> bool:
        """Whether a period has its mark. Raises MarkError where it cannot get one."""

    @abstractmethod
    def _commit(self, table: _T, period: Period, at: datetime | None) -> None:
        """Marks a period on top of `table`, or raises one of the conflicts."""

    def _failed(self, error: Exception) -> MarkError:
        return MarkError(f"{self._what} cannot be marked: {error}")


def marked(
    follower: PeriodFollower, marks: Sequence[Mark], timeout_s: float | None = None
) -> Iterator[Period]:
    """Each period that is complete, in order, once it is marked in all places; it is done when the next
    one is asked for. Ends as `PeriodFollower.completed` does; raises what that and the marks raise."""
    for period in follower.completed(timeout_s):
        at = follower.announced(period) if marks else None
        for mark in marks:
            mark.mark(period, at)
        yield period
        follower.done(period)


def missing_extra(what: str, missing: ModuleNotFoundError, extra: str = "tables") -> MarkError:
    """The error of one who has not installed what a mark is written with."""
    return MarkError(f"{what} needs {missing.name}: pip install 'lowmark[{extra}]'")


class PeriodNames:
    """Names for the periods of a follower, by a template: `{start:%Y-%m-%d}`, `{end:...}` by strftime (UTC),
    `{slot}` and `{from_slot}`, `{to_slot}`, `{pipeline}`, `{segment}`."""

    def __init__(self, template: str, periods: Periods) -> None:
        """Raises ValueError unless the template names each period apart: what is named after two would
        say of both that they are complete when the first one is."""
        self._template = template
        first = 0
        if periods.slack_ns is not None:
            first = int(_COMPARED_FROM.timestamp()) * 10**9 // periods.slack_ns
        seen: dict[str, Period] = {}
        for index in range(NAMES_COMPARED):
            period = periods.period("", None, periods.first(first) + index * periods.slots)
            if index and periods.slack_ns is not None and period.end is None:
                break  # beyond what datetime holds
            other = seen.setdefault(self.of(period), period)
            if other is not period:
                raise ValueError(
                    f"{template!r} gives one name, {self.of(period)!r}, to the periods from "
                    f"{other.start or other.from_slot} and from {period.start or period.from_slot}; each needs "
                    f"its own: name more of {{start}}, or follow longer periods (--every)"
                )

    def of(self, period: Period) -> str:
        """The name of a period. Raises ValueError if the template has none for it."""
        named = {
            "start": period.start, "end": period.end, "slot": period.from_slot,
            "from_slot": period.from_slot, "to_slot": period.to_slot,
            "pipeline": period.pipeline, "segment": period.segment or "all",
        }  # fmt: skip
        known = {name: value for name, value in named.items() if value is not None}
        try:
            return self._template.format(**known)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._template!r} names nothing for period {period.key} ({error!r}): there are "
                f"{', '.join(f'{{{name}}}' for name in known)}; moments only where slots are times"
            ) from None
