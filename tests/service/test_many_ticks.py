"""Several ticks in one message: judged as if each had come alone, answered together, and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import types_pb2 as pb
from tests.service.serving import Serving, config, serving, status_of
from tests.waits import HANG_S
from tracker.client import embedded
from tracker.client.node import NodeClient, messages_of
from tracker.core.log import SubmitTick
from tracker.core.model import Cells, FrontJoin, Heartbeat, PipelineSpec, TickContent
from tracker.service.rpc.nodes import TickStream
from tracker.wire.grpc_options import MAX_TICKS_PER_MESSAGE
from tracker.wire.pipelines import spec_from_pb
from tracker.wire.ticks import content_to_pb

UNKNOWN_SEGMENT = content_to_pb(TickContent(created=Cells.of([(7, 1, 1, 1)])))


def message(*contents: pb.TickContent | None, first: int = 1) -> node_pb.CommitTicksRequest:
    ticks = [
        node_pb.NumberedTick(number=number, content=content)
        for number, content in enumerate(contents, first)
    ]
    return node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=ticks))


async def answers(served: Serving, *sent: node_pb.CommitTicksRequest) -> list[tuple[int, str]]:
    """What a node's stream is answered until it ends: the number that is durable, or was refused, and why."""
    ticks = await served.ticks()
    for each in sent:
        await ticks.call.write(each)
    await ticks.call.done_writing()
    found = []
    while (answer := await ticks.call.read()) is not grpc.aio.EOF:
        if answer.WhichOneof("message") == "committed":
            found.append((answer.committed.number, "committed"))
        else:
            found.append((answer.refused.number, answer.refused.refusal.code))
    return found


async def test_a_home_says_how_many_it_takes_and_takes_them() -> None:
    async with serving(config()) as served:
        ticks = await served.ticks()
        again = served.nodes.CommitTicks()
        await again.write(node_pb.CommitTicksRequest(attach=ticks.attach))
        assert (await again.read()).attached.max_ticks_per_message == MAX_TICKS_PER_MESSAGE
        await again.write(message(*[None] * MAX_TICKS_PER_MESSAGE))
        heard = 0
        while heard < MAX_TICKS_PER_MESSAGE:
            heard = (await again.read()).committed.number
        assert served.node_time == MAX_TICKS_PER_MESSAGE


async def test_one_that_is_refused_takes_none_of_the_others_with_it_and_none_behind_it_is_applied() -> (
    None
):
    async with serving(config()) as served:
        found = await answers(served, message(None, None, UNKNOWN_SEGMENT, None, None))
        assert found[-1] != (5, "committed")
        assert (2, "committed") in found
        assert [each for each in found if each[1] != "committed"] == [
            (3, "unknown_segment"), (4, "out_of_order"), (5, "out_of_order"),
        ]  # fmt: skip
        assert served.node_time == 2


async def test_a_message_of_more_than_may_be_is_refused_whole() -> None:
    async with serving(config()) as served:
        ticks = await served.ticks()
        await ticks.call.write(message(*[None] * (MAX_TICKS_PER_MESSAGE + 1)))
        code, details = await status_of(ticks.call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"a message of {MAX_TICKS_PER_MESSAGE + 1} ticks, the limit is" in details
        assert served.node_time == 0


async def test_a_message_without_ticks_ends_the_stream() -> None:
    async with serving(config()) as served:
        ticks = await served.ticks()
        await ticks.call.write(message())
        assert (await status_of(ticks.call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_same_message_twice_counts_once() -> None:
    async with serving(config()) as served:
        found = await answers(served, message(None, None), message(None, None))
        assert served.node_time == 2
        assert {why for _, why in found} <= {"committed", "out_of_order"}


def test_what_was_answered_is_written_before_a_stream_ends() -> None:
    """A node closes its half, and is answered in the moment in which the stream looks whether to end."""
    stream = TickStream()
    stream.handed([SubmitTick(stream, 1, TickContent())])
    assert not stream.answered
    stream.durable(1)
    assert not stream.answered


async def test_a_node_that_attaches_gets_the_pipeline_and_then_what_it_becomes() -> None:
    spec = PipelineSpec("p", ("a",), fronts=("front",))
    grown = replace(spec, segments=("a", "new"))
    stream = TickStream()
    stream.changed(grown)  # before it is known whose stream it is
    stream.spec = spec
    stream.attached(3)
    (message,) = await stream.next_messages()
    assert spec_from_pb(message.attached.spec) == spec
    stream.changed(replace(grown, name="another"))
    for newer in (replace(spec, max_nodes=7), grown):  # which nobody has read meanwhile
        stream.changed(newer)
    (message,) = await stream.next_messages()
    assert spec_from_pb(message.changed) == grown
    stream.attached(3)  # by the next stream, say, to which nothing has been sent of it
    (message,) = await stream.next_messages()
    assert spec_from_pb(message.attached.spec) == grown


# --- what a node sends ----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 200), max_size=50), st.integers(0, 20))
def test_ticks_that_have_gathered_share_messages_in_their_order(
    sizes: list[int], most: int
) -> None:
    contents = [pb.TickContent(leaves=["x" * 2_000 * size] if size else []) for size in sizes]
    sent = list(messages_of(list(enumerate(contents, 1)), most))
    groups: list[Sequence[node_pb.NumberedTick]] = [
        (each.tick,) if each.HasField("tick") else each.ticks.ticks for each in sent
    ]
    assert [tick.number for group in groups for tick in group] == list(range(1, len(sizes) + 1))
    assert [tick.content for group in groups for tick in group] == contents
    assert all(len(group) <= max(1, most) for group in groups)
    # One alone goes as ever, so that homes of any release take it.
    assert all(
        each.HasField("tick") == (len(group) == 1) for each, group in zip(sent, groups, strict=True)
    )
    assert all(
        each.ByteSize() < 300_000
        for each, group in zip(sent, groups, strict=True)
        if len(group) > 1
    )


def test_a_node_sends_no_more_in_a_message_than_its_home_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, attached = 3, node_pb.Attached
    sent: list[int] = []
    monkeypatch.setattr(
        node_pb, "Attached", lambda **fields: attached(**(fields | {"max_ticks_per_message": most}))
    )

    def noted(
        ticks: Iterable[tuple[int, pb.TickContent]], most: int
    ) -> Iterator[node_pb.CommitTicksRequest]:
        sent.append(most)
        return messages_of(ticks, most)

    monkeypatch.setattr("tracker.client.node.messages_of", noted)
    with embedded.EmbeddedTracker() as running:
        running.register(PipelineSpec("p", ("a",), front_count=1))
        with NodeClient(running.target, "p", "n") as node:
            node.join(HANG_S)
            ticks = [
                TickContent(joins=(FrontJoin("f", 0),)),
                TickContent(heartbeats=(Heartbeat("f", 1),)),
            ]
            futures = [node.commit(tick) for tick in (*ticks, *[TickContent()] * 20)]
            assert [future.result(HANG_S) for future in futures] == list(range(1, 23))
    assert set(sent) == {most}
