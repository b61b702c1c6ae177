"""What a barrier asks of a sink: to hold its rows and how far they go in one transaction, of one writer.

A position is written with the rows that it is behind, all or nothing, so whoever is killed at any moment finds
out from the sink alone what is in it. Whoever opens a sink for a barrier keeps out whoever had it open before.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tracker.consumers.reorder import Released
from tracker.errors import Code, FencedError, LowmarkError, StateError, UnavailableError

MAX_NAME_CHARACTERS = 100
"""Of a barrier's name, which sinks keep as a key, a transactional id and the like."""
_CODES = (Code.UNAVAILABLE_SINK, Code.STATE_SINK, Code.FENCED_SINK)
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


class OrderedSink(ABC):
    """Where a barrier writes. One thread uses it.

    The rows of one barrier come in order, without a gap, and each once; the sink keeps them so. A sink of another kind
    is a subclass with `take`, `append`, `let_go` and `failed`. What these raise closes the sink.
    """

    interval_ms: float = 0.0
    """How long a barrier that has written all that was complete waits at least before it writes again: 0 where a
    write costs the readers nothing."""

    def __init__(self, name: str) -> None:
        """name: what it is and where, for messages; without a password."""
        self.name, self.barrier = name, ""
        self._held: Position | None = None
        self.writer = secrets.randbits(62)
        """This one's own number, which a sink keeps as that of who has opened it last."""
        self._is_open = self._was_opened = False

    def open(self, barrier: str, buffer: str) -> Position | None:
        """Takes the sink for the barrier of that name: whoever had it open before, in this process or
        another, writes nothing any more, and what it had begun is in the sink as a whole or not at all.
        Returns the last position that the sink holds, None if it has nothing of that barrier.

        May be called again, after UnavailableError or `close`. Raises StateError, with nobody kept out,
        where the sink holds a position of another buffer; FencedError where this one was open before and
        another has opened it since; UnavailableError.
        """
        check_name(barrier)
        self.close()
        self.barrier = barrier
        with self._answered():
            self._held = self.take(buffer)
        self._is_open = self._was_opened = True
        return self._held

    def write(self, rows: Sequence[Released], position: Position) -> None:
        """Appends rows, in order, and sets the position behind them, all or nothing; durable on return.
        There is at least one row; the first has the position that the sink is at.

        Raises UnavailableError, after which `open` tells whether they are written; FencedError and
        StateError, with which they are not.
        """
        begin = 0 if self._held is None else self._held.next
        places = [row.position for row in rows]
        if not rows or places != list(range(begin, position.next)):
            raise ValueError(
                f"{len(rows)} rows from position {places[:1]} on, up to {position.next}, do not go on at {begin}"
            )
        if not self._is_open:
            raise away(f"{self.name} is not open")
        with self._answered():
            self.append(rows, position)
        self._held = position

    def close(self) -> None:
        """Lets go of connections. May be repeated; an open sink that is closed is opened anew."""
        self._is_open = False
        self.let_go()

    @abstractmethod
    def take(self, buffer: str) -> Position | None:
        """As `open`, for `barrier`: checks what it finds by `check_writer` and `check_buffer`, and makes `writer` the one
        who writes, together with nothing or with all of that durable."""

    @abstractmethod
    def append(self, rows: Sequence[Released], position: Position) -> None:
        """As `write`, of rows that go on where the sink is."""

    @abstractmethod
    def let_go(self) -> None:
        """As `close`."""

    @abstractmethod
    def failed(self, error: Exception) -> LowmarkError | None:
        """What an error means to the barrier that `take` or `append` has raised; None: it is raised as it is."""

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, Exception) and getattr(error, "code", None) not in _CODES:
                meant = self.failed(error)
                if meant is not None:
                    raise meant from error
            raise

    def check_buffer(self, held: Position | None, buffer: str) -> None:
        """Raises StateError where the sink holds a position that another buffer gave out."""
        if held is not None and held.buffer != buffer:
            raise refused(
                f"{self.name} has {held.next} rows of barrier {self.barrier!r} by the buffer {held.buffer}, and this one "
                f"is {buffer}: its positions mean other rows; bring back the buffer, or give this barrier another name "
                "or another sink"
            )

    def check_writer(self, found: int | None) -> None:
        """Raises FencedError where another one has opened the sink since this one did. found: the number of who has
        opened it last; None: nobody has."""
        if self._was_opened and found != self.writer:
            raise FencedError(
                f"{self.name}: barrier {self.barrier!r} was opened by another writer ({found}, this one is "
                f"{self.writer}); run one at a time",
                code=Code.FENCED_SINK,
            )


def away(text: str) -> UnavailableError:
    """The sink did not answer, or not in time. Whether it has written is not known: `open` tells."""
    return UnavailableError(text, Code.UNAVAILABLE_SINK)


def refused(text: str) -> StateError:
    """The sink does not take what it was given, and would not if asked again: rows of another form than its table's, a
    position of another buffer. Nothing was written. text: says what to do, too."""
    return StateError(text, Code.STATE_SINK)


def check_name(barrier: str) -> None:
    """Raises ValueError for a name that a sink could not keep."""
    if len(barrier) > MAX_NAME_CHARACTERS or _NAME.fullmatch(barrier) is None:
        raise ValueError(
            f"barrier {barrier!r}: a name has 1 to {MAX_NAME_CHARACTERS} letters, digits, dots, dashes and "
            "underscores, and begins with a letter or digit"
        )


def writer_and_position(row: Sequence[Any] | None) -> tuple[int | None, Position | None]:
    """Of a table with a row for each barrier, of writer, buffer, next, slot and key: who has opened it last, None
    before the first, and the position."""
    if row is None:
        return None, None
    writer, buffer, *rest = row
    return writer, Position(buffer, *rest) if rest[0] else None
