"""A grant is of one joining of a front: what a node hears of one that has left is nothing to the next of its name."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.core.driver import Cluster, HandNode
from tests.waits import HANG_S, until
from tracker.client.node import NodeClient, _resolve
from tracker.core.log import Effect, FrontGranted, Grant, TicksDurable
from tracker.core.model import FrontJoin, PipelineSpec, TickContent
from tracker.service.rpc.nodes import TickStream

SPEC = PipelineSpec("p", ("work",), fronts=("other",))


class Client:
    """A client of a node without a network: what its home says comes of a process of the core, by the stream of the service."""

    def __init__(self, node: HandNode) -> None:
        self.node = node
        self.told = TickStream()
        self.told.spec = node.spec
        self.client = NodeClient("127.0.0.1:1", "p", node.key.node_id)
        self.client._joined, self.client._process, self.client._stream = node.joined, os.getpid(), 1
        self.client._window.attached(0)

    def hear(self, effects: list[Effect]) -> None:
        """What the process says of this node goes to its stream, which cannot take it yet."""
        for effect in effects:
            match effect:
                case TicksDurable(session=self.node.session):
                    self.told.durable(effect.number)
                case FrontGranted(session=self.node.session):
                    self.told.granted(effect.grant)

    def read(self) -> None:
        """The stream takes all that has gathered."""
        self.client._window.to_send()
        for message in asyncio.run(self.told.next_messages()):
            _resolve(self.client._take(1, message))

    def join_again(self) -> Grant:
        """What the client is granted that lets the front join by the node's next tick."""
        seen = len(self.node.cluster.effects)
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(self.client.join_front, "f", "work", HANG_S)
            until(lambda: len(self.client._window) > 0)
            self.client._window.to_send()
            self.node.commit(joins={"f": 0})
            self.hear(self.node.cluster.effects[seen:])
            self.read()
            return joining.result(HANG_S)


@pytest.fixture
def other() -> HandNode:
    """A node whose front has promised 10."""
    cluster = Cluster(1)
    cluster.register(SPEC)
    return cluster.front(SPEC, "other", promise=10, other=0)


@pytest.fixture
def made(other: HandNode) -> Client:
    """The client of a node whose front joins by its first tick."""
    made = Client(other.cluster.node(SPEC, "n"))
    made.client.commit(TickContent(joins=(FrontJoin("f", 0),)))
    made.node.begin(joins={"f": 0})
    other.cluster.settle()
    return made


def assert_not_granted(made: Client, other: HandNode) -> None:
    """The front has left, and is granted what lies above all that was announced since when it joins again."""
    assert not made.client._grants, "the next one would take this for its own"
    other.commit(heartbeats={"other": 500})
    assert made.join_again().slot == 500


def test_a_grant_that_was_under_way_when_its_front_left_is_none_of_the_next_one(
    made: Client, other: HandNode
) -> None:
    """Its owner gives up waiting for the grant, and lets the front leave. The stream takes the grant and both numbers at once."""
    left = made.client.leave_front("f")
    made.node.commit(leaves=["f"])
    made.hear(made.node.cluster.effects)
    made.read()
    assert left.done()
    assert_not_granted(made, other)


def test_a_front_that_left_by_a_tick_with_other_content_has_left(
    made: Client, other: HandNode
) -> None:
    made.hear(made.node.cluster.effects)
    made.read()
    assert made.client._grants
    left = made.client.commit(TickContent(leaves=("f",)))
    seen = len(made.node.cluster.effects)
    made.node.commit(leaves=["f"])
    made.hear(made.node.cluster.effects[seen:])
    made.read()
    assert left.done()
    assert_not_granted(made, other)


def test_the_next_one_of_the_name_is_granted_though_all_is_told_at_once(made: Client) -> None:
    """Its grant is told behind the number of the tick by which the one before left, which takes away that one's alone."""
    made.client.commit(TickContent(leaves=("f",)))
    made.client.commit(TickContent(joins=(FrontJoin("f", 0),)))
    made.node.commit(leaves=["f"])
    made.node.commit(joins={"f": 0})
    made.hear(made.node.cluster.effects)
    made.read()
    assert made.client._grants["f"].slot == 10


def test_who_waits_no_longer_for_a_front_to_leave_is_told_its_old_grant_no_more(
    made: Client, other: HandNode
) -> None:
    """A caller of asyncio that gives up cancels the future: the tick is on its way all the same, and becomes durable."""
    made.hear(made.node.cluster.effects)
    made.read()
    made.client.leave_front("f").cancel()
    seen = len(made.node.cluster.effects)
    made.node.commit(leaves=["f"])
    made.hear(made.node.cluster.effects[seen:])
    made.read()
    assert_not_granted(made, other)
