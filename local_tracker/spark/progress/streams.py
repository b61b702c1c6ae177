"""What streams of progress give out: the rows between two offsets, which follow from the offsets alone.

So a batch that Spark plans again after a crash has the same rows, whatever the tracker has announced or forgotten since;
and what was announced while nobody read is in the next batch. An offset never goes back, though another process of the
tracker, that is asked later, may be behind.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeAlias

from tracker.client.admin import Admin
from tracker.client.closing import Closing
from tracker.client.moments import parse_slot
from tracker.client.subscriber import Subscriber
from tracker.consumers.periods.cut import PERIOD_TYPES
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.position import from_record, to_record
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, StateError
from tracker.view.tables import MIN_TIMES, Rows, Types, min_time_row

Offset: TypeAlias = dict[str, Any]
"""What Spark keeps in the checkpoint as JSON."""

LOOK_INTERVAL_S = 0.1
"""How often the tracker is asked at most. Spark asks for the newest offset every 10 ms when there is nothing new."""
THE_OFFSET = "the checkpoint's offset"


class Stream(Closing, ABC):
    """What one pipeline has announced, from an offset to the next. Spark asks from one thread."""

    types: Types

    def __init__(
        self, target: str | Sequence[str], pipeline: str, segment: str | None, timeout_s: float
    ) -> None:
        self.pipeline, self.segment = pipeline, segment
        self._target, self._timeout_s = target, timeout_s
        self._subscriber = Subscriber(target, pipeline)
        self._newest: Offset | None = None
        """The furthest that was given out, by this process or, before it began again, by another."""
        self._look_at_s = 0.0

    @cached_property
    def spec(self) -> PipelineSpec:
        """Asked for once: its slots stay as they are. Raises RefusedError, UnavailableError."""
        with Admin(self._target, self._timeout_s) as admin:
            return admin.pipeline(self.pipeline).spec

    def latest(self, start: Offset | None = None) -> Offset:
        """The newest offset; the one that was given out before, as long as there is no newer one. start: one that was
        given out. Raises RefusedError, UnavailableError."""
        known = self._newest if self._newest is not None else start
        if known is None:
            known = self.initial()
        self._subscriber.goes_on_since(known.get("generation"))
        if time.monotonic() >= self._look_at_s:
            known = self.beyond(known, self._subscriber.min_times(self._timeout_s))
            self._look_at_s = time.monotonic() + LOOK_INTERVAL_S
        self._newest = known
        return known

    def between(self, start: Offset, end: Offset) -> Rows:
        """The rows from one offset to another. Raises StateError for offsets of something else; RefusedError where they are of
        a pipeline that was deleted, and another one has its name: none of its periods counts as complete for that."""
        found = list(self.rows(start, end)) if start != end else []
        # After a restart Spark shows where it was by two equal ones, before it asks for the latest.
        if self._newest is None:
            self._subscriber.goes_on_since(end.get("generation"))
            self._subscriber.min_times(self._timeout_s)
            self._newest = end
        return found

    @abstractmethod
    def initial(self) -> Offset:
        """Where who begins now begins."""

    @abstractmethod
    def beyond(self, known: Offset, min_times: Mapping[str | None, int]) -> Offset:
        """The offset at some min times; the one that is known where they are not beyond it."""

    @abstractmethod
    def rows(self, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
        """Those between two offsets that differ."""

    def close(self) -> None:
        self._subscriber.close()


class MinTimeStream(Stream):
    """Announcements: of each segment whose min time has moved since the last batch the newest, and of the whole
    pipeline. Min time is cumulative, so those in between state nothing more.

    An offset has min times by name of segment, "" for the whole pipeline, when they were heard, and in which generation."""

    types = MIN_TIMES.types

    def initial(self) -> Offset:
        """Raises RefusedError for a segment that is unknown."""
        self._subscriber.min_time(self.segment, self._timeout_s)
        return {"of": self._of, "at_ms": 0, "min_times": {}, **self._heard_in}

    @property
    def _of(self) -> str:
        return f"min times of {self.pipeline}/{self.segment or '*'}"

    def beyond(self, known: Offset, min_times: Mapping[str | None, int]) -> Offset:
        before = self._min_times(known)
        now = {name or "": slot for name, slot in min_times.items() if self._is_chosen(name)}
        moved = {name: slot for name, slot in now.items() if slot > before.get(name, slot - 1)}
        if not moved:
            return known
        at_ms = time.time_ns() // 10**6
        return {
            "of": self._of, "at_ms": at_ms, "min_times": {**before, **moved}, **self._heard_in,
        }  # fmt: skip

    @property
    def _heard_in(self) -> Offset:
        return {"generation": self._subscriber.heard_generation}

    def _is_chosen(self, name: str | None) -> bool:
        return self.segment is None or name == self.segment

    def rows(self, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
        before, at = self._min_times(start), datetime.fromtimestamp(end["at_ms"] / 1000, UTC)
        for name, slot in self._min_times(end).items():
            if slot > before.get(name, slot - 1):
                yield min_time_row(self.pipeline, name or None, slot, self.spec, at)

    def _min_times(self, offset: Offset) -> dict[str, int]:
        match offset:
            case {"of": self._of, "min_times": dict(found), "at_ms": int()}:
                return found
        raise StateError(
            f"{THE_OFFSET} {offset} is not one of {self._of}: give each stream a checkpoint of its own",
            Code.STATE_POSITION,
        )


class CompletedStream(Stream):
    """Periods: each when it is complete, in order, and none twice.

    An offset is a position (`tracker/consumers/periods/position.py`). That of a complete pipeline has beside it where
    the last period begins, which goes on to forever."""

    types = PERIOD_TYPES

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        timeout_s: float,
        every: str,
        since: str | None,
    ) -> None:
        """every, since: as those of `lowmark periods follow`."""
        super().__init__(target, pipeline, segment, timeout_s)
        self._every, self._since = every, since

    @cached_property
    def _plan(self) -> Plan:
        since = None
        if self._since is not None:
            since = parse_slot(self._since, self.spec.slack_ns, self.spec.rounds)
        return Plan.of(self._target, self.pipeline, self.segment, self._every, since)

    def initial(self) -> Offset:
        plan = self._plan
        self._subscriber.goes_on_since(plan.generation)
        min_time = self._subscriber.min_time(self.segment, self._timeout_s)
        return self._record(plan.begun(min_time))

    def beyond(self, known: Offset, min_times: Mapping[str | None, int]) -> Offset:
        plan, position, _ = self._plan, *self._position(known)
        min_time = min_times[self.segment]
        if position == FOREVER or min_time < plan.needed(position):
            return known
        plan = self._plan = plan.renewed(self._target)
        if min_time < plan.needed(position):
            return known
        newest = plan.newest(self._target, min_time, self._subscriber.heard_generation)
        if newest.to_slot == FOREVER:
            last = max(position, newest.from_slot)
            return self._record(FOREVER, {"last": last})
        return self._record(max(position, newest.to_slot))

    def _record(self, position: int, kept: Mapping[str, Any] | None = None) -> Offset:
        return to_record(self._plan.name, position, self._subscriber.heard_generation, kept)

    def rows(self, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
        (position, _), (until, last) = self._position(start), self._position(end)
        for slot in range(position, until if last is None else last, self._plan.cut.slots):
            yield self._plan.period(slot).row()
        if last is not None:
            yield self._plan.period(last, FOREVER).row()

    def _position(self, offset: Offset) -> tuple[int, int | None]:
        """The slot at which what is not given out begins, and where the last period does if it was."""
        recorded = from_record(offset, self._plan.name, THE_OFFSET)
        assert recorded is not None, offset
        return recorded.next, recorded.kept.get("last")
