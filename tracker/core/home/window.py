"""A node's side of its stream of ticks: numbering, resending, what a refusal does (rules 1 and 2).

Ticks wait in the order in which they were committed. A tick's number is its position; when one is
refused its number stays free, so those behind it move up and are sent again. After a reconnect the
home says how far it has accepted, and sending goes on from there. A stream keeps its order and
repeats nothing; it may break at any point, with what was under way arriving or not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from tracker.core.model import Refusal, RefusalCode

Token = TypeVar("Token")
Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Token, Content]):
    token: Token
    content: Content
    promises: bool


class TickWindow(Generic[Token, Content]):
    """Ticks of one key that are not known to be durable, at most `limit` of them.

    A token is the caller's own mark of a tick; it comes back once: when the tick is durable, refused
    or given up.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.durable = 0
        """All ticks up to this number are durable."""
        self._waiting: deque[_Waiting[Token, Content]] = deque()
        self._attached = False
        self._sent = 0
        """How many of those that wait were sent on this stream, or accepted before it."""
        self._stale = 0
        """Ticks under way under numbers that have changed since: the home refuses each, as out of
        order, before it answers anything that was sent later."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether as many ticks wait as may."""
        return len(self._waiting) >= self.limit

    def add(self, token: Token, content: Content, *, promises: bool = False) -> None:
        """The node commits a tick; `promises`: it holds a heartbeat or lets a front leave, and so
        says that all items before it are known. Raises OverflowError when full."""
        if self.full:
            raise OverflowError(f"{len(self._waiting)} ticks wait, the limit is {self.limit}")
        self._waiting.append(_Waiting(token, content, promises))

    def attached(self, last_number: int) -> None:
        """A new stream has begun; the home has accepted ticks up to `last_number`. Raises ValueError
        if that cannot be the same history."""
        if last_number < self.durable:
            raise ValueError(
                f"the home has ticks up to {last_number} and had said that those up to "
                f"{self.durable} were durable: the tracker has lost what it acknowledged"
            )
        if last_number > self.durable + len(self._waiting):
            raise ValueError(
                f"the home has ticks up to {last_number}, and this node has sent none above "
                f"{self.durable + len(self._waiting)}: another process commits under its key"
            )
        self._attached = True
        self._sent = last_number - self.durable
        self._stale = 0

    def detached(self) -> None:
        """The stream is gone: nothing is sent before the next one says where to begin."""
        self._attached = False

    def to_send(self) -> list[tuple[int, Content]]:
        """What is to be sent now on the stream, with numbers, in order; counts it as sent."""
        if not self._attached or self._sent == len(self._waiting):
            return []
        first = self.durable + self._sent + 1
        unsent = islice(self._waiting, self._sent, None)
        self._sent = len(self._waiting)
        return [(first + index, tick.content) for index, tick in enumerate(unsent)]

    def committed(self, number: int) -> list[tuple[Token, int]]:
        """Ticks up to `number` are durable: returns the tokens of those that were not known to be,
        with their numbers. Raises ValueError if one of them was never sent."""
        if number > self.durable + self._sent:
            raise ValueError(
                f"the home says that tick {number} is durable, and only those up to "
                f"{self.durable + self._sent} have been sent"
            )
        done = []
        while self.durable < number:
            self.durable += 1
            self._sent -= 1
            done.append((self._waiting.popleft().token, self.durable))
        return done

    def refused(self, number: int, refusal: Refusal) -> list[tuple[Token, Refusal]]:
        """A tick was refused: returns the tokens that are out for good; the others are sent again.

        With a tick go those behind it that promise (heartbeats, leaving fronts): accepted without
        it, they would say that its items are known, and min time could pass them (rule 1).
        """
        if self._stale:
            self._stale -= 1
            return []
        if refusal.code is RefusalCode.OUT_OF_ORDER:
            self._rewind(number, refusal.expected - 1 - self.durable)
            return []
        index = number - self.durable - 1
        if not 0 <= index < self._sent:
            raise ValueError(
                f"the home refuses tick {number}, and ticks {self.durable + 1} to "
                f"{self.durable + self._sent} are under way: {refusal.message}"
            )
        self._rewind(number, index)
        ticks = list(self._waiting)
        behind = Refusal(
            refusal.code,
            f"not committed, because it promises or leaves behind a tick that was refused: "
            f"{refusal.message}",
        )
        out = [(ticks[index].token, refusal)]
        out += [(tick.token, behind) for tick in ticks[index + 1 :] if tick.promises]
        kept = [tick for tick in ticks[index + 1 :] if not tick.promises]
        self._waiting = deque([*ticks[:index], *kept])
        return out

    def _rewind(self, number: int, sent: int) -> None:
        """Sends again from index `sent` on. What was sent behind `number` on this stream is stale."""
        if not 0 <= sent <= self._sent:
            raise ValueError(
                f"the home expects tick {self.durable + sent + 1}, and ticks {self.durable + 1} to "
                f"{self.durable + self._sent} are under way"
            )
        self._stale += self.durable + self._sent - number
        self._sent = sent

    def drain(self) -> list[Token]:
        """Gives up: returns the tokens of all ticks that wait, which are sent no more."""
        tokens = [tick.token for tick in self._waiting]
        self._waiting.clear()
        self._sent = self._stale = 0
        self._attached = False
        return tokens
