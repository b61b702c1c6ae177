"""Ending tasks, and work that is given up when something else has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def end(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancels tasks, and returns when all have ended; what they raise is dropped."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def unless(
    event: asyncio.Event, work: Coroutine[Any, Any, _T], timeout_s: float | None = None
) -> _T | None:
    """What `work` returns, or raises; None if the event is set before, or the time is up: then the work
    has been cancelled."""
    tasks = working, _ = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await end(*tasks)
