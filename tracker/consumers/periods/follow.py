"""Periods that are complete: each hour (or any stretch of slots) once, none skipped.

    with Periods(target, "orders", "load", "1h", "/data/report/periods.json") as periods:
        periods.run(Webhook("https://reports.example/hours", "/etc/lowmark/hook.secret"))

or, for a program that does the work itself:

        for period in periods.completed():
            ...                         # one turn a period, in order, also when min time has jumped
            periods.done(period)

A period is complete when min time has reached its end (and the lateness that the fronts vouch for). It is
known by its key, which is the same after every restart. The position, in the record, is behind what was done:
a period that was given out and not done is given out again, under its key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

from tracker.client.closing import Closing
from tracker.client.subscriber import Subscriber
from tracker.consumers.periods.cut import Period
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.once import Action, do_once
from tracker.consumers.periods.position import Position
from tracker.core.model.slots import FOREVER


class Periods(Closing):
    """One consumer's way through the periods of a segment (None: of the whole pipeline)."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        every: str,
        record: str | os.PathLike[str],
        *,
        since: int | datetime | None = None,
    ) -> None:
        """every: a duration (`1h`), or a number where slots are numbers. record: the consumer's own, a path or in
        a store, which one process at a time uses. since: the slot or moment at
        which it begins, if its record does not say where it is: with the first period that has nothing from before.
        The pipeline's start if not given. Raises as `Plan.of`, and StateError."""
        self._target, self._plan = target, Plan.of(target, pipeline, segment, every, since)
        self.cut = self._plan.cut
        self._subscriber = Subscriber(target, pipeline)
        self._position = Position(self._plan.name, record, self._subscriber)

    def run(self, *actions: Action, timeout_s: float | None = None) -> int:
        """Does all of the actions for each period, in their order, each unless it is found done; and then the period
        is done. Ends as `completed`. Returns how many periods that were. Raises what the actions and `completed` do,
        after which the period is still the next one."""
        count = 0
        for period in self.completed(timeout_s):
            at = self._plan.announced(self._target, period, self._subscriber.heard_generation)
            for action in actions:
                do_once(action, period, at)
            self.done(period)
            count += 1
        return count

    def completed(self, timeout_s: float | None = None) -> Iterator[Period]:
        """The periods that are complete and not done, in order, then each when it becomes so; ends after
        `timeout_s` seconds without one (None: never). The next one is given out when the one before is
        done; if it is not, it is given out again.

        When the pipeline has become complete, there are the periods that min time has passed on its way,
        and then a last one from there to forever: where its data ends, the tracker does not know. Raises
        RefusedError, also where the record is of a pipeline that was deleted and another one has its name; StateError, and
        ValueError where more than MAX_BACKLOG periods are due.
        """
        segment = self._plan.segment
        while (position := self._position.begun(self._begin).next) != FOREVER:
            if not self._subscriber.wait_until(self._plan.needed(position), segment, timeout_s):
                return
            min_time = self._subscriber.min_time(segment)
            # Behind it: what has moved since a longer lateness was applied does not count by the shorter one.
            self._plan = self._plan.renewed(self._target)
            yield from self._plan.due(position, min_time, self._passed, most=1).periods
        # Refuses, if it was another pipeline that was done to its end.
        self._subscriber.min_time(segment)

    def done(self, period: Period) -> None:
        """The period was dealt with for good. May be repeated; raises StateError if it is not the next."""
        self._position.done(f"period {period.key}", period.from_slot, period.to_slot)

    def _passed(self, slot: int) -> bool:
        return self._plan.passed(self._target, slot, self._subscriber.heard_generation)

    def _begin(self) -> int:
        self._subscriber.goes_on_since(self._plan.generation)
        return self._plan.begun(self._subscriber.min_time(self._plan.segment))

    def close(self) -> None:
        self._subscriber.close()
        self._position.close()

    def __enter__(self) -> Periods:
        self._position.__enter__()
        return self
