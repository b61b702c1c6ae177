"""From reports of complete periods, which may come twice, to their release, once: the rule, without a scheduler.

A report says of one period that it is complete, and with it all before. A release gives out the periods from where
the last one ended to the end of the newest report, and is recorded together with what it gives out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracker.consumers.due import partition_key
from tracker.consumers.periods import Period, Periods
from tracker.core.model.slots import FOREVER

MOST_RELEASED = 500
"""Periods that one release gives out; the next goes on behind them."""


@dataclass(frozen=True, slots=True)
class Report:
    """A period that is complete, and how time is cut."""

    period: Period
    periods: Periods

    def payload(self) -> dict[str, Any]:
        """As JSON, read back by `reported`."""
        return {
            **self.period.fields(), "pipeline": self.period.pipeline, "segment": self.period.segment,
            "slots": self.periods.slots, "slack_ns": self.periods.slack_ns,
            "partition_key": partition_key(self.period),
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
        if isinstance(payload, Mapping) and "slots" in payload:
            periods = Periods(payload["slots"], payload["from_slot"], 0, payload["slack_ns"])
            period = periods.period(
                payload["pipeline"], payload["segment"], payload["from_slot"], payload["to_slot"]
            )
            return Report(period, periods)
    return None


def to_release(
    released: Iterable[Mapping[str, Any]], oldest: Report | None, newest: Report | None
) -> Release:
    """What is due. released: what was recorded, the newest first; oldest, newest: of the reports that there are. The
    first release begins with the oldest report. Whether reports go back, as after a restart, does not matter.

    Raises ValueError where the record is of other periods: those of another pipeline, or cut otherwise."""
    if newest is None or oldest is None:
        return Release([], {})
    last, slots = newest.period, newest.periods.slots
    whose = f"{last.pipeline}/{last.segment or '*'}"
    recorded = next((extra for extra in released if "released_to" in extra), None)
    position = recorded["released_to"] if recorded else oldest.period.from_slot
    foreign = recorded is not None and recorded["of"] != whose
    if foreign or (position != FOREVER and (last.from_slot - position) % slots):
        raise ValueError(
            f"periods of {whose} with {slots} slots do not follow what was released: {recorded or oldest.period.key}; "
            "give these an asset of their own"
        )
    keys: list[str] = []
    while position < last.to_slot and len(keys) < MOST_RELEASED:
        end = last.to_slot if position == last.from_slot else position + slots
        keys.append(
            partition_key(newest.periods.period(last.pipeline, last.segment, position, end))
        )
        position = end
    return Release(keys, {"of": whose, "released_to": position})
