"""Questions to the tracker that many ask: each is asked once a second at most, however many wait for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tracker.dashboard.refusing import Refused

Answer = TypeVar("Answer")

LOOK_INTERVAL_S = 1.0
"""For so long an answer is everybody's."""
MAX_ASKED = 50
"""Questions that are under way or wait for their turn; a further one is refused with 503, and may come again."""
MAX_KEPT = 200
"""Answers that are kept; the oldest goes for a further one."""
RETRY_S = "5"


@dataclass(slots=True)
class _Asked:
    """A question. answered_s: when that was; infinity before."""

    answer: asyncio.Future[Any]
    answered_s: float = float("inf")


class SharedQuestions:
    """Lives in one event loop; asks in threads of `asking`."""

    def __init__(self, asking: Executor) -> None:
        self._asking = asking
        self._kept: dict[tuple[str, str], _Asked] = {}
        """In the order in which they were asked."""

    def __len__(self) -> int:
        """Questions that are kept, with their answers or without."""
        return len(self._kept)

    @property
    def under_way(self) -> int:
        """Questions that are not answered yet."""
        return sum(not asked.answer.done() for asked in self._kept.values())

    async def ask(
        self, what: str, pipeline: str, question: Callable[[], Answer], *, anew: bool = False
    ) -> Answer:
        """The answer to a question of this name about a pipeline, at most LOOK_INTERVAL_S old; anew: one that comes from now
        on. Raises Refused, and what the question raises."""
        key, now_s = (what, pipeline), asyncio.get_running_loop().time()
        asked = self._kept.get(key)
        if asked is None or now_s - asked.answered_s >= (0 if anew else LOOK_INTERVAL_S):
            self._kept.pop(key, None)
            asked = self._begin(question)
            self._kept[key] = asked
            self._forget_oldest()
        return cast("Answer", await asyncio.shield(asked.answer))

    def _begin(self, question: Callable[[], Any]) -> _Asked:
        if (under_way := self.under_way) >= MAX_ASKED:
            raise Refused(
                503,
                f"{under_way} questions to the tracker are under way, which is the limit: ask again in {RETRY_S} s",
                headers=(("retry-after", RETRY_S),),
            )
        loop = asyncio.get_running_loop()
        asked = _Asked(loop.run_in_executor(self._asking, question))

        def answered(future: asyncio.Future[Any]) -> None:
            asked.answered_s = loop.time()
            if not future.cancelled():
                future.exception()  # whoever waits for it hears of it

        asked.answer.add_done_callback(answered)
        return asked

    def _forget_oldest(self) -> None:
        for key, asked in list(self._kept.items()):
            if len(self._kept) <= MAX_KEPT:
                return
            if asked.answer.done():
                del self._kept[key]
