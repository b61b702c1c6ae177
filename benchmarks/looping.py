"""One asyncio loop for a whole benchmark, in a thread of its own: gRPC's asyncio side belongs to the
first loop that uses it in a process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

_Result = TypeVar("_Result")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lowmark-bench", daemon=True).start()
    return loop


def start(work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Begins some work there."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Does some work there, and returns what it returns."""
    return start(work).result()


def call(function: Any) -> None:
    """Calls a function there."""
    _loop().call_soon_threadsafe(function)
