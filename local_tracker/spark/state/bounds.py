"""Up to which event time a query has absorbed, and what that says of its state, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from local_tracker.spark.query.logs import CheckpointLog, Watermarks
from local_tracker.spark.state.clocks import NO_WATERMARK_TELLS, by_clock
from local_tracker.spark.state.entries import Told
from local_tracker.spark.state.recorded import StateRecord
from local_tracker.spark.state.rules import (
    LONGEST_MS,
    POLICY,
    US_PER_MS,
    StateKind,
    StatePlan,
    WatermarkPolicy,
)
from tracker.client.state_names import UNKNOWN, UNSEEN, Bound, Rows
from tracker.errors import Code, FilesError


@dataclass(frozen=True, slots=True)
class Latest:
    """What is latest in state of all that is emitted later, in µs since 1970: the event time of a row, and the end of
    a window. None where there is no such."""

    row_us: int | None = None
    end_us: int | None = None


class Running(Protocol):
    """What is asked of a query while it runs, of batches that are over; see `RunningQuery`."""

    def absorbed_ms(self, batch: int, longest_delay_ms: int) -> int | None: ...

    def was_evaluated(self, batch: int) -> bool: ...

    def is_empty(self, batch: int) -> bool: ...

    def left_ms(self, batch: int, watermark_ms: int) -> int | None: ...

    def latest(self, batch: int) -> Latest | None: ...


class LogBounds:
    """By the watermarks that Spark logs of each batch and, where they do not tell, by asking the query, and
    at last by what is in its state."""

    def __init__(
        self,
        plan: StatePlan,
        log: CheckpointLog,
        running: Running | None = None,
        last_batch: int = -1,
        is_unknown: bool = False,
    ) -> None:
        """running: the query, if it runs in this process. last_batch: up to which its ticks are durable; is_unknown:
        whether there is an entry then whose bound is not known."""
        self._plan, self._log, self._running = plan, log, running
        self._last_batch, self._is_unknown = last_batch, is_unknown
        self._policy: WatermarkPolicy | None = None
        self._recorded = StateRecord(log).read()
        self._is_clock_checked = plan.held_for is None

    def told(self, batch: int) -> Told:
        """What is known of a batch that is over, from what may be purged later. Raises FilesError."""
        self._check_clock()
        told = self._by_logs(batch)
        if batch <= self._last_batch:  # what is found now would change nothing
            return told
        if told.is_empty:
            self._is_unknown = False
            return told
        self._is_unknown = self._is_unknown or told.bound_ms in (UNKNOWN, UNSEEN)
        in_state_ms = self._in_state_ms(batch) if self._is_unknown else None
        if in_state_ms is None:
            return told
        self._is_unknown = False
        return replace(told, in_state_ms=in_state_ms)

    def _check_clock(self) -> None:
        """Raises FilesError where what a user says of a watermark cannot hold the state; its operators are known since
        the first batch."""
        if self._is_clock_checked:
            return
        if name := by_clock(self._log):
            raise FilesError(f"{name} {NO_WATERMARK_TELLS}", Code.FILES_LOG)
        self._is_clock_checked = True

    def bound_of(self, event_time_ms: int) -> Bound | None:
        """Until when rows are in state that were absorbed with event times up to one. None where what the query's plan
        says may not be so: a user has said it, or there was another plan."""
        plan = self._plan
        if plan.held_for is not None or len(self._recorded.plans) > 1:
            return None
        if plan.kind is StateKind.SESSION:
            return Rows(event_time_ms)
        return plan.bound_ms(event_time_ms) if plan.kind is StateKind.BOUNDED else None

    def _in_state_ms(self, batch: int) -> int | None:
        """The watermark by which all is out that is in state after a batch. Not of a query that has got another plan:
        the schema of its state may still say which event times the old one had."""
        plan = self._plan
        is_read = plan.kind is StateKind.BOUNDED and plan.held_for is None
        if self._running is None or not is_read or len(self._recorded.plans) > 1:
            return None
        latest = self._running.latest(batch)
        return None if latest is None else in_state_ms(plan, latest)

    def _by_logs(self, batch: int) -> Told:
        marks, plan = self._log.watermarks(batch), self._under_policy(batch)
        told = self._by_plan(batch, marks, plan)
        if not told.is_empty and self._may_be_unseen(batch, marks, plan):
            told = replace(told, bound_ms=self._by_clock(batch, plan))
        if not self._recorded.unseen or told.is_empty:
            return told
        return replace(told, is_empty=self._is_empty(batch))

    def _may_be_unseen(self, batch: int, marks: Watermarks, plan: StatePlan) -> bool:
        """Whether Spark may have found a batch in its sink and not evaluated it again, so that its rows are in the state
        and in no watermark, of any batch. Where nobody was there to record it, a batch that moved the watermark was
        evaluated, and any other may not have been."""
        if batch in self._recorded.unseen:
            return self._running is None or not self._running.was_evaluated(batch)
        is_bounded = plan.held_for is not None and plan.held_for.ahead_ms is not None
        return self._running is None and is_bounded and marks.next_ms <= marks.at_ms

    def _by_clock(self, batch: int, plan: StatePlan) -> Bound:
        """The watermark by which all is out that a batch absorbed which was not evaluated: its rows were there when Spark
        planned it, and how far event times run ahead of the clock is given, or not known. Raises FilesError."""
        if plan.held_for is None or plan.held_for.ahead_ms is None:
            return UNSEEN
        latest_ms = self._log.offsets(batch).timestamp_ms + plan.held_for.ahead_ms
        if self._recorded.has_changed_since(batch):
            latest_ms = self._recorded.out_ms(latest_ms)
        return plan.bound_ms(latest_ms)

    def _by_plan(self, batch: int, marks: Watermarks, plan: StatePlan) -> Told:
        if plan.kind is StateKind.USER:  # its code alone knows, until nothing is left
            return Told(marks.at_ms, UNKNOWN, is_empty=self._is_empty(batch))
        absorbed_ms = plan.absorbed_ms(marks.next_ms)
        if absorbed_ms is not None and self._recorded.has_changed_since(batch):
            absorbed_ms = max(absorbed_ms, self._recorded.out_ms(marks.next_ms))
        if plan.kind is StateKind.BOUNDED and plan.one_watermark_tells:
            if absorbed_ms is None:
                return Told(marks.at_ms, UNKNOWN)
            bound_ms = plan.bound_ms(absorbed_ms)
            if not self._tells_of_before(plan):
                is_empty = self._is_unknown and self._is_empty(batch)
                return Told(marks.at_ms, bound_ms, is_empty=is_empty)
            return Told(marks.at_ms, bound_ms, max(bound_ms, self._out_ms(marks)))
        if self._is_empty(batch):
            return Told(marks.at_ms, UNKNOWN, is_empty=True)
        if plan.kind is StateKind.SESSION:
            return self._of_sessions(batch, plan, marks, absorbed_ms)
        absorbed_ms = self._absorbed_ms(batch, plan)
        return Told(marks.at_ms, UNKNOWN if absorbed_ms is None else plan.bound_ms(absorbed_ms))

    def _tells_of_before(self, plan: StatePlan) -> bool:
        """Whether what the watermark says now is so of all that was absorbed before, by another plan, and not known then:
        a user says it of all."""
        return plan.held_for is not None or self._recorded.one_has_told

    def _out_ms(self, marks: Watermarks) -> int:
        """The least that it says then: the plans of before may have kept rows for longer."""
        plans = self._recorded.plans
        return self._recorded.out_ms(marks.next_ms) if len(plans) > 1 else -LONGEST_MS

    def _is_empty(self, batch: int) -> bool:
        return self._running is not None and self._running.is_empty(batch)

    def _of_sessions(
        self, batch: int, plan: StatePlan, marks: Watermarks, absorbed_ms: int | None
    ) -> Told:
        """Sessions are over when none is left that begins by the latest event time absorbed."""
        at_ms, earlier = marks.at_ms, None
        if absorbed_ms is not None and self._tells_of_before(plan):
            earlier = Rows(max(absorbed_ms, self._out_ms(marks)))
        if absorbed_ms is None:
            absorbed_ms = self._absorbed_ms(batch, plan)
        bound = UNKNOWN if absorbed_ms is None else Rows(absorbed_ms)
        left_ms = None if self._running is None else self._running.left_ms(batch, at_ms)
        return Told(at_ms, bound, earlier, left_ms)

    def _absorbed_ms(self, batch: int, plan: StatePlan) -> int | None:
        """An upper bound of the event times of a batch, where the log does not tell it."""
        if self._running is None:
            return None
        return self._running.absorbed_ms(batch, max(one.delay_ms for one in plan.watermarks))

    def _under_policy(self, batch: int) -> StatePlan:
        """The plan under the policy that the checkpoint has begun with, which Spark keeps to. Raises FilesError."""
        if len(self._plan.watermarks) < 2 or self._plan.held_for is not None:
            return self._plan
        if self._policy is None:
            logged = self._log.settings(batch).get(POLICY, WatermarkPolicy.MIN.value)
            self._policy = WatermarkPolicy(str(logged).lower())
        return replace(self._plan, policy=self._policy)


def in_state_ms(plan: StatePlan, latest: Latest) -> int | None:
    """The watermark, in ms since 1970, by which all is out that is in state, by what is latest there. None where there
    is nothing, or the plan says nothing of it."""
    found = list[int | None]()
    if latest.row_us is not None:
        found.append(plan.bound_ms(latest.row_us // US_PER_MS))
    if latest.end_us is not None:
        found.append(plan.window_bound_ms(latest.end_us))
    bounds = [bound_ms for bound_ms in found if bound_ms is not None]
    return max(bounds) if found and len(bounds) == len(found) else None
