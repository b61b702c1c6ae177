"""Min times as a subscriber hears them, and moments as slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tracker.core.slots import FOREVER, HIGHEST_SLOT, slot_start_ns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Update:
    """Min time of a segment (`segment` None: of the whole pipeline) has moved.

    min_time: a slot, exclusive: every item with a slot below it is completely processed, and none
    can appear; time: the same as a moment (UTC), None when complete or beyond what datetime holds.
    """

    pipeline: str
    segment: str | None
    min_time: int
    complete: bool
    time: datetime | None


def slot_time(slot: int, slack_ns: int) -> datetime | None:
    """The moment at which a slot begins; None for forever and beyond the years 1 to 9999."""
    if slot == FOREVER:
        return None
    try:
        return _EPOCH + timedelta(microseconds=slot_start_ns(slot, slack_ns) // 1000)
    except OverflowError:
        return None


def slot_until(moment: datetime, slack_ns: int) -> int:
    """The least min time by which everything labelled before `moment` is complete: the moment's
    slot, rounded up. A naive datetime counts as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    unix_ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(-(-unix_ns // slack_ns), HIGHEST_SLOT)


class Heard:
    """What one subscriber has heard of one pipeline; lets only news through, so that nothing goes
    back when another process of the tracker answers."""

    def __init__(self, pipeline: str, segments: Iterable[str]) -> None:
        self.pipeline = pipeline
        self.chosen = tuple(segments)
        self.segments: dict[str, int] = {}
        self.whole: int | None = None
        self.slack_ns = 0

    def subscribe(self) -> progress_pb.SubscribeRequest:
        """The first message of a stream: what is wanted, and what was heard."""
        return progress_pb.SubscribeRequest(
            subscribe=progress_pb.Subscription(
                pipeline=self.pipeline,
                segments=self.chosen,
                heard=[
                    pb.SegmentTime(segment=name, min_time=slot)
                    for name, slot in self.segments.items()
                ],
                heard_min_time=self.whole,
            )
        )

    def take(self, message: progress_pb.SubscribeResponse) -> list[Update]:
        """The updates in a message that are news: of segments first, then of the pipeline."""
        self.slack_ns = message.slack_ns
        updates = []
        for segment in message.segments:
            if segment.min_time > self.segments.get(segment.segment, segment.min_time - 1):
                self.segments[segment.segment] = segment.min_time
                updates.append(self._update(segment.segment, segment.min_time))
        if self.whole is None or message.min_time > self.whole:
            self.whole = message.min_time
            updates.append(self._update(None, message.min_time))
        return updates

    def _update(self, segment: str | None, slot: int) -> Update:
        time = slot_time(slot, self.slack_ns)
        return Update(self.pipeline, segment, slot, slot == FOREVER, time)
