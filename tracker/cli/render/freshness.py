"""How far segments have been behind: a table, and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from tracker.client.moments import parse_duration_ns
from tracker.core.insight.freshness import NONE_MS, SegmentFreshness, WindowLevels
from tracker.core.model import PipelineSpec, TimeKind
from tracker.view.pipelines import slots_text, span_text


def within_ms(within: str, spec: PipelineSpec) -> int:
    """A duration, or a number of slots where the pipeline's are numbers, as the tracker compares them. Raises
    ValueError."""
    if spec.time is not TimeKind.NUMBER:
        return parse_duration_ns(within) // 10**6
    if not within.isdecimal():
        raise ValueError(f"the slots of pipeline {spec.name!r} are numbers: {within!r} is none")
    return int(within) * spec.slack_ns // 10**6


def freshness_json(segment: SegmentFreshness, spec: PipelineSpec) -> dict[str, Any]:
    """A segment's levels; null where there is nothing to compare. Where slots are numbers, lags are in slots
    (`lag_slots`, `p50_slots`), and nothing is in milliseconds, nor has an age."""
    now, numbers = segment.now, spec.time is TimeKind.NUMBER
    return {
        "segment": segment.segment or None,
        "lag_slots": _known_slots(now.lag_ms, spec) if numbers else None,
        "lag_ms": None if numbers else _known(now.lag_ms),
        "age_ms": _known(now.age_ms),
        "windows": [_window_json(window, spec) for window in segment.windows],
    }


def _window_json(window: WindowLevels, spec: PipelineSpec) -> dict[str, Any]:
    if spec.time is not TimeKind.NUMBER:
        ages = {name: _known_level(name, value) for name, value in asdict(window.age).items()}
        lags = {name: _known_level(name, value) for name, value in asdict(window.lag).items()}
        return {"seconds": window.seconds, "lag": lags, "age": ages}
    lags = {
        name.replace("_ms", "_slots"): _known_slots(value, spec) if name.endswith("_ms") else value
        for name, value in asdict(window.lag).items()
    }
    return {"seconds": window.seconds, "lag": lags}


def _known_level(name: str, value: Any) -> Any:
    return _known(value) if name.endswith("_ms") else value


def _known_slots(milliseconds: int, spec: PipelineSpec) -> int | None:
    """A lag that the tracker counts as if each slot lasted the pipeline's slack."""
    return None if milliseconds == NONE_MS else _slots(milliseconds, spec)


def _known(milliseconds: int) -> int | None:
    return None if milliseconds == NONE_MS else milliseconds


def freshness_table(
    segments: tuple[SegmentFreshness, ...], within: str | None, spec: PipelineSpec
) -> Table:
    """A line for each segment and window. within: seconds, or slots where these are numbers, with the share
    of time in it as a column. by the clock: how far behind it now; the rest is behind the promises."""
    table = Table("segment", "by the clock", "now", "window", "p50", "p95", "p99", "most")
    if within is not None:
        table.add_column(
            f"within {within}{' slots' if spec.time is TimeKind.NUMBER else ''}", justify="right"
        )
    for segment in segments:
        name = segment.segment or "the whole pipeline"
        now = [_text(ms, spec) for ms in (segment.now.age_ms, segment.now.lag_ms)]
        for index, window in enumerate(segment.windows):
            level = window.lag
            row = [name, *now] if index == 0 else ["", "", ""]
            row.append(span_text(window.seconds * 10**9).replace(".00", "").replace(".0", ""))
            row += [
                _text(v, spec) for v in (level.p50_ms, level.p95_ms, level.p99_ms, level.most_ms)
            ]
            if within is not None:
                row.append(f"{100 * level.within:.1f} %" if level.samples else "-")
            table.add_row(*row)
    return table


def _text(milliseconds: int, spec: PipelineSpec) -> str:
    if milliseconds == NONE_MS:
        return "-"
    if spec.time is TimeKind.NUMBER:
        return slots_text(_slots(milliseconds, spec), spec)
    return span_text(milliseconds * 10**6)


def _slots(milliseconds: int, spec: PipelineSpec) -> int:
    return round(milliseconds * 10**6 / spec.slack_ns)
