"""How a group is asked that does not answer, or is reached elsewhere by now."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acker.v1 import group_service_pb2 as pb
from tests.core.test_moving import running
from tracker.client.credentials import Credentials
from tracker.core.log import PlacePipeline
from tracker.core.model import Refused
from tracker.core.moving.driver import AWAY, Ask, Where
from tracker.service.engine import Engine
from tracker.service.groups.deployment import Deployment
from tracker.service.groups.servicer import GroupServicer

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


async def test_who_registers_a_pipeline_that_is_about_to_come_claims_no_name() -> None:
    """The directory has turned by a placement that a claim would make void: the name were not given back when it is deleted."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    steps = made.steps(made.drive("p", 0))
    assert any(isinstance(q, Ask) and isinstance(q.what, PlacePipeline) for q, _ in steps)
    engine = cast(Engine, SimpleNamespace(process=made.groups[1].processes[0]))
    asked: list[Any] = []

    class Directory(Deployment):
        async def ask(self, ask: Ask, timeout_s: float = 0.0) -> Any:
            asked.append(ask.what)
            return made.ask(ask)

    deployment = Directory(1, ("127.0.0.1:1",), engine, {}, Credentials())
    servicer = GroupServicer(engine, deployment, cast(Any, None), cast(Any, None))
    with pytest.raises(Refused, match="on its way"):
        async with servicer.placing("p", None, check_only=False):
            pass
    assert asked == [Where("p")]
    made.go_on("p", 0, 1)
    async with servicer.placing("p", None, check_only=False) as placement:
        assert placement == made.ask(Ask(0, Where("p")))
