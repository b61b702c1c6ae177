"""A simulated node asks for one key in each life, whoever of its retry and its watch is quicker."""

from __future__ import annotations

import pytest

from tests.simulation.nodes import ANSWER_TIMEOUT_NS, RETRY_NS, Node
from tests.simulation.plan import MS
from tests.simulation.simulator import Simulator
from tests.simulation.world import World
from tracker.core.log import Answer, AttachSession, Event, Joined, JoinNode
from tracker.core.model import NodeKey, PipelineSpec, Refusal, RefusalCode

SPEC = PipelineSpec("p", ("work",), open=True)
KEY = NodeKey("node", 6)
NOT_READY = Refusal(RefusalCode.NOT_READY, "the pipeline was restarted meanwhile; join again")


class Silent(Simulator):
    """A tracker that answers by the test's hand alone, and what was said to it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.said: list[Event] = []

    def call(self, node: Node | None, shard: int, event: Event) -> None:
        self.said.append(event)

    def stream(self, node: Node, event: Event) -> None:
        self.said.append(event)

    def run_until(self, now_ns: int) -> None:
        """All happens that is due by then."""
        self.after(now_ns - self.now, lambda: None)
        while self.now < now_ns:
            self.take_step()

    def last_join(self) -> JoinNode:
        """What was asked last, which has to be a key."""
        asked = self.said[-1]
        assert isinstance(asked, JoinNode)
        return asked


@pytest.fixture
def tracker() -> Silent:
    return Silent()


@pytest.fixture
def node(tracker: Silent) -> Node:
    node = Node(tracker, World(SPEC), "node")
    node.start()
    return node


def test_a_node_that_may_not_join_yet_asks_again(tracker: Silent, node: Node) -> None:
    first = tracker.last_join()
    node.hear(Answer(first.request, NOT_READY))
    tracker.run_until(RETRY_NS)
    assert tracker.said == [first, tracker.last_join()]
    assert tracker.last_join().request != first.request


@pytest.mark.parametrize("answered", [False, True], ids=["which is not answered", "and has joined"])
def test_a_retry_behind_the_watch_asks_nothing(
    tracker: Silent, node: Node, *, answered: bool
) -> None:
    """The refusal came so late that the watch asks before the retry is due. If that gave a key, another
    one would be taken under the window of the first: its ticks would be counted as the new key's."""
    first = tracker.last_join()
    tracker.run_until(ANSWER_TIMEOUT_NS - 1 * MS)
    node.hear(Answer(first.request, NOT_READY))
    tracker.run_until(ANSWER_TIMEOUT_NS)
    second = tracker.last_join()
    assert tracker.said == [first, second], "the watch has asked"
    if answered:
        node.hear(Answer(second.request, Joined(KEY, SPEC, (), 0, ())))
    tracker.run_until(ANSWER_TIMEOUT_NS + 2 * RETRY_NS)
    assert [event for event in tracker.said if isinstance(event, JoinNode)] == [first, second]
    assert node.key == (KEY if answered else None)
    assert isinstance(tracker.said[-1], AttachSession if answered else JoinNode)
