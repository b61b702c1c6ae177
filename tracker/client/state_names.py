"""The names of the holds of a query: those that stand for rows in its state say until when they wait; others, for which
batch they were begun that read nothing.

To the protocol a name is a name. Whoever makes such holds finds them again by it, and whoever explains them reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN = "unknown"
"""The watermark told nothing yet of the event times that were absorbed; that of a later batch will."""
UNSEEN = "unseen"
"""The watermark will never tell: Spark found the batch in its sink, and did not evaluate it again."""


@dataclass(frozen=True, order=True, slots=True)
class Rows:
    """No watermark says when all is out that was absorbed with event times up to one, in ms since 1970: what
    is in the state itself does."""

    up_to_ms: int

    def __str__(self) -> str:
        return f"rows{self.up_to_ms}"


Bound = int | Rows | str
"""A watermark, in ms since 1970; or `Rows`; or why neither is known: `UNKNOWN`, `UNSEEN`, or another's name for
it."""

_BATCH = re.compile(r"batch:(\d{1,18}):\d{1,9}")
_NAME = re.compile(rf"state:\d{{1,9}}:(rows)?(-?\d{{1,25}}|{UNKNOWN}|{UNSEEN})(:2)?")


def name_of(segment: int, bound: Bound, instead_of: str | None = None) -> str:
    """Of the hold in a segment, by its number, of a bound; another one where it takes the place of one of that
    bound."""
    name = f"state:{segment}:{bound}"
    return f"{name}:2" if instead_of == name else name


def bound_of(name: str) -> Bound | None:
    """The bound that a name says; None if it is of no such hold."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match[2] in (UNKNOWN, UNSEEN):
        return None if match[1] else match[2]
    return Rows(int(match[2])) if match[1] else int(match[2])


def batch_name(batch: int, segment: int) -> str:
    """Of the hold in a segment, by its number, under which a batch creates what comes of nothing that it has read."""
    return f"batch:{batch}:{segment}"


def batch_of(name: str) -> int | None:
    """The batch that a name says; None if it is of no such hold."""
    match = _BATCH.fullmatch(name)
    return None if match is None else int(match[1])
