"""Pipelines as tables, with small charts."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracker.cli.render.shards import shards_table
from tracker.client import PipelineInfo, ShardInfo
from tracker.core.model.names import printable
from tracker.view.changing import changes_of, is_gone
from tracker.view.model import age_ns, fronts_of, lag_slots
from tracker.view.pipelines import WatchHistory, slots_text, span_text, time_text

_BLOCKS = "▁▂▃▄▅▆▇█"
_LATE_S = 10.0
"""A front that has been silent for longer than this stands out."""


def chart(values: list[int]) -> str:
    """One block a value, by its share of the largest."""
    most = max(values, default=0)
    if most <= 0:
        return ""
    return "".join(_BLOCKS[max(0, value) * (len(_BLOCKS) - 1) // most] for value in values)


def pipeline_view(
    info: PipelineInfo, shards: list[ShardInfo], history: WatchHistory, trouble: str = ""
) -> RenderableType:
    """The live view of one pipeline: segments, fronts, shards."""
    parts: list[RenderableType] = [_headline(info), _segments(info, history)]
    if info.state.fronts:
        parts.append(_fronts(info))
    parts.append(shards_table(shards))
    if trouble:
        parts.append(Text(printable(trouble), "red"))
    return Group(*parts)


def _headline(info: PipelineInfo) -> Text:
    state = info.state
    text = Text.assemble((printable(info.spec.name), "bold"), "  ")
    if state.complete:
        text.append("complete: everything is processed", "bold green")
    else:
        text.append("everything before ")
        text.append(time_text(state.min_time, info.spec), "bold green")
        age = age_ns(state.min_time, info.spec)
        text.append(" is processed" if age is None else f" UTC is processed, {span_text(age)} ago")
    if not state.begun:
        text.append("  (waits for its declared fronts)", "yellow")
    for change in changes_of(info):
        text.append(f"\n{printable(change)}", "yellow")
    if state.late_items:
        text.append(f"  {state.late_items:,} late items", "red")
    if state.written_off_items:
        text.append(f"  {state.written_off_items:,} items written off", "red")
    return text


def _segments(info: PipelineInfo, history: WatchHistory) -> Table:
    table = Table("segment")
    table.add_column("min time", no_wrap=True)
    table.add_column("lag", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("open slots", justify="right")
    table.add_column("open items", justify="right")
    for segment in info.state.segments:
        if is_gone(segment.segment, segment.min_time, info.spec):
            continue
        lag = lag_slots(segment.min_time, info)
        table.add_row(
            segment.segment,
            time_text(segment.min_time, info.spec),
            "-" if lag is None else slots_text(lag, info.spec),
            Text(chart(history.lags(segment.segment)), "cyan"),
            f"{segment.open_slots:,}",
            f"{segment.open_items:,}",
        )
    return table


def _fronts(info: PipelineInfo) -> Table:
    table = Table("front", "feeds")
    table.add_column("promises", no_wrap=True)
    table.add_column("silent for", no_wrap=True)
    for told in fronts_of(info):
        front, silent_s = told.front, told.front.silent_ms / 1000
        promise = "nothing yet" if front.settled else "joining or leaving"
        if told.promise is not None:
            promise = time_text(told.promise, info.spec)
        table.add_row(
            front.front if front.front == front.node_id else f"{front.node_id}/{front.front}",
            front.segment,
            promise,
            Text(f"{silent_s:,.1f} s", "yellow" if silent_s > _LATE_S else ""),
        )
    return table
