"""Streams of ticks with garbage between them: what is acknowledged is applied, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import types_pb2 as pb
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import sent
from tests.fuzz.wired import SPEC, CallEnded, Context, Services, Wired, called, stream
from tracker.core.log import Joined, JoinNode
from tracker.core.model import (
    Batch,
    Cells,
    FrontJoin,
    Heartbeat,
    HoldMove,
    RefusalCode,
    TickContent,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.wire.ticks import content_to_pb, key_to_pb

TICKS = [
    content_to_pb(content)
    for content in (
        TickContent(created=Cells.of([(0, 7, 11, 1), (1, 9, 12, 1)])),
        TickContent(
            created=Cells.of([(0, slot, slot, 1) for slot in range(10, 20)]),
            units_created=(Unit(0, "file:///a", 10), Unit(1, "file:///b", 12)),
            batch=Batch("query", 1, b"one"),
        ),
        TickContent(joins=(FrontJoin("G", 0),)),
        TickContent(heartbeats=(Heartbeat("G", 8),)),
        TickContent(
            consumed=Cells.of([(0, 7, 11, 1), (1, 9, 12, 1), (0, 2, 5, 1)]),
            units_consumed=(Unit(0, "file:///a", 10),),
            batch=Batch("query", 2, b"two"),
        ),
        TickContent(leaves=("G",)),
        TickContent(consumed=Cells.of([(0, 10, 10, 1)]), holds=(HoldMove("state", 1, 12),)),
        TickContent(consumed=Cells.of([(0, slot, slot, 1) for slot in range(11, 20)])),
        TickContent(holds=(HoldMove("state", 1, 15),)),
        TickContent(holds=(HoldMove("state", 1, FOREVER),)),
    )
]
"""A node's ticks, all of which are accepted; what stands before one may be anything."""

arrivals = st.lists(
    st.integers(0, len(TICKS) - 1).flatmap(
        lambda place: st.tuples(st.just(place), st.just(TICKS[place]) | sent(TICKS[place]))
    ),
    min_size=1,
    max_size=10,
)


def numbered(contents: Sequence[pb.TickContent]) -> list[node_pb.NumberedTick]:
    return [
        node_pb.NumberedTick(number=number, content=content)
        for number, content in enumerate(contents, 1)
    ]


class Node:
    """Node `w` of a tracker, which sends ticks by the servicer of its home."""

    def __init__(self) -> None:
        self.cluster = Wired()
        home = self.cluster.routing.home("p", "w")
        joined = self.cluster.ask(home, JoinNode, "p", "w", "other")
        assert isinstance(joined, Joined)
        self.key = key_to_pb(joined.key)
        self.services = Services(self.cluster, home)

    def commit(self, *ticks: node_pb.NumberedTick) -> tuple[list[Any], Any]:
        """One stream of these: what was written to it, and how it ended."""
        return self.send(*(node_pb.CommitTicksRequest(tick=tick) for tick in ticks))

    def send(
        self, *messages: node_pb.CommitTicksRequest, held: bool = False
    ) -> tuple[list[Any], Any]:
        """One stream of these messages, behind the first. held: nothing is durable before the last is there."""
        attach = node_pb.Attach(pipeline="p", key=self.key)
        requests = [node_pb.CommitTicksRequest(attach=attach), *messages]
        context = Context()
        sent = self.services.engine.held(requests) if held else stream(requests)
        ended = called(self.services.nodes.CommitTicks(sent, context))
        return context.written, ended


def outcome(answers: Sequence[Any], number: int) -> pb.Refusal | None:
    """The refusal of a tick; None if it is durable."""
    refused = [a.refused for a in answers if a.WhichOneof("message") == "refused"]
    if refused:
        assert [r.number for r in refused] == [number]
        assert refused[0].refusal.code in {code.value for code in RefusalCode}
        assert refused[0].refusal.message
        return refused[0].refusal
    assert max(a.committed.number for a in answers) == number
    return None


