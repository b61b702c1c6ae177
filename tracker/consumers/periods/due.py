"""Which periods are complete, from a position on.

    plan = Plan.of(target, "orders", "load", every="1h")
    found = plan.look(target, recorded, most=24)    # the periods that are complete, from a recorded position on
    record = to_record(plan.name, found.position, found.generation)    # kept once they are handed out for good

It follows from the position and min time alone: whoever comes back to an older position finds the same periods under
the same keys. So nothing is lost if the position is kept after the periods are handed out, and nothing is doubled where
what takes them knows their keys.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tracker.client.admin import Admin
from tracker.client.connection import Backoff
from tracker.client.history import history, moment, of_each
from tracker.client.subscriber import Subscriber
from tracker.client.updates import slot_until
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.position import Recorded
from tracker.core.model.slots import FOREVER
from tracker.errors import UnavailableError

LOOK_TIMEOUT_S = 15.0
"""How long one look waits for any process of the tracker."""
MAX_BACKLOG = 100_000
"""Periods that may lie between a first position and min time; more are a mistake: a pipeline that begins in
1970, say."""
PARTITION_FORMAT = "%Y-%m-%dT%H:%M:%S"
"""A period's start in UTC, as a name of its partition."""


@dataclass(frozen=True, slots=True)
class Due:
    """Periods that are complete, in order, and where the next one begins: FOREVER behind the last. generation: of the
    pipeline, in which that was heard."""

    periods: list[Period]
    position: int
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The periods of a segment (None: of the whole pipeline), and the slot at which the first begins. generation: in which
    the pipeline was that it is of, where that is known: nothing of another one of its name counts by it."""

    pipeline: str
    segment: str | None
    cut: Cut
    begin: int
    generation: int | None = field(default=None, kw_only=True, compare=False)

    @classmethod
    def of(
        cls,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        every: str,
        since: int | datetime | None = None,
    ) -> Plan:
        """Asks the tracker for the pipeline's settings. every: a duration (`1h`), or a number where slots are
        numbers. since: the slot or moment behind which the first period lies; the pipeline's start if not
        given. Raises RefusedError, UnavailableError, and ValueError for an unknown segment and for periods that
        are not whole slots."""
        with Admin(target, LOOK_TIMEOUT_S) as admin:
            info = admin.pipeline(pipeline)
        spec = info.spec
        if segment is not None and segment not in spec.segments:
            raise ValueError(
                f"pipeline {pipeline!r} has no segment {segment!r}; it has {', '.join(spec.segments)}"
            )
        cut = Cut.parse(spec, every)
        first = spec.start_slot if since is None else slot_until(since, spec.slack_ns, spec.rounds)
        begin = cut.first(first)
        return cls(pipeline, segment, cut, begin, generation=info.state.generation)

    @property
    def name(self) -> str:
        """What a position of it is a position in: plans that differ in it have no period in common."""
        whose = f"{self.pipeline}/{self.segment or '*'}"
        return f"{whose} by {self.cut.slots} slots"

    def renewed(self, target: str | Sequence[str]) -> Plan:
        """The same with the lateness that the pipeline has now: an operator may apply another one while it runs. Raises
        RefusedError, UnavailableError."""
        with Admin(target, LOOK_TIMEOUT_S) as admin:
            spec = admin.pipeline(self.pipeline).spec
        return replace(self, cut=replace(self.cut, lateness=spec.lateness_slots))

    def period(self, from_slot: int, to_slot: int | None = None) -> Period:
        """As `Cut.period`."""
        return self.cut.period(self.pipeline, self.segment, from_slot, to_slot)

    def needed(self, position: int) -> int:
        """The min time by which the period that begins at a position is complete."""
        return self.cut.completes(min(position + self.cut.slots, FOREVER))

    def begun(self, min_time: int) -> int:
        """The position of who begins at a min time: that of the first period. Raises ValueError where more than
        MAX_BACKLOG periods are due by then."""
        begin, slots = self.begin, self.cut.slots
        due = 0 if min_time == FOREVER else (min_time - begin) // slots
        if due > MAX_BACKLOG:
            raise ValueError(
                f"pipeline {self.pipeline!r}: {due} periods of {slots} slots lie between slot {begin} and "
                f"min time {min_time}, the limit is {MAX_BACKLOG}; begin later (since), or let the pipeline's start be "
                "written down"
            )
        return begin

    def due(self, position: int, min_time: int, passed: Callable[[int], bool], most: int) -> Due:
        """The first `most` periods from a position on that are complete by a min time.

        passed: of a complete segment, whether min time was at a slot before it became so. Where it was not, nobody
        knows where the data ends: the last period goes on to forever.
        """
        found: list[Period] = []
        while position != FOREVER and len(found) < most and min_time >= self.needed(position):
            end = min(position + self.cut.slots, FOREVER)
            if min_time == FOREVER and not passed(self.needed(position)):
                end = FOREVER
            found.append(self.period(position, end))
            position = end
        return Due(found, position)

    def newest(
        self, target: str | Sequence[str], min_time: int, generation: int | None = None
    ) -> Period:
        """The last period that is complete by a min time, by which the first one is. generation: in which that was heard.
        Raises as `look`."""
        if min_time != FOREVER:
            count = (min_time - self.needed(self.begin)) // self.cut.slots
            return self.period(self.begin + count * self.cut.slots)
        begins = range(self.begin, FOREVER, self.cut.slots)
        passed = bisect_left(
            begins, True, 0, min((FOREVER - self.begin) // self.cut.slots, sys.maxsize),
            key=lambda begin: not self.passed(target, self.needed(begin), generation),
        )  # fmt: skip
        return self.period(begins[passed], FOREVER)

    def look(self, target: str | Sequence[str], recorded: Recorded | None, most: int) -> Due:
        """`due` by min time now, from where a record says; None: from the first on. Raises RefusedError, also where the record,
        or this without one, is of a pipeline that was deleted and another one has its name; UnavailableError."""
        with Subscriber(target, self.pipeline) as subscriber:
            subscriber.goes_on_since(self.generation if recorded is None else recorded.generation)
            min_time = subscriber.min_time(self.segment, LOOK_TIMEOUT_S)
            generation = subscriber.heard_generation
        position = self.begin if recorded is None else recorded.next
        found = self.renewed(target).due(
            position, min_time, lambda slot: self.passed(target, slot, generation), most
        )
        return replace(found, generation=generation)

    def check_same(self, target: str | Sequence[str], generation: int) -> None:
        """Raises RefusedError where the pipeline was deleted that was in a generation, and another one has its name;
        UnavailableError."""
        with Subscriber(target, self.pipeline) as subscriber:
            subscriber.goes_on_since(generation)
            subscriber.min_time(timeout_s=LOOK_TIMEOUT_S)

    def passed(self, target: str | Sequence[str], slot: int, generation: int | None = None) -> bool:
        """Of a segment that was heard, in a generation, to be complete: whether min time was at a slot before. The history
        knows, by the min time of the announcement that passed it. A process that has not announced that says nothing, and
        that it was not there all have to say: another one may have announced it on its way.
        Raises RefusedError where another pipeline has the name; UnavailableError where that is not known within
        LOOK_TIMEOUT_S, or a process is away by whose word it might be."""
        until_s, backoff = time.monotonic() + LOOK_TIMEOUT_S, Backoff()
        while True:
            answers = of_each(target, self.pipeline, slot, self.segment, generation)
            away = [each for each in answers if isinstance(each, UnavailableError)]
            told = [each for each in answers if not isinstance(each, UnavailableError)]
            if any(each.reached and each.min_time != FOREVER for each in told):
                return True
            if away:
                raise away[0]
            if all(each.reached for each in told):
                return False
            if time.monotonic() >= until_s:
                raise UnavailableError(
                    f"pipeline {self.pipeline!r} was announced to be complete, and not all processes have heard of "
                    f"that within {LOOK_TIMEOUT_S:g} s; ask again"
                )
            time.sleep(backoff.pause_s())

    def announced(
        self, target: str | Sequence[str], period: Period, generation: int | None = None
    ) -> datetime | None:
        """When the min time was announced by which a period is complete; None if nobody remembers. generation: as of
        `passed`."""
        (reached,) = history(
            target, self.pipeline, [self.cut.completes(period.to_slot)], self.segment,
            heard_generation=generation,
        )  # fmt: skip
        return moment(reached.at_ms) if reached.at_ms else None


def partition_key(period: Period, layout: str = PARTITION_FORMAT) -> str:
    """Names the partition that a period is: its start, or its first slot where slots are numbers."""
    return period.start.strftime(layout) if period.start else str(period.from_slot)
