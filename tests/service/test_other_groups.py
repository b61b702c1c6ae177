"""How a group is asked that does not answer, or is reached elsewhere by now."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from acker.v1 import group_service_pb2 as pb
from tracker.client.credentials import Credentials
from tracker.core.moving.driver import AWAY
from tracker.service.engine import Engine
from tracker.service.groups.deployment import Deployment

QUESTION = pb.AskRequest(lives=pb.PipelineAsked(pipeline="orders"))


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
