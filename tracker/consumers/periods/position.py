"""Where a consumer is: the slot below which it has done everything for good.

It is kept as a small JSON object, {"of": ..., "next": ..., "generation": ...}, in which the consumer may keep more of its
own: in a file or in a store (`Position`), or in a record of a scheduler's (`to_record`, `from_record`). It is written behind
what was done and never before it. So whoever dies in between does something again, and leaves out nothing. By the generation
the tracker knows a position in a pipeline that was deleted: it is refused where another one has the name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tracker.client.closing import Closing
from tracker.client.subscriber import Subscriber
from tracker.consumers.durable import state_at
from tracker.errors import StateError


class Recorded(NamedTuple):
    """What a record says: the slot at which what is not done begins, in which generation of the pipeline that was heard (None:
    of a record that does not say), and what the consumer has put beside it."""

    next: int
    generation: int | None
    kept: Mapping[str, Any]


def to_record(
    of: str, next_slot: int, generation: int | None, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A position as JSON. of: what it is a position in."""
    return {**(kept or {}), "of": of, "next": next_slot, "generation": generation}


def from_record(found: object, of: str, where: object) -> Recorded | None:
    """What `to_record` has made, None of None. where: it was found, for messages. Raises StateError for anything
    else, and for a position in something else than `of`."""
    if found is None:
        return None
    if (
        not isinstance(found, dict)
        or type(found.get("next")) is not int
        or not isinstance(found.get("generation"), int | None)
        or "of" not in found
    ):
        raise StateError(f"{where} is not a record of a position: {found}; give this one its own")
    if found["of"] != of:
        raise StateError(f"{where} is the record of {found['of']}, not of {of}; give this its own")
    known = ("of", "next", "generation")
    kept = {name: value for name, value in found.items() if name not in known}
    return Recorded(found["next"], found.get("generation"), kept)


class Position(Closing):
    """A consumer's position in a durable record. One process at a time uses a record.

    Invariant: everything below it was done for good, in the pipeline that `subscriber` hears of and in no other one of its
    name. It moves from one end of what was given out to the other.
    """

    def __init__(self, of: str, record: str | os.PathLike[str], subscriber: Subscriber) -> None:
        """record: a path, or in a store. subscriber: by what it hears the position moves; once this was read, it refuses to
        hear of another pipeline than the record's. Raises StateError where there is no way to the store."""
        self._of, self._state, self._subscriber = of, state_at(record), subscriber

    def read(self) -> Recorded | None:
        """None if nothing was ever written. Raises StateError."""
        recorded = from_record(self._state.read(), self._of, self._state.path)
        if recorded is not None:
            self._subscriber.goes_on_since(recorded.generation)
        return recorded

    def begun(self, begin: Callable[[], int]) -> Recorded:
        """As `read`. Where nothing was ever written, the position is what `begin` returns, and written down: so
        that it does not depend on when somebody asks. Raises StateError, OSError."""
        recorded = self.read()
        if recorded is None:
            recorded = Recorded(begin(), self._subscriber.heard_generation, {})
            self.write(recorded.next)
        return recorded

    def write(self, next_slot: int, kept: Mapping[str, Any] | None = None) -> None:
        """Durable on return. Raises StateError, OSError."""
        self._state.write(to_record(self._of, next_slot, self._subscriber.heard_generation, kept))

    def done(
        self, what: str, from_slot: int, to_slot: int, kept: Mapping[str, Any] | None = None
    ) -> None:
        """All from one slot to another was done for good. May be repeated. Raises StateError where it is not what
        comes next, and OSError."""
        recorded = self.read()
        if recorded is not None and recorded.next == to_slot:
            return
        if recorded is None or recorded.next != from_slot:
            at = None if recorded is None else recorded.next
            raise StateError(f"{self._state.path}: {what} is not due: the next begins at slot {at}")
        self.write(to_slot, kept)

    def close(self) -> None:
        self._state.release()

    def __enter__(self) -> Position:
        """Keeps other processes out. Raises StateError where one is in."""
        self._state.hold()
        return self
