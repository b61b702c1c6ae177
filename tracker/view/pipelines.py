"""A pipeline's state for people and for scripts: clock times or numbers, lags, and plain JSON."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from tracker.client import PipelineInfo, ShardInfo
from tracker.client.updates import slot_time
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.view.model import age_ns, lag_slots, span_ns

CHART_LOOKS = 20
"""How many looks back a chart reaches."""


def clock_time(slot: int, spec: PipelineSpec) -> datetime | None:
    """The moment at which a slot begins, and with rounds its time; None for forever, beyond the years 1 to 9999,
    and where the pipeline's slots are numbers."""
    if spec.time is TimeKind.NUMBER or slot == FOREVER:
        return None
    return slot_time(spec.times.whole(slot), spec.slack_ns)


def time_text(slot: int, spec: PipelineSpec) -> str:
    """A slot as what the pipeline's slots count: a clock time (UTC), or a number; `complete` for forever. Within
    a time, with the round."""
    if slot == FOREVER:
        return "complete"
    moment = clock_time(slot, spec)
    time, number = spec.times.split(slot)
    rounds = f", round {number}" if number else ""
    if moment is None:
        return f"slot {slot}" if spec.rounds == 1 else f"time {time}{rounds}"
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    has_seconds = spec.slack_ns * spec.rounds % 10**9 == 0
    return (text if has_seconds else f"{text}.{moment.microsecond // 1000:03d}") + rounds


def time_and_slot_text(slot: int, spec: PipelineSpec) -> str:
    """A slot as `time_text`, and its number behind a clock time."""
    text = time_text(slot, spec)
    return text if text.startswith("slot") else f"{text} (slot {slot})"


def slots_text(slots: int, spec: PipelineSpec) -> str:
    """So many slots as a span of time, or as their number where they last no time."""
    span = span_ns(slots, spec)
    return f"{slots:,} slot{'s' * (slots != 1)}" if span is None else span_text(span)


def span_text(span_ns: int) -> str:
    """A span of time in the unit that suits it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(span_ns) >= 2 * size * 10**9:
            return f"{span_ns / size / 1e9:,.1f} {unit}"
    return f"{span_ns / 1e9:.2f} s"


class WatchHistory:
    """Repeated looks at one pipeline, perhaps by way of several processes of the tracker: what is
    shown never goes back, and the last lags make a chart. Another pipeline of the name begins anew."""

    def __init__(self) -> None:
        self._generation = 0
        self._furthest: dict[str | None, int] = {}
        self._lags: dict[str, deque[int]] = {}

    def take(self, info: PipelineInfo) -> PipelineInfo:
        """The pipeline as it is to be shown."""
        state = info.state
        # A restart begins the next generation; the end of a pipeline that is deleted uses the next one up.
        if abs(state.generation - self._generation) > 1:
            self._furthest.clear()
            self._lags.clear()
        self._generation = state.generation
        segments = tuple(
            replace(segment, min_time=self._forward(segment.segment, segment.min_time))
            for segment in state.segments
        )
        least = self._forward(None, state.min_time)
        state = replace(state, segments=segments, min_time=least, complete=least == FOREVER)
        info = replace(info, state=state)
        for segment in segments:
            lags = self._lags.setdefault(segment.segment, deque(maxlen=CHART_LOOKS))
            lags.append(lag_slots(segment.min_time, info) or 0)
        return info

    def _forward(self, key: str | None, slot: int) -> int:
        self._furthest[key] = max(slot, self._furthest.get(key, slot))
        return self._furthest[key]

    def lags(self, segment: str) -> list[int]:
        """The last lags, in slots, oldest first."""
        return list(self._lags.get(segment, ()))


def min_time_json(slot: int, spec: PipelineSpec) -> dict[str, Any]:
    """A min time as JSON: the slot, and the moment at which it begins, if it begins at one; with rounds, the number
    of its time, and the round."""
    moment = clock_time(slot, spec)
    found = {
        "min_time": slot,
        "time": moment.isoformat() if moment else None,
        "complete": slot == FOREVER,
    }
    if spec.rounds > 1:
        found |= dict(zip(("whole_time", "round"), spec.times.split(slot), strict=True))
    return found


def pipeline_json(info: PipelineInfo) -> dict[str, Any]:
    """A pipeline and its state as JSON: slots as numbers, and min times as clock times too, unless they
    are none."""
    spec = asdict(info.spec)
    spec["silent_front"] = info.spec.silent_front.value
    spec["time"] = info.spec.time.value
    for policy in spec["front_policies"]:
        policy["silent_front"] = policy["silent_front"].value
    state = asdict(info.state)
    for place in (state, *state["segments"]):
        slot = place["min_time"]
        place |= min_time_json(slot, info.spec)
        place |= lags_json(slot, info)
    return {"spec": spec, "state": state} | ({"omitted": info.omitted} if info.omitted else {})


def lags_json(slot: int, info: PipelineInfo) -> dict[str, int | None]:
    """How far a min time is behind, as JSON: null where there is nothing to compare, and for times
    where slots are numbers."""
    lag, age = lag_slots(slot, info), age_ns(slot, info.spec)
    return {
        "lag_slots": lag,
        "lag_ms": span_ms(lag, info.spec),
        "age_ms": None if age is None else age // 10**6,
    }


def span_ms(slots: int | None, spec: PipelineSpec) -> int | None:
    """So many slots in milliseconds; None for none, and where they last no time."""
    span = None if slots is None else span_ns(slots, spec)
    return None if span is None else span // 10**6


def shards_json(shards: list[ShardInfo]) -> list[dict[str, Any]]:
    """The shards as JSON."""
    return [
        {**asdict(shard.state), "role": shard.state.role.value, "address": shard.address}
        for shard in shards
    ]
