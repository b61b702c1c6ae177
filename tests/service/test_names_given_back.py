"""A name that is given back says by which generation the last one of that name has ended in this group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.core.deployment import Deployment as Groups
from tests.core.test_moving import SPEC
from tracker.client.credentials import Credentials
from tracker.core.log import DeletePipeline, Joined, JoinNode, Restart
from tracker.core.model import RefusalCode, Refused
from tracker.core.moving.driver import Ask
from tracker.service.engine import Engine
from tracker.service.groups.deployment import Deployment
from tracker.service.groups.servicer import GroupServicer


async def test_one_that_is_refused_gives_back_no_generation_that_one_of_its_name_had_there() -> (
    None
):
    """Its name was not given back when that was deleted, since the directory did not answer. A node of it comes back by its own record,
    and finds the next one of the name in another group."""
    made = Groups(1, 1, 1)
    made.register(SPEC, 1)
    before, after = made.groups[1:]
    node = before.node(SPEC, "query")
    node.commit()
    assert isinstance(before.ask(0, DeletePipeline, "p", 0, True, 0), Restart)
    engine = cast(Engine, SimpleNamespace(process=before.processes[0]))

    class Directory(Deployment):
        async def ask(self, ask: Ask, timeout_s: float = 0.0) -> Any:
            return made.ask(ask)

    deployment = Directory(1, ("127.0.0.1:1",), engine, {}, Credentials())
    servicer = GroupServicer(engine, deployment, cast(Any, None), cast(Any, None))
    with pytest.raises(Refused, match="limit"):
        async with servicer.placing("p", None, check_only=False):
            raise Refused(RefusalCode.FULL, "the limit max_pipelines is 1")
    made.register(SPEC, 2)
    knows: dict[str, Any] = {"known_incarnation": node.key.incarnation, "known_ticks": 1}
    after.handle(
        0, JoinNode("again", "p", "query", "query", known_generation=0, never_left=True, **knows)
    )
    after.settle()
    (answer,) = after.answers("again")
    assert isinstance(answer, Joined), answer
    assert answer.generation > node.joined.generation
