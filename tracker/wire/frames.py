"""Frames between two shards: entries, confirmations, reports."""

from __future__ import annotations

from collections.abc import Iterable

from acker.v1 import peer_service_pb2 as peer_pb
from tracker.core import messages as m
from tracker.wire.entries import entry_from_pb, write_entry
from tracker.wire.refusals import invalid
from tracker.wire.shards import positions_from_pb, positions_to_pb


def frame_to_pb(frame: m.Frame) -> peer_pb.ExchangeRequest:
    message = peer_pb.ExchangeRequest()
    write_frame(frame, message)
    return message


def write_frame(frame: m.Frame, message: peer_pb.ExchangeRequest) -> None:
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
        case m.ShardReport():
            message.report.CopyFrom(_report_to_pb(body))
        case m.ReportWanted():
            message.report_wanted.SetInParent()


def frame_from_pb(message: peer_pb.ExchangeRequest) -> m.Frame:
    """Raises Refused(INVALID) for a frame that says nothing or is malformed."""
    body: m.FrameBody
    match message.WhichOneof("frame"):
        case "entries":
            entries = tuple(entry_from_pb(entry) for entry in message.entries.entries)
            body = m.Entries(message.entries.first, entries)
        case "received":
            body = m.EntriesReceived(message.received.number, message.received.again)
        case "report":
            body = _report_from_pb(message.report)
        case "report_wanted":
            body = m.ReportWanted()
        case _:
            raise invalid("a frame says nothing; is the other process of a newer version?")
    return m.Frame(message.from_shard, message.epoch, body)


def slots_to_pb(slots: Iterable[tuple[int, int]]) -> list[peer_pb.SegmentSlot]:
    return [peer_pb.SegmentSlot(segment=segment, slot=slot) for segment, slot in slots]


def slots_from_pb(slots: Iterable[peer_pb.SegmentSlot]) -> tuple[tuple[int, int], ...]:
    return tuple((s.segment, s.slot) for s in slots)


def run_to_pb(run: m.TouchedRun) -> peer_pb.TouchedRun:
    return peer_pb.TouchedRun(home=run.home, last=run.last, touched=slots_to_pb(run.touched))


def run_from_pb(run: peer_pb.TouchedRun) -> m.TouchedRun:
    return m.TouchedRun(run.home, run.last, slots_from_pb(run.touched))


def _report_to_pb(report: m.ShardReport) -> peer_pb.ShardReport:
    return peer_pb.ShardReport(
        number=report.number,
        whole=report.whole,
        applied=positions_to_pb(report.applied),
        cut=positions_to_pb(report.cut),
        pipelines=[_pipeline_report_to_pb(pipeline) for pipeline in report.pipelines],
    )


def _report_from_pb(message: peer_pb.ShardReport) -> m.ShardReport:
    return m.ShardReport(
        message.number,
        message.whole,
        positions_from_pb(message.applied),
        tuple(_pipeline_report_from_pb(pipeline) for pipeline in message.pipelines),
        positions_from_pb(message.cut),
    )


def _pipeline_report_to_pb(report: m.PipelineReport) -> peer_pb.PipelineReport:
    message = peer_pb.PipelineReport(
        pipeline=report.pipeline,
        runs=[run_to_pb(run) for run in report.runs],
        announced=slots_to_pb(report.announced),
        generation=report.generation,
    )
    for low in report.lows:
        message.lows.add(
            segment=low.segment,
            slot=low.slot,
            open_slots=low.open_slots,
            open_items=low.open_items,
            late_items=low.late_items,
            written_off_items=low.written_off_items,
        )
    for front in report.fronts:
        message.fronts.add(
            node_id=front.node_id,
            front=front.front,
            segment=front.segment,
            pin=front.pin,
            heartbeat=front.heartbeat,
            incarnation=front.incarnation,
            number=front.number,
        )
    for node_id, name, incarnation, number in report.left:
        message.left.add(node_id=node_id, front=name, incarnation=incarnation, number=number)
    return message


def _pipeline_report_from_pb(message: peer_pb.PipelineReport) -> m.PipelineReport:
    return m.PipelineReport(
        pipeline=message.pipeline,
        lows=tuple(
            m.SegmentLow(
                low.segment,
                low.slot,
                low.open_slots,
                low.open_items,
                low.late_items,
                low.written_off_items,
            )
            for low in message.lows
        ),
        fronts=tuple(
            m.FrontReport(
                f.node_id, f.front, f.segment, f.pin, f.heartbeat, f.incarnation, f.number
            )
            for f in message.fronts
        ),
        left=tuple(
            (left.node_id, left.front, left.incarnation, left.number) for left in message.left
        ),
        runs=tuple(run_from_pb(run) for run in message.runs),
        announced=slots_from_pb(message.announced),
        generation=message.generation,
    )
