"""Calls of the store are made one after the other in a thread of their own, and answered in the loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from tracker.service.store_thread import StoreThread


def test_calls_are_made_in_their_order_by_one_other_thread() -> None:
    made: list[tuple[int, str]] = []

    def call(number: int) -> int:
        made.append((number, threading.current_thread().name))
        return 10 * number

    async def run() -> list[int]:
        thread = StoreThread("store")
        answers = await asyncio.gather(*(thread.call(partial(call, n)) for n in range(50)))
        thread.end()
        return answers

    assert asyncio.run(run()) == [10 * n for n in range(50)]
    assert made == [(n, "store") for n in range(50)]


async def test_what_a_call_raises_is_its_outcome_and_the_next_one_is_made() -> None:
    thread = StoreThread("store")
    failing, next_one = thread.call(lambda: 1 // 0), thread.call(lambda: "done")
    with pytest.raises(ZeroDivisionError):
        await failing
    assert await next_one == "done"
    thread.end()


async def test_a_call_that_nobody_waits_for_any_more_is_made_all_the_same() -> None:
    thread, may_go_on, made = StoreThread("store"), threading.Event(), []
    given_up = thread.call(lambda: made.append(may_go_on.wait()))
    given_up.cancel()
    may_go_on.set()
    assert await thread.call(lambda: made) == [True]
    thread.end()
