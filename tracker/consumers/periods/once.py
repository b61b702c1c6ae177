"""What is done for a period that is complete, and how it is found done after a crash: the one interface of both.

An action leaves something behind where it acts: a file, a commit, a tag, an id that a receiver knows. There it is
looked for before the action is done. Whoever dies behind it and before its position is written finds it so, and goes
on; nobody has to remember what it was about to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from tracker.consumers.commits import MAX_ATTEMPTS, try_to_commit
from tracker.consumers.periods.cut import Period
from tracker.errors import Code, LowmarkError, StateError, UnavailableError


class ConflictError(LowmarkError):
    """What an action has looked at is not as it was: somebody else came in between. Nothing was done, or it is not
    known, which looking again tells."""


class Action(Protocol):
    """What is done once for each period. One thread uses it, for one period after the other."""

    @property
    def name(self) -> str:
        """What it is and where, for messages; without a password."""

    def is_done(self, period: Period) -> bool:
        """Whether it was done for the period, by what it has left behind. Raises StateError, FilesError.

        Where that cannot be looked up it is never done: then it is done again after a crash, under the period's
        key, by which whoever takes it twice knows it.
        """

    def do(self, period: Period, at: datetime | None) -> None:
        """Does it, durable on return, on top of what `is_done` has just looked at. at: when the tracker announced
        that the period is complete, as far as anybody remembers. Raises ConflictError, after which `is_done` is
        asked again; StateError, UnavailableError, FilesError."""


class Call:
    """A function that is called with each period: again, where somebody dies behind it."""

    def __init__(self, function: Callable[[Period], object]) -> None:
        self._function, self.name = function, repr(function)

    def is_done(self, period: Period) -> bool:
        return False

    def do(self, period: Period, at: datetime | None) -> None:
        self._function(period)


def do_once(action: Action, period: Period, at: datetime | None) -> None:
    """Does it for a period, unless it is found done. Raises as the action does, and UnavailableError where others came in
    between each of MAX_ATTEMPTS times."""

    def attempt() -> None:
        if not action.is_done(period):
            action.do(period, at)

    if not try_to_commit(attempt, (ConflictError,)):
        raise UnavailableError(
            f"{action.name}: others came before each of {MAX_ATTEMPTS} attempts at period {period.key}; it is "
            "tried again by who starts again",
            Code.UNAVAILABLE_RECEIVER,
        )


@contextmanager
def committing(name: str, *conflicts: type[Exception]) -> Iterator[None]:
    """Within, a library looks at a table or commits to it: what it raises becomes ConflictError or StateError. name:
    the action's."""
    try:
        yield
    except conflicts as error:
        raise ConflictError(f"{name}: {error}") from error
    except Exception as error:
        raise StateError(f"{name} cannot be marked: {error}", Code.STATE_RECEIVER) from error


def needs_extra(what: str, missing: ModuleNotFoundError, extra: str = "tables") -> StateError:
    """The error of one who has not installed what an action is done with."""
    return StateError(
        f"{what} needs {missing.name}: pip install 'lowmark[{extra}]'", Code.STATE_EXTRA
    )
