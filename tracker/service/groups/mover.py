"""Goes on with the moves of the own group, in the process that leads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from tracker.client.connection import Backoff
from tracker.core.log.losses import Move
from tracker.core.moving.driver import AWAY, Ask, Pause, Where, follow
from tracker.service.groups.deployment import Deployment
from tracker.service.tasks import end

log = structlog.get_logger(__name__)

LOOK_INTERVAL_S = 0.5
"""How often it is looked whether a move is under way that nobody goes on with."""
PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 1.0
"""Before what has to wait is asked again."""
PATIENCE_S = 60.0
"""For how long the same is asked. Then a move is given up, if that still can be: its pipeline stands meanwhile."""
MAX_ENDED = 1_000
"""Moves of which it is remembered how they ended."""


class Patience:
    """Whether what is asked again and again has been asked for `PATIENCE_S`. Between two times the directory is asked whether it has
    decided meanwhile: that is no other question."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s, self._until_s = clock_s, 0.0
        self._asked: Ask | None = None
        self._again = self._between = False
        """Whether that was asked more than once, and whether the directory was asked last."""

    @property
    def is_over(self) -> bool:
        """What is asked again counts as not answered."""
        return self._again and self._clock_s() >= self._until_s

    def takes(self, ask: Ask) -> bool:
        """Whether it is to be asked."""
        if isinstance(ask.what, Where):
            self._again, self._between = self._again and not self._between, True
        else:
            self._again, self._between = ask is self._asked, False
            if not self._again:
                self._asked, self._until_s = ask, self._clock_s() + PATIENCE_S
        return not self.is_over


class Mover:
    """The moves that are under way, by number, each with the task that goes on with it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.given_up: dict[int, str] = {}
        """By number of a move why it was given up, if it was, of the last that have ended here."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        await end(self._looking, *self._tasks.values())

    async def _look(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_INTERVAL_S)

    def look(self) -> None:
        """Begins to go on with moves, where this process leads the group."""
        process = self._deployment.engine.process
        if process.membership.sequencer != process.shard:
            return
        for move in process.membership.moving.values():
            if move.number not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._follow(move))
                self._tasks[move.number] = task
                task.add_done_callback(partial(self._done, move.number))

    def _done(self, number: int, _: asyncio.Task[None]) -> None:
        del self._tasks[number]

    async def over(self, number: int) -> None:
        """Returns when a move has ended, as far as this process goes on with it."""
        self.look()
        if (task := self._tasks.get(number)) is not None:
            await asyncio.wait((task,))

    async def _follow(self, move: Move) -> None:
        process = self._deployment.engine.process
        backoff, answer = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S), None
        steps = follow(move, self._deployment.group)
        patience = Patience()
        log.info("moves", pipeline=move.pipeline, group=move.group, arrives=move.arrives)
        try:
            while True:
                asked: Any = steps.send(answer)
                known = process.membership.moving.get(move.pipeline)
                if known is None or known.number != move.number:
                    break  # another process has ended it
                if isinstance(asked, Pause):
                    await asyncio.sleep(0.0 if patience.is_over else backoff.pause_s())
                    answer = None
                else:
                    is_asked = patience.takes(asked)
                    answer = await self._deployment.ask(asked) if is_asked else AWAY
        except StopIteration as over:
            self.given_up[move.number] = over.value
            while len(self.given_up) > MAX_ENDED:
                del self.given_up[next(iter(self.given_up))]
        except Exception:
            log.exception("move_failed", pipeline=move.pipeline)  # it is begun anew
        why = self.given_up.get(move.number, "")
        log.info("has_moved", pipeline=move.pipeline, group=move.group, given_up=why or None)
        self._deployment.forget(move.pipeline)
