"""Frames between two shards: entries, confirmations, reports. The first of a message has its fields in the
message itself, those that follow are messages of their own; to read and to write, both are one."""

from __future__ import annotations

from acker.v1 import peer_service_pb2 as peer_pb
from tracker.core import log as m
from tracker.wire.codec import derived
from tracker.wire.entries import entry_from_pb, write_entry
from tracker.wire.refusals import invalid
from tracker.wire.shards import level_from_pb

RUN = derived(m.TouchedRun, peer_pb.TouchedRun)
_PIPELINE = derived(
    m.PipelineReport,
    peer_pb.PipelineReport,
    derived(m.SegmentLow, peer_pb.SegmentLow),
    derived(m.FrontReport, peer_pb.FrontReport),
    RUN,
)
_REPORT = derived(m.ShardReport, peer_pb.ShardReport, _PIPELINE)


class _Newest:
    """The message of the report that was written last. The same report goes to each other shard; it is known by
    its identity, and nobody changes the message: whoever sends it has a copy."""

    def __init__(self) -> None:
        self._made: tuple[m.ShardReport, peer_pb.ShardReport] | None = None

    def message(self, report: m.ShardReport) -> peer_pb.ShardReport:
        """Made where it is another report than before."""
        made = self._made
        if made is None or made[0] is not report:
            made = self._made = report, _REPORT.to_pb(report)
        return made[1]


_newest_report = _Newest()

Carrier = peer_pb.ExchangeRequest | peer_pb.Frame


def frame_to_pb(frame: m.Frame) -> peer_pb.ExchangeRequest:
    """A message with one frame, to which others may be added."""
    message = peer_pb.ExchangeRequest()
    write_frame(frame, message)
    return message


def write_frame(frame: m.Frame, message: Carrier) -> None:
    """Writes a frame into an empty message."""
    message.from_shard, message.epoch = frame.shard, frame.epoch
    body = frame.body
    match body:
        case m.Entries():
            message.entries.first = body.first
            for entry in body.entries:
                write_entry(entry, message.entries.entries.add())
        case m.EntriesReceived():
            message.received.number = body.number
            message.received.again = body.again
            message.received.level = body.level
            message.received.speaks = body.speaks
        case m.ShardReport():
            message.report.CopyFrom(_newest_report.message(body))
        case m.ReportWanted():
            message.report_wanted.SetInParent()


def carriers(message: peer_pb.ExchangeRequest) -> tuple[Carrier, ...]:
    """Of a message that has a frame: what carries each of its frames, in order."""
    return (message, *message.following)


def frame_from_pb(message: Carrier) -> m.Frame:
    """Raises Refused(INVALID) for a frame that says nothing or is malformed."""
    body: m.FrameBody
    match message.WhichOneof("frame"):
        case "entries":
            entries = tuple(entry_from_pb(entry) for entry in message.entries.entries)
            body = m.Entries(message.entries.first, entries)
        case "received":
            received = message.received
            level, speaks = level_from_pb(received.level), level_from_pb(received.speaks)
            body = m.EntriesReceived(received.number, received.again, level, speaks)
        case "report":
            body = _REPORT.from_pb(message.report)
        case "report_wanted":
            body = m.ReportWanted()
        case _:
            raise invalid("a frame says nothing; is the other process of a newer version?")
    return m.Frame(message.from_shard, message.epoch, body)
