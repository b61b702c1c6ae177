"""Frames between processes: one that cannot be taken is refused and changes nothing; none ends a process.

Processes trust one another: a frame that is well formed, and false, is believed. So what is asked here
is that no frame makes a process raise, now or when it comes back from its log, but for the one reason
for which it stops by itself: another shard holds more of its log than it has.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from tests.fuzz.examples import fuzz
from tests.fuzz.messages import parsed, sent
from tests.fuzz.wired import SPEC, Wired, recovered
from tracker.core.log import Frame, FrameArrived, RetireNode, Send
from tracker.core.model import Batch, Cells, RefusalCode, Refused, Unit
from tracker.core.process import LogLost
from tracker.core.process.checking import check_frame
from tracker.wire.frames import frame_from_pb, frame_to_pb
from tracker.wire.pipelines import state_to_pb
from tracker.wire.storage import record_from_bytes

TO, FROM = 0, 1


def exchanged() -> list[Frame]:
    """What shard 1 sends to shard 0 in a life with everything in it."""
    cluster = Wired()
    seen = len(cluster.effects)
    names = (f"n{number}" for number in range(99))
    node = cluster.node(SPEC, next(n for n in names if cluster.routing.home("p", n) == FROM))
    node.join_front("G")
    node.commit(
        created=[(0, slot, slot) for slot in range(10, 16)],
        units_created=[Unit(0, "file:///a", 10)],
        batch=Batch("query", 1, b"one"),
    )
    node.commit(consumed=[(0, slot, slot) for slot in range(10, 16)], heartbeats={"G": 12})
    node.commit(leaves=["G"], created=[(1, 40, 9)])
    node.leave()
    lost = cluster.node(SPEC, node.key.node_id)
    lost.commit(created=[(1, 41, 9), (1, 42, 8)])
    given_up = Cells.of([(1, 41, 9, 1), (1, 42, 8, 1)])
    cluster.ask(FROM, RetireNode, "p", lost.key.node_id, given_up, 1)
    cluster.settle()
    return [e.frame for e in cluster.effects[seen:] if isinstance(e, Send) and e.shard == TO]


FRAMES = [frame_to_pb(frame) for frame in exchanged()]


@st.composite
def arrivals(draw: st.DrawFn) -> list[peer_pb.ExchangeRequest]:
    """The first of the frames, as they were sent; then some that were tampered with."""
    first = draw(st.integers(0, len(FRAMES) - 1))
    arriving = list(FRAMES[:first])
    for frame in FRAMES[first : first + draw(st.integers(1, 4))]:
        arriving.append(draw(sent(frame)))
    return arriving


class Alone(Wired):
    """Shard 0, whose counterpart is whoever sends the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.held = {(TO, FROM), (FROM, TO)}

    def take(self, message: peer_pb.ExchangeRequest) -> bool:
        """A frame arrives; False if it was refused, True if it was taken. LogLost ends the shard."""
        before = self.state()
        try:
            frame = frame_from_pb(message)
            check_frame(self.processes[TO], frame)
        except Refused as refused:
            assert refused.refusal.code is RefusalCode.INVALID
            assert refused.refusal.message
            assert self.state() == before
            return False
        effects = self.processes[TO].handle(FrameArrived(frame), self.now_ns)
        self._take(TO, effects)
        return True

    def handle(self, shard: int, event: Any) -> list[Any]:
        effects = self.processes[shard].handle(event, self.now_ns)
        self._take(shard, effects)
        return effects


@fuzz(arrivals())
def test_a_frame_is_taken_or_refused_and_never_ends_a_process(
    arriving: list[peer_pb.ExchangeRequest],
) -> None:
    cluster = Alone()
    for message in arriving:
        try:
            cluster.take(message)
            cluster.settle()
        except LogLost as lost:
            assert "acknowledged entries were lost" in str(lost)
            return
    process = cluster.processes[TO]
    for spec in process.pipelines():
        state_to_pb(process.describe(spec.name, cluster.now_ns)).SerializeToString()
    records = [(at, record_from_bytes(data)) for at, data in cluster.log(TO)]
    recovered(cluster, TO, None, records)


def test_bytes_that_are_no_message_are_no_frame() -> None:
    assert parsed(peer_pb.ExchangeRequest, b"\xff\xff\xff") is None
