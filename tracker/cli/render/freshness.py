"""How far segments have been behind: a table, and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from tracker.core.insight.freshness import NONE_MS, Level, SegmentFreshness
from tracker.view.pipelines import span_text


def freshness_json(segment: SegmentFreshness) -> dict[str, Any]:
    """A segment's levels; null where there is nothing to compare."""
    return {
        "segment": segment.segment or None,
        "lag_ms": _known(segment.now.lag_ms),
        "age_ms": _known(segment.now.age_ms),
        "windows": [
            {
                "seconds": window.seconds,
                "lag": _level_json(window.lag),
                "age": _level_json(window.age),
            }
            for window in segment.windows
        ],
    }


def _level_json(level: Level) -> dict[str, Any]:
    return {
        name: _known(value) if name.endswith("_ms") else value
        for name, value in asdict(level).items()
    }


def _known(milliseconds: int) -> int | None:
    return None if milliseconds == NONE_MS else milliseconds


def freshness_table(
    segments: tuple[SegmentFreshness, ...], within: float | None, clock: bool
) -> Table:
    """A line for each segment and window. within: seconds, with the share of time in it as a column.
    clock: behind the clock, not behind the promises."""
    table = Table("segment", "now", "window", "p50", "p95", "p99", "most")
    if within is not None:
        table.add_column(f"within {within:g} s", justify="right")
    for segment in segments:
        name = segment.segment or "the whole pipeline"
        now = _text(segment.now.age_ms if clock else segment.now.lag_ms)
        for index, window in enumerate(segment.windows):
            level = window.age if clock else window.lag
            row = [name, now] if index == 0 else ["", ""]
            row.append(span_text(window.seconds * 10**9).replace(".00", "").replace(".0", ""))
            row += [_text(v) for v in (level.p50_ms, level.p95_ms, level.p99_ms, level.most_ms)]
            if within is not None:
                row.append(f"{100 * level.within:.1f} %" if level.samples else "-")
            table.add_row(*row)
    return table


def _text(milliseconds: int) -> str:
    return "-" if milliseconds == NONE_MS else span_text(milliseconds * 10**6)
