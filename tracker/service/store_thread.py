"""The thread in which a process calls its store: one call after the other, while the loop goes on.

A pool of the standard library does the same by a future of its own behind the loop's one, with a lock
and two more turns of the loop for each call: as much as a small group commit costs by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class StoreThread:
    """Made in a running loop, and used from that loop alone."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            SimpleQueue()
        )
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], _T]) -> asyncio.Future[_T]:
        """Its outcome, when its turn has come and it is done. To cancel it takes nothing back."""
        future: asyncio.Future[_T] = self._loop.create_future()
        self._calls.put((future, function))
        return future

    def end(self) -> None:
        """Ends the thread after the calls so far."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            settle: Callable[[], None]
            try:
                settle = partial(_succeed, future, function())
            except BaseException as error:
                settle = partial(_fail, future, error)
            try:
                self._loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            del call, future, function, settle  # not kept until the next call comes


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