@fuzz(arrivals)
def test_a_tick_is_applied_whole_or_refused_and_changes_nothing(
    arriving: list[tuple[int, pb.TickContent]],
) -> None:
    node = Node()
    accepted: list[pb.TickContent] = []
    for _, content in arriving:
        before = node.cluster.state()
        number = len(accepted) + 1
        answers, ended = node.commit(node_pb.NumberedTick(number=number, content=content))
        assert ended is None
        if outcome(answers, number) is None:
            accepted.append(content)
        else:
            assert node.cluster.state() == before
    node.cluster.check()

    # As if what was refused had never been sent.
    alone = Node()
    for tick in numbered(accepted):
        answers, _ = alone.commit(tick)
        assert outcome(answers, tick.number) is None
    assert [alone.cluster.log(shard) for shard in (0, 1)] == [
        node.cluster.log(shard) for shard in (0, 1)
    ]


@fuzz(arrivals)
def test_ticks_in_one_message_are_answered_and_applied_as_if_each_came_alone(
    arriving: list[tuple[int, pb.TickContent]],
) -> None:
    ticks = numbered([content for _, content in arriving])
    together, alone = Node(), Node()
    one = together.send(
        node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=ticks)), held=True
    )
    each = alone.send(*(node_pb.CommitTicksRequest(tick=tick) for tick in ticks), held=True)
    assert one[1] is None and each[1] is None
    assert refusals(one[0]) == refusals(each[0])
    assert together.cluster.kept() == alone.cluster.kept()


def refusals(answers: Sequence[Any]) -> list[tuple[int, str, int]]:
    """Number, code and expected number of those that were refused."""
    refused = [a.refused for a in answers if a.WhichOneof("message") == "refused"]
    return [(r.number, r.refusal.code, r.refusal.expected) for r in refused]


VALID = node_pb.NumberedTick(number=1, content=TICKS[0])
ATTACH = node_pb.CommitTicksRequest(
    attach=node_pb.Attach(pipeline="p", key=pb.NodeKey(node_id="w", incarnation=1))
)


SEVERAL = node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=numbered(TICKS[:3])))


@fuzz(
    st.lists(
        sent(node_pb.CommitTicksRequest(tick=VALID)) | sent(SEVERAL) | sent(ATTACH), max_size=6
    )
)
def test_a_stream_of_anything_ends_as_streams_end(requests: list[Any]) -> None:
    """Several attached, none, ticks under any number: whatever is not a tick of a stream ends it."""
    node = Node()
    context = Context()
    ended = called(node.services.nodes.CommitTicks(stream(requests), context))
    assert ended is None or isinstance(ended, CallEnded)
    for message in context.written:
        message.SerializeToString()
    node.cluster.check()
    answers, ended = node.commit()
    (attached,) = (a.attached for a in answers if a.WhichOneof("message") == "attached")
    answers, ended = node.commit(
        node_pb.NumberedTick(number=attached.last_number + 1, content=TICKS[0])
    )
    assert outcome(answers, attached.last_number + 1) is None, "the next stream goes on"


@fuzz(st.lists(st.sampled_from(TICKS), min_size=2, max_size=8), st.permutations(range(8)))
def test_ticks_out_of_order_are_refused_with_the_number_that_is_due(
    contents: list[pb.TickContent], order: list[int]
) -> None:
    node = Node()
    ticks = numbered(contents)
    due = 1
    for place in [place for place in order if place < len(ticks)]:
        tick = ticks[place]
        answers, _ = node.commit(tick)
        refused = [a.refused.refusal for a in answers if a.WhichOneof("message") == "refused"]
        if tick.number == due:
            due += not refused
        elif tick.number > due:
            assert [(r.code, r.expected) for r in refused] == [("out_of_order", due)]
        else:
            assert not refused, "it has been accepted before"
    node.cluster.check()


assert SPEC.segments == ("in", "out"), "the ticks name them by number"
