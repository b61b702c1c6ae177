"""A pipeline's state for people and for scripts: clock times, lags, bars, and plain JSON."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracker.client import PipelineInfo, ShardInfo
from tracker.client.updates import slot_time
from tracker.core.slots import FOREVER, slot_start_ns

_BAR_CELLS = 24


def slot_text(slot: int, slack_ns: int) -> str:
    """A slot as the clock time at which it begins; `complete` for forever."""
    if slot == FOREVER:
        return "complete"
    moment = slot_time(slot, slack_ns)
    if moment is None:
        return f"slot {slot}"
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (
        f".{moment.microsecond // 1000:03d}" if slack_ns < 10**9 else ""
    )


def lag_text(slot: int, slack_ns: int, now_ns: int) -> str:
    """How far a min time is behind the clock."""
    if slot == FOREVER:
        return "-"
    lag_s = (now_ns - slot_start_ns(slot, slack_ns)) / 1e9
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if abs(lag_s) >= 2 * size:
            return f"{lag_s / size:.1f} {unit}"
    return f"{lag_s:.2f} s"


def pipeline_json(info: PipelineInfo) -> dict[str, Any]:
    """A pipeline and its state as JSON: slots as numbers, and min times as clock times too."""
    spec = asdict(info.spec)
    spec["silent_front"] = info.spec.silent_front.value
    state = asdict(info.state)
    slack_ns = info.spec.slack_ns
    for place in (state, *state["segments"]):
        moment = slot_time(place["min_time"], slack_ns)
        place["time"] = moment.isoformat() if moment else None
    return {"spec": spec, "state": state}


def pipelines_table(pipelines: list[PipelineInfo]) -> Table:
    table = Table("pipeline", "segments", "fronts", "min time", "open items", "state")
    for info in pipelines:
        state = info.state
        table.add_row(
            info.spec.name,
            str(len(state.segments)),
            str(len(state.fronts)),
            slot_text(state.min_time, info.spec.slack_ns),
            f"{sum(s.open_items for s in state.segments):,}",
            "complete" if state.complete else "running" if state.begun else "waits for fronts",
        )
    return table


def pipeline_view(info: PipelineInfo, shards: list[ShardInfo]) -> RenderableType:
    """The live view of one pipeline: segments, fronts, shards."""
    slack_ns, now_ns = info.spec.slack_ns, time.time_ns()
    return Group(
        _headline(info, slack_ns),
        _segments(info, slack_ns, now_ns),
        _fronts(info, slack_ns),
        _shards(shards),
    )


def _headline(info: PipelineInfo, slack_ns: int) -> Text:
    state = info.state
    text = Text.assemble(
        (info.spec.name, "bold"),
        "  everything before ",
        (slot_text(state.min_time, slack_ns), "bold green"),
        " is processed",
    )
    if not state.begun:
        text.append("  (waits for its declared fronts)", "yellow")
    if state.late_items:
        text.append(f"  {state.late_items:,} late items", "red")
    return text


def _segments(info: PipelineInfo, slack_ns: int, now_ns: int) -> Table:
    table = Table("segment", "min time", "lag", "open slots", "open items", "", expand=False)
    most = max((s.open_items for s in info.state.segments), default=0)
    for segment in info.state.segments:
        filled = round(_BAR_CELLS * segment.open_items / most) if most > 0 else 0
        table.add_row(
            segment.segment,
            slot_text(segment.min_time, slack_ns),
            lag_text(segment.min_time, slack_ns, now_ns),
            f"{segment.open_slots:,}",
            f"{segment.open_items:,}",
            Text("█" * max(0, filled), "cyan"),
        )
    return table


def _fronts(info: PipelineInfo, slack_ns: int) -> Table:
    table = Table("front", "feeds", "promises", "silent for")
    for front in info.state.fronts:
        table.add_row(
            front.front if front.front == front.node_id else f"{front.node_id}/{front.front}",
            front.segment,
            slot_text(front.heartbeat, slack_ns) if front.settled else "joining or leaving",
            f"{front.silent_ms / 1000:.1f} s",
        )
    return table


def _shards(shards: list[ShardInfo]) -> Table:
    table = Table("shard", "address", "link", "entries behind")
    for shard in shards:
        state = shard.state
        link = Text("up", "green") if state.connected else Text("down", "red")
        table.add_row(str(state.shard), shard.address, link, str(state.entries_behind))
    return table
