"""How far one who reports periods may write its position down: only what it has handed out for good.

It hears numbered messages, hands out what each makes complete, and learns later, by the number, that all of it is kept
by whoever it was handed to. What lies behind the last such number is handed out again after a restart.
"""

from __future__ import annotations

from collections import deque

MOST_OPEN = 10_000
"""Messages that may wait to be confirmed; then `moved` says no, and nothing more is handed out."""


class Confirmed:
    """A position, and those ahead of it that are not safe yet."""

    def __init__(self, position: int) -> None:
        self.position = self.ahead = position
        """position: where a restart goes on; ahead: behind all that was handed out."""
        self._open: deque[tuple[int, int]] = deque()

    @property
    def full(self) -> bool:
        """Whether nothing more may be handed out before something is confirmed."""
        return len(self._open) >= MOST_OPEN

    def moved(self, number: int, position: int) -> None:
        """By a message of a number everything up to a position was handed out."""
        if position != self.ahead:
            self._open.append((number, position))
            self.ahead = position

    def confirmed(self, number: int) -> bool:
        """Everything that was handed out by messages up to a number is safe. Returns whether the position has
        moved, and is to be written down."""
        before = self.position
        while self._open and self._open[0][0] <= number:
            self.position = self._open.popleft()[1]
        return self.position != before
