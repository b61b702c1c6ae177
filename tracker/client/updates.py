"""Min times as a subscriber hears them, and moments as slots."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT, slot_start_ns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Update:
    """Min time of a segment (`segment` None: of the whole pipeline) has moved, or the segment was removed from the
    pipeline while it runs.

    min_time: a slot, exclusive: every item with a slot below it is completely processed, and none
    can appear; time: the same as a moment (UTC), None when complete or beyond what datetime holds;
    removed: the segment takes nothing more, and is complete when what is in it is processed.
    """

    pipeline: str
    segment: str | None
    min_time: int
    complete: bool
    time: datetime | None
    removed: bool = False


def slot_time(slot: int, slack_ns: int) -> datetime | None:
    """The moment at which a slot begins; None for forever and beyond the years 1 to 9999."""
    if slot == FOREVER:
        return None
    try:
        return _EPOCH + timedelta(microseconds=slot_start_ns(slot, slack_ns) // 1000)
    except OverflowError:
        return None


def slot_until(when: int | datetime, slack_ns: int, rounds: int = 1) -> int:
    """The least min time by which everything labelled before a moment is complete: the moment's
    time, rounded up. A naive datetime counts as UTC. A slot is as it is."""
    if not isinstance(when, datetime):
        return when
    return _within(-(-unix_ns(when) // (slack_ns * rounds)) * rounds)


def slot_at(when: int | datetime, slack_ns: int, rounds: int = 1) -> int:
    """The slot that a moment lies in, of round 0. A naive datetime counts as UTC. A slot is as it is."""
    if not isinstance(when, datetime):
        return when
    return _within(unix_ns(when) // (slack_ns * rounds) * rounds)


def _within(slot: int) -> int:
    """The slot, or the nearest that there is."""
    return max(LOWEST_SLOT, min(slot, HIGHEST_SLOT))


def unix_ns(moment: datetime) -> int:
    """Nanoseconds since 1970, in whole microseconds. A naive datetime counts as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


class MinTimes(Protocol):
    """What an answer or a message about one pipeline says: SubscribeResponse, GetMinTimeResponse."""

    @property
    def segments(self) -> Iterable[pb.SegmentTime]: ...
    @property
    def min_time(self) -> int: ...
    @property
    def slack_ns(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def HasField(self, field_name: Literal["generation"]) -> bool: ...


class Heard:
    """The furthest min times that one subscriber has heard of one pipeline, from whichever process:
    nothing that it tells goes back, though another process may be behind, and no segment is behind the
    pipeline. (The pipeline may be behind all of its segments, since it was restarted.) Safe for threads.

    Keys are names of segments, and None for the whole pipeline.
    """

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.slack_ns = 0
        """Width of a slot; 0 before anything was heard."""
        self.rounds = 1
        """Slots that each time has."""
        self.generation: int | None = None
        """The newest of which anything was heard; None before, and of a process of an older release."""
        self._slots: dict[str | None, int] = {}
        self._removed: set[str] = set()
        self._lock = threading.Lock()

    def hear(self, message: MinTimes) -> None:
        """Takes in what a process says."""
        with self._lock:
            self.slack_ns, self.rounds = message.slack_ns, message.rounds
            if message.HasField("generation"):
                self._raise_generation(message.generation)
            for segment in message.segments:
                self._raise(segment.segment, segment.min_time)
            self._raise(None, message.min_time)

    def hear_removed(self, segments: Iterable[str]) -> None:
        """Segments were removed from the pipeline."""
        with self._lock:
            self._removed.update(segments)

    def removed(self) -> list[str]:
        """The segments of which it was heard that they were removed."""
        with self._lock:
            return sorted(self._removed)

    def reached(self, segment: str | None, slot: int, generation: int | None = None) -> None:
        """A process has announced that min time is at least this, in a generation."""
        with self._lock:
            if generation is not None:
                self._raise_generation(generation)
            self._raise(segment, slot)

    def hear_generation(self, generation: int) -> None:
        """The pipeline that is meant was in this generation."""
        with self._lock:
            self._raise_generation(generation)

    def _raise_generation(self, generation: int) -> None:
        self.generation = max(generation, self.generation or 0)

    def _raise(self, key: str | None, slot: int) -> None:
        self._slots[key] = max(slot, self._slots.get(key, slot))

    def get(self, segment: str | None) -> int | None:
        """The furthest that was heard; None before anything was, or for an unknown segment."""
        with self._lock:
            slot = self._slots.get(segment)
            return None if slot is None else max(slot, self._slots.get(None, slot))

    def has_reached(self, segment: str | None, slot: int) -> bool:
        """Whether so much was heard."""
        found = self.get(segment)
        return found is not None and found >= slot

    def names(self) -> list[str]:
        """The segments of which something was heard."""
        with self._lock:
            return [name for name in self._slots if name is not None]

    def known(self) -> dict[str | None, int]:
        """All that was heard."""
        with self._lock:
            return dict(self._slots)

    def news(
        self, told: dict[str | None, tuple[int, bool]], chosen: Iterable[str]
    ) -> Iterator[Update]:
        """What lies beyond `told` (min time, and whether removed), which is brought up to date: of the chosen segments
        (of all, if none is) in the order in which they were first heard, then of the pipeline. Each is the newest
        when it is taken, however long the one before took."""
        wanted = set(chosen)
        for key in (*self.names(), None):
            if key is not None and wanted and key not in wanted:
                continue
            slot, removed = self.get(key), key in self._removed
            if slot is not None and (key not in told or (slot, removed) > told[key]):
                told[key] = slot, removed
                time = slot_time(slot, self.slack_ns)
                yield Update(self.pipeline, key, slot, slot == FOREVER, time, removed)


def subscribe_request(
    pipeline: str,
    chosen: Iterable[str],
    known: dict[str | None, int],
    generation: int | None = None,
) -> progress_pb.SubscribeRequest:
    """The first message of a stream: what is wanted, what needs not be sent again, and in which generation that was."""
    return progress_pb.SubscribeRequest(
        subscribe=progress_pb.Subscription(
            pipeline=pipeline,
            segments=chosen,
            heard=[
                pb.SegmentTime(segment=name, min_time=slot)
                for name, slot in known.items()
                if name is not None
            ],
            heard_min_time=known.get(None),
            heard_generation=generation,
        )
    )
