"""What subscribers of one pipeline are sent: made once, as bytes, for all who have heard the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER

MAX_KEPT = 64
"""Messages that are kept of one state of a pipeline. Subscribers that listen have all heard the one before it; who
comes back has heard any."""


@dataclass(frozen=True, slots=True)
class Known:
    """What one stream has heard of a pipeline. chosen: the segments that it hears of, by number; min_times: of each of
    them, None before the first; least: of the whole pipeline; removed: those of them that it knows to be removed."""

    chosen: tuple[int, ...]
    min_times: tuple[int | None, ...]
    least: int | None
    removed: frozenset[int] = frozenset()

    def with_segments(self, number: int) -> Known:
        """The same, and that nothing is known of those segments, up to so many, which have come since."""
        new = range(len(self.chosen), number)
        if not new:
            return self
        nothing = (None,) * len(new)
        return replace(self, chosen=(*self.chosen, *new), min_times=(*self.min_times, *nothing))


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of a SubscribeResponse, and what is known by whoever has them; None where there is nothing to say."""

    data: bytes | None
    known: Known


class Telling:
    """The newest state of one pipeline, and the messages that tell it."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._removed = frozenset(map(spec.segments.index, spec.removed))
        self._state: tuple[Sequence[int], int, int] | None = None
        self._made: dict[Known, Message] = {}

    @property
    def kept(self) -> int:
        """How many messages are kept."""
        return len(self._made)

    def message(
        self, known: Known, min_times: Sequence[int], least: int, generation: int = 0
    ) -> Message:
        """What is beyond all that is known. min_times: of the pipeline's segments, by number; least: of all of it, in this
        generation."""
        state = min_times, least, generation
        if state != self._state or len(self._made) >= MAX_KEPT:
            self._state, self._made = state, {}
        message = self._made.get(known)
        if message is None:
            message = self._made[known] = self._message(known, min_times, least, generation)
        return message

    def _message(
        self, known: Known, min_times: Sequence[int], least: int, generation: int
    ) -> Message:
        spec, fresh, now = self.spec, [], []
        for segment, heard in zip(known.chosen, known.min_times, strict=True):
            reached = min_times[segment]
            if heard is None or reached > heard:
                fresh.append(pb.SegmentTime(segment=spec.segments[segment], min_time=reached))
                heard = reached
            now.append(heard)
        least = least if known.least is None else max(least, known.least)
        removed = self._removed.intersection(known.chosen)
        after = Known(known.chosen, tuple(now), least, removed)
        if after == known:
            return Message(None, known)
        response = progress_pb.SubscribeResponse(
            pipeline=spec.name,
            segments=fresh,
            min_time=least,
            complete=least == FOREVER,
            slack_ns=spec.slack_ns,
            rounds=spec.rounds,
            generation=generation,
            removed=[spec.segments[segment] for segment in sorted(removed - known.removed)],
        )
        return Message(response.SerializeToString(), after)
