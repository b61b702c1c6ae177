"""Who waits for news of something by name: calls that wait without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from tracker.core.model import RefusalCode, Refused

Name = TypeVar("Name", bound=Hashable)

MAX_WAITERS = 20_000


class Waiter:
    """One waiting call."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def until(self, deadline_s: float | None) -> bool:
        """Whether there was news before a moment of the loop's clock (None: waits for ever)."""
        if deadline_s is None:
            await self._event.wait()
        else:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class WaiterRegistry(Generic[Name]):
    """Who waits for what. A waiter is registered before its condition is looked at, so that no news
    falls between the look and the wait."""

    def __init__(self) -> None:
        self._waiters: dict[Name, dict[Waiter, None]] = {}
        self.count = 0
        """How many wait."""
        self._closed = False

    @contextmanager
    def waiter(self, name: Name) -> Iterator[Waiter]:
        """A waiter for news of `name`. Raises Refused: FULL when too many wait, NOT_READY when the
        process stops."""
        if self._closed:
            raise Refused(RefusalCode.NOT_READY, "this process stops; wait at another one")
        if self.count >= MAX_WAITERS:
            raise Refused(
                RefusalCode.FULL, f"{self.count} calls wait here, the limit is {MAX_WAITERS}"
            )
        waiter = Waiter()
        self._waiters.setdefault(name, {})[waiter] = None
        self.count += 1
        try:
            yield waiter
        finally:
            self.count -= 1
            waiters = self._waiters[name]
            del waiters[waiter]
            if not waiters:
                del self._waiters[name]

    def names(self) -> list[Name]:
        """All that somebody waits for."""
        return [*self._waiters]

    def __contains__(self, name: object) -> bool:
        """Whether somebody waits for `name`."""
        return name in self._waiters

    def close(self) -> None:
        """Wakes all, and lets nobody wait any more."""
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake()

    def news(self, name: Name) -> None:
        """Wakes all who wait for `name`."""
        for waiter in self._waiters.get(name, ()):
            waiter.wake()
