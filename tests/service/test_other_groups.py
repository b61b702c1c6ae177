"""How a group is asked that does not answer, or is reached elsewhere by now."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from acker.v1 import group_service_pb2 as pb
from tracker.client.credentials import Credentials
from tracker.core.moving.driver import AWAY, Ask
from tracker.service.engine import Engine
from tracker.service.groups.deployment import Deployment

QUESTION = pb.AskRequest(lives=pb.PipelineAsked(pipeline="orders"))


class Asked(Deployment):
    """Everybody is asked in vain, when the test lets it be."""

    def __init__(self) -> None:
        super().__init__(1, ("127.0.0.1:1",), cast(Engine, None), {}, Credentials())
        self.questions, self.may_answer = 0, asyncio.Event()

    async def ask(self, ask: Ask, timeout_s: float = 0.0) -> Any:
        self.questions += 1
        await self.may_answer.wait()

    async def say(self, group: int, request: pb.AskRequest, timeout_s: float = 0.0) -> Any:
        return AWAY


async def test_who_comes_while_a_pipeline_is_asked_for_shares_the_next_question() -> None:
    """What is under way may have been answered before it was registered, and one question is enough for all who wait."""
    deployment = Asked()
    first = asyncio.ensure_future(deployment.locate("orders"))
    while not deployment.questions:
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(deployment.locate("orders")) for _ in range(5)]
    given_up = asyncio.ensure_future(deployment.locate("orders"))
    await asyncio.sleep(0)
    given_up.cancel()
    deployment.may_answer.set()
    assert await asyncio.gather(first, *others) == [""] * 6
    assert deployment.questions == 2
    assert await deployment.locate("orders") == "" and deployment.questions == 3


async def test_who_waits_for_a_group_that_is_reached_elsewhere_by_now_is_answered() -> None:
    """Nobody answers at these ports. The group has moved to the other while it is asked."""
    with (
        socket.create_server(("127.0.0.1", 0)) as before,
        socket.create_server(("127.0.0.1", 0)) as now,
    ):
        first, second = (f"127.0.0.1:{each.getsockname()[1]}" for each in (before, now))
        addresses = {0: first}
        deployment = Deployment(1, (second,), cast(Engine, None), addresses, Credentials())
        asked = asyncio.ensure_future(deployment.say(1, QUESTION, 1.0))  # expires: nobody answers
        await asyncio.sleep(0)
        addresses[0] = second
        assert await deployment.say(1, QUESTION, 0.2) is AWAY  # expires: nobody answers
        assert await asked is AWAY
        await deployment.stop()
