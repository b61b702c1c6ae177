"""Which names may be given: those that can be printed, whoever prints them wherever.

A name that holds a control character, a line break, half a surrogate pair or a change of direction shows
people something else than it is, and commands terminals. Homes refuse it where it would enter. What is
stored already stays: whoever prints it does so by `printable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNSAFE_IN_UNITS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Units are mostly files that others have named, in any script: of what no terminal shows, joiners and marks
of direction belong there, and so do letters newer than this Python's tables. What embeds or overrides a
direction does not."""
_LINES = {"\n", "\t"}


def unprintable(names: Iterable[str]) -> str | None:
    """The first of some names with a character that cannot be printed; None if all can be."""
    return next((name for name in names if not name.isprintable()), None)


def unprintable_unit(names: Iterable[str]) -> str | None:
    """The same of units, whose names may hold what files are called in any script."""
    return next((name for name in names if _UNSAFE_IN_UNITS.search(name)), None)


def printable(text: str, *, lines: bool = False) -> str:
    """A text as it may be written to a terminal: whatever cannot be printed as its escape, `\\x1b`. lines:
    line breaks and tabs stay, of a text that was put together here out of printable parts."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or (lines and c in _LINES) else ascii(c)[1:-1] for c in text
    )
