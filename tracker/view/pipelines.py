"""A pipeline's state for people and for scripts: clock times, lags, and plain JSON."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from typing import Any

from tracker.client import PipelineInfo, ShardInfo
from tracker.client.updates import slot_time
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER
from tracker.view.model import age_ns, lag_ns

CHART_LOOKS = 20
"""How many looks back a chart reaches."""


def slot_text(slot: int, slack_ns: int) -> str:
    """A slot as the clock time (UTC) at which it begins; `complete` for forever."""
    if slot == FOREVER:
        return "complete"
    moment = slot_time(slot, slack_ns)
    if moment is None:
        return f"slot {slot}"
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return text if slack_ns % 10**9 == 0 else f"{text}.{moment.microsecond // 1000:03d}"


def time_text(slot: int, spec: PipelineSpec) -> str:
    """A slot as what the pipeline's slots count: a clock time (UTC), or a number."""
    if spec.time is TimeKind.NUMBER and slot != FOREVER:
        return f"slot {slot}"
    return slot_text(slot, spec.slack_ns)


def span_text(span_ns: int) -> str:
    """A span of time in the unit that suits it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(span_ns) >= 2 * size * 10**9:
            return f"{span_ns / size / 1e9:,.1f} {unit}"
    return f"{span_ns / 1e9:.2f} s"


class WatchHistory:
    """Repeated looks at one pipeline, perhaps by way of several processes of the tracker: what is
    shown never goes back, and the last lags make a chart."""

    def __init__(self) -> None:
        self._furthest: dict[str | None, int] = {}
        self._lags: dict[str, deque[int]] = {}

    def take(self, info: PipelineInfo) -> PipelineInfo:
        """The pipeline as it is to be shown."""
        state = info.state
        segments = tuple(
            replace(segment, min_time=self._forward(segment.segment, segment.min_time))
            for segment in state.segments
        )
        least = self._forward(None, state.min_time)
        state = replace(state, segments=segments, min_time=least, complete=least == FOREVER)
        info = replace(info, state=state)
        for segment in segments:
            lags = self._lags.setdefault(segment.segment, deque(maxlen=CHART_LOOKS))
            lags.append(lag_ns(segment.min_time, info) or 0)
        return info

    def _forward(self, key: str | None, slot: int) -> int:
        self._furthest[key] = max(slot, self._furthest.get(key, slot))
        return self._furthest[key]

    def lags(self, segment: str) -> list[int]:
        return list(self._lags.get(segment, ()))


def min_time_json(slot: int, slack_ns: int) -> dict[str, Any]:
    """A min time as JSON: the slot, and the moment at which it begins."""
    moment = slot_time(slot, slack_ns)
    return {
        "min_time": slot,
        "time": moment.isoformat() if moment else None,
        "complete": slot == FOREVER,
    }


def pipeline_json(info: PipelineInfo) -> dict[str, Any]:
    """A pipeline and its state as JSON: slots as numbers, and min times as clock times too."""
    spec = asdict(info.spec)
    spec["silent_front"] = info.spec.silent_front.value
    spec["time"] = info.spec.time.value
    for policy in spec["front_policies"]:
        policy["silent_front"] = policy["silent_front"].value
    state = asdict(info.state)
    for place in (state, *state["segments"]):
        slot = place["min_time"]
        place |= min_time_json(slot, info.spec.slack_ns)
        place |= lags_json(slot, info)
    return {"spec": spec, "state": state}


def lags_json(slot: int, info: PipelineInfo) -> dict[str, int | None]:
    """How far a min time is behind, as JSON: null where there is nothing to compare."""
    spans = {"lag_ms": lag_ns(slot, info), "age_ms": age_ns(slot, info)}
    return {name: None if span is None else span // 10**6 for name, span in spans.items()}


def shards_json(shards: list[ShardInfo]) -> list[dict[str, Any]]:
    """The shards as JSON."""
    return [
        {**asdict(shard.state), "role": shard.state.role.value, "address": shard.address}
        for shard in shards
    ]
