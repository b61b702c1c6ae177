"""What a barrier asks of a sink: to hold its rows and how far they go in one transaction, of one writer.

A position is written with the rows that it is behind, all or nothing, so whoever is killed at any moment finds
out from the sink alone what is in it. Whoever opens a sink for a barrier keeps out whoever had it open before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tracker.consumers.reorder import Released
from tracker.errors import Code, FencedError, StateError

MAX_NAME_CHARACTERS = 100
"""Of a barrier's name, which sinks keep as a key, a transactional id and the like."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Position:
    """How far a barrier's rows go in a sink.

    buffer: the id of the reorder buffer that gave the positions out; next: how many rows are written, which is
    the position of the first that is not; slot, key: of the last row that is written.
    """

    buffer: str
    next: int
    slot: int
    key: str


class OrderedSink(Protocol):
    """Where a barrier writes. One thread uses it.

    The rows of one barrier come in order, without a gap, and each once; the sink keeps them so.
    """

    interval_ms: float
    """How long a barrier that has written all that was complete waits at least before it writes again: 0 where a
    write costs the readers nothing."""

    @property
    def name(self) -> str:
        """What it is and where, for messages; without a password."""

    def open(self, barrier: str, buffer: str) -> Position | None:
        """Takes the sink for the barrier of that name: whoever had it open before, in this process or
        another, writes nothing any more, and what it had begun is in the sink as a whole or not at all.
        Returns the last position that the sink holds, None if it has nothing of that barrier.

        May be called again, after UnavailableError or `close`. Raises StateError, with nobody kept out,
        where the sink holds a position of another buffer; FencedError where this one was open before and
        another has opened it since; UnavailableError.
        """

    def write(self, rows: Sequence[Released], position: Position) -> None:
        """Appends rows, in order, and sets the position behind them, all or nothing; durable on return.
        There is at least one row; the first has the position that the sink is at.

        Raises UnavailableError, after which `open` tells whether they are written; FencedError and
        StateError, with which they are not.
        """

    def close(self) -> None:
        """Lets go of connections. May be repeated; an open sink that is closed is opened anew."""


def check_name(barrier: str) -> None:
    """Raises ValueError for a name that a sink could not keep."""
    if len(barrier) > MAX_NAME_CHARACTERS or _NAME.fullmatch(barrier) is None:
        raise ValueError(
            f"barrier {barrier!r}: a name has 1 to {MAX_NAME_CHARACTERS} letters, digits, dots, dashes and "
            "underscores, and begins with a letter or digit"
        )


def check_buffer(sink: str, barrier: str, held: Position | None, buffer: str) -> None:
    """Raises StateError where a sink holds a position that another buffer gave out."""
    if held is not None and held.buffer != buffer:
        raise StateError(
            f"{sink} has {held.next} rows of barrier {barrier!r} by the buffer {held.buffer}, and this one is "
            f"{buffer}: its positions mean other rows; bring back the buffer, or give this barrier another name "
            "or another sink",
            Code.STATE_SINK,
        )


def check_epoch(sink: str, barrier: str, found: int, own: int | None) -> None:
    """Raises FencedError where a sink, which this writer had opened as its `own`th, has another epoch now. own:
    None if it has not opened it yet."""
    if own is not None and found != own:
        raise FencedError(
            f"{sink}: barrier {barrier!r} was opened by another writer (epoch {found}, this one's is {own}); run "
            "one at a time",
            code=Code.FENCED_SINK,
        )


def epoch_and_position(row: Sequence[Any] | None) -> tuple[int, Position | None]:
    """Of a table with a row for each barrier, of epoch, buffer, next, slot and key: the epoch of the newest writer,
    0 before the first, and the position."""
    if row is None:
        return 0, None
    epoch, buffer, *rest = row
    return epoch, Position(buffer, *rest) if rest[0] else None


def check_write(held: Position | None, rows: Sequence[Released], position: Position) -> None:
    """Raises ValueError for rows that do not go on where the sink is, or are not all there up to the position."""
    begin = 0 if held is None else held.next
    places = [row.position for row in rows]
    if not rows or places != list(range(begin, position.next)):
        raise ValueError(
            f"{len(rows)} rows from position {places[:1]} on, up to {position.next}, do not go on at {begin}"
        )
