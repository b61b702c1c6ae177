"""Questions that many ask are asked once a second, and bounded."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waits import HANG_S
from tracker.client import UnavailableError
from tracker.dashboard import shared as shared_module
from tracker.dashboard.refusing import Refused
from tracker.dashboard.shared import SharedQuestions


class Tracker:
    """Answers when it is let go, and counts."""

    def __init__(self) -> None:
        self.let_go, self.asked = threading.Event(), 0

    def question(self) -> int:
        self.asked += 1
        assert self.let_go.wait(HANG_S)
        return self.asked


async def test_all_who_ask_while_a_question_is_under_way_or_just_after_have_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_module, "LOOK_INTERVAL_S", 1_000.0)
    tracker = Tracker()
    with ThreadPoolExecutor(2) as asking:
        shared = SharedQuestions(asking)
        waiting = [asyncio.create_task(shared.ask("look", "p", tracker.question)) for _ in range(9)]
        await asyncio.sleep(0)  # each has asked
        assert shared.under_way == 1
        waiting[0].cancel()  # whoever goes away takes nothing from the others
        tracker.let_go.set()
        assert await asyncio.gather(*waiting[1:]) == [1] * 8
        assert await shared.ask("look", "p", tracker.question) == 1
        assert await shared.ask("look", "other", tracker.question) == 2
        assert await shared.ask("lags", "p", tracker.question) == 3
        monkeypatch.setattr(shared_module, "LOOK_INTERVAL_S", 0.0)
        assert await shared.ask("look", "p", tracker.question) == 4


async def test_what_went_wrong_is_said_to_all() -> None:
    def fails() -> int:
        raise UnavailableError("away")

    with ThreadPoolExecutor(1) as asking:
        shared = SharedQuestions(asking)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="away"):
                await shared.ask("look", "p", fails)


async def test_questions_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "MAX_ASKED", 2)
    tracker = Tracker()
    with ThreadPoolExecutor(1) as asking:
        shared = SharedQuestions(asking)
        names = ("one", "two")
        waiting = [asyncio.create_task(shared.ask("look", n, tracker.question)) for n in names]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match=r"2 questions .* limit: ask again in 5 s") as error:
            await shared.ask("look", "three", tracker.question)
        assert error.value.status == 503 and ("retry-after", "5") in error.value.headers
        tracker.let_go.set()
        await asyncio.gather(*waiting)
        assert await shared.ask("look", "three", tracker.question) == 3


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "MAX_KEPT", 3)
    with ThreadPoolExecutor(1) as asking:
        shared = SharedQuestions(asking)
        for number in range(20):
            assert await shared.ask("look", f"p{number}", lambda: 0) == 0
            assert len(shared) <= 3
