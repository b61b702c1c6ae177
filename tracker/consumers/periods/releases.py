"""From reports of complete periods, which may come twice, to their release, once: the rule, without a scheduler.

A report states of one period that it is complete, and with it all before. A release gives out the periods from where
the last release ended to the end of the newest report, and its position is recorded together with what it gives out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.due import MAX_BACKLOG, Plan, partition_key
from tracker.consumers.periods.position import from_record, to_record
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, StateError

MOST_RELEASED = 500
"""Periods that one release gives out; the next goes on behind them, with the next report."""
LOOKED_AT = 100
"""The newest events of an asset, among which the last of its own releases is looked for: somebody may have made some by
hand."""
RECORD = "lowmark"
"""Under which name an event has the position of its release."""


@dataclass(frozen=True, slots=True)
class Report:
    """A period of a plan that is complete."""

    plan: Plan
    period: Period
    generation: int | None = None
    """Of the pipeline, in which that was heard."""

    def payload(self) -> dict[str, Any]:
        """As JSON, read back by `reported`."""
        return {
            **self.period.fields(), "begin": self.plan.begin, "pipeline": self.plan.pipeline, "segment": self.plan.segment,
            "slots": self.plan.cut.slots, "slack_ns": self.plan.cut.slack_ns,
            "partition_key": partition_key(self.period), "generation": self.generation,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """Partition keys to give out, in order, and what is recorded with them."""

    keys: list[str]
    extra: dict[str, Any]


def reported(extras: Iterable[Mapping[str, Any]]) -> Report | None:
    """The first report among some events; None without one. Events that are none, made by hand, say, are passed
    over."""
    for extra in extras:
        payload = extra.get("payload")
        if isinstance(payload, Mapping) and "begin" in payload:
            cut = Cut(payload["slots"], slack_ns=payload["slack_ns"])
            plan = Plan(payload["pipeline"], payload["segment"], cut, payload["begin"])
            period = plan.period(payload["from_slot"], payload["to_slot"])
            return Report(plan, period, payload.get("generation"))
    return None


def to_release(
    released: Sequence[Mapping[str, Any]],
    newest: Report | None,
    check_same: Callable[[Plan, int], None],
) -> Release:
    """What is due. released: what was recorded, the newest first, LOOKED_AT at most; newest: of the reports. The first
    release begins with the plan. Whether reports go back, as after a restart, does not matter.

    check_same: raises where the pipeline was deleted that was in a generation, and another one has its name. It is called
    where the record is of another generation than the report.

    Raises StateError where the record is of other periods: those of another pipeline, or cut otherwise; and where
    others have made so many events that it may be behind them; and what `check_same` raises."""
    if newest is None:
        return Release([], {})
    plan, last = newest.plan, newest.period
    extra = next((each for each in released if RECORD in each), {})
    if not extra and len(released) >= LOOKED_AT:
        raise StateError(
            f"none of the newest {LOOKED_AT} events is of a release of {plan.name}, so it is not known up to where "
            "they went: let nobody else make events of the asset, and begin with one of a new name, and since",
            Code.STATE_POSITION,
        )
    recorded = from_record(extra.get(RECORD), plan.name, "what was released")
    if recorded is not None and recorded.generation not in (None, newest.generation):
        check_same(plan, recorded.generation)
    position = plan.begin if recorded is None else recorded.next
    # No report follows the last one.
    most = MAX_BACKLOG if last.to_slot == FOREVER else MOST_RELEASED
    due = plan.due(position, last.to_slot, lambda slot: slot <= last.from_slot, most)
    return Release(
        [partition_key(each) for each in due.periods],
        {RECORD: to_record(plan.name, due.position, newest.generation)},
    )
