"""Frames between processes: one that cannot be taken is refused and changes nothing; none ends a process.

Processes trust one another: a frame that is well formed, and false, is believed. So what is asked here
is that no frame makes a process raise, now or when it comes back from its log, but for the one reason
for which it stops by itself: another shard holds more of its log than it has.
"""

from __future__ import annotations

from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from tests.fuzz.examples import fuzz
from tests.fuzz.messages import parsed, sent
from tests.fuzz.wired import Peer, lived
from tracker.core.log import Send
from tracker.core.process import LogLost
from tracker.wire.frames import frame_to_pb

TO, FROM = 0, 1


LIVED = lived(FROM)
FRAMES = [
    frame_to_pb(effect.frame)
    for effect in LIVED.effects[LIVED.begun :]
    if isinstance(effect, Send) and effect.shard == TO
]
"""What shard 1 sends to shard 0 in a life with everything in it."""


@st.composite
def arrivals(draw: st.DrawFn) -> list[peer_pb.ExchangeRequest]:
    """The first of the frames, as they were sent; then some that were tampered with."""
    first = draw(st.integers(0, len(FRAMES) - 1))
    arriving = list(FRAMES[:first])
    for frame in FRAMES[first : first + draw(st.integers(1, 4))]:
        arriving.append(draw(sent(frame)))
    return arriving


@fuzz(arrivals())
def test_a_frame_is_taken_or_refused_and_never_ends_a_process(
    arriving: list[peer_pb.ExchangeRequest],
) -> None:
    peer = Peer(FROM, believed=True)
    for message in arriving:
        try:
            peer.hear_message(message)
            peer.settle()
        except LogLost as lost:
            assert "acknowledged entries were lost" in str(lost)
            return
    peer.check_receiver()


def test_bytes_that_are_no_message_are_no_frame() -> None:
    assert parsed(peer_pb.ExchangeRequest, b"\xff\xff\xff") is None
