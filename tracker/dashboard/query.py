"""One look at a pipeline, as plain data for the page: gathered from all shards, bounded in size."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from tracker.client import Admin, Explanation, LowmarkError, PipelineInfo, ShardInfo
from tracker.core.insight.explain import MAX_STRIP_BINS, NodeExplanation
from tracker.core.insight.freshness import WINDOWS, SegmentFreshness
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.view.causes import cause_json
from tracker.view.changing import changes_of, is_gone
from tracker.view.model import Standing, fronts_of, newest_promise, nodes_of, standings_of
from tracker.view.pipelines import lags_json, span_ms, time_text
from tracker.view.progress import furthest, state_of
from tracker.view.state import state_waits_text

MAX_SHOWN_SEGMENTS = 200
MAX_SHOWN_FRONTS = 200
MAX_SHOWN_NODES = 200
MAX_SHOWN_CAUSES = 5
MAX_SHOWN_UNITS = 5
MAX_SHOWN_HOLDS = 2
LAG_POINTS = 120
"""By so many points the lag over the last hour is drawn."""
HOUR_S = WINDOWS[-1][0]
STRIP_BINS = 120
PAST_SHARE = 8
"""Of the strip's time, one part in so many is before min time."""
LEAST_STRIP_SLOTS = STRIP_BINS
MOST_STRIP_SLOTS = 2**60
SILENT_AFTER_MS = 15_000
"""A node that says nothing for longer is shown as stuck: longer than most batches take."""
LEAST_SAMPLES = 5
"""Percentiles of fewer say nothing."""
SHARD_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 3.0

assert STRIP_BINS <= MAX_STRIP_BINS

Span = tuple[int, int, int]
"""The slots from the first to below the second, and into how many bins they are cut."""


class DashboardQuery:
    """Asks a tracker; from any thread, one call at a time each."""

    def __init__(self, make_admin: Callable[[], Admin]) -> None:
        self._make_admin = make_admin

    def lags(self, pipeline: str) -> dict[str, Any]:
        """How far each segment was behind over the last hour, the whole pipeline last and without a name; none where
        slots are numbers, and where it is not sampled, or not yet: why says. Raises LowmarkError: RefusedError if the
        pipeline is unknown."""
        with self._make_admin() as admin:
            spec = admin.pipeline(pipeline).spec
            if spec.time is TimeKind.NUMBER:
                return {"seconds": HOUR_S, "segments": [], "why": ""}
            try:
                told = admin.freshness(pipeline, points=LAG_POINTS)
            except LowmarkError as error:
                return {"seconds": HOUR_S, "segments": [], "why": str(error)}
        shown = [*told[:-1][:MAX_SHOWN_SEGMENTS], told[-1]]
        segments = [{"name": each.segment, "lags_ms": each.lags_ms} for each in shown]
        return {"seconds": HOUR_S, "segments": segments, "why": ""}

    def look(self, pipeline: str) -> dict[str, Any]:
        """One pipeline. Raises LowmarkError: RefusedError if it is unknown."""
        with self._make_admin() as admin:
            info, shards = admin.pipeline(pipeline), admin.shards()
            span = strip_span(info)
            explanation = admin.explain(
                pipeline,
                from_slot=LOWEST_SLOT if span is None else span[0],
                to_slot=FOREVER if span is None else span[1],
                max_cells=0,
                strip_bins=0 if span is None else span[2],
                silent_after_ms=SILENT_AFTER_MS,
                shard_timeout_s=SHARD_TIMEOUT_S,
            )
            try:
                fresh = {each.segment: each for each in admin.freshness(pipeline)}
            except LowmarkError:  # not sampled, or not yet: the rest is shown all the same
                fresh = {}
        return look_json(info, shards, explanation, fresh, span)


def strip_span(info: PipelineInfo) -> Span | None:
    """The slots over which what is open is shown: from a little before min time to the newest promise;
    None if all is complete, or nothing is promised."""
    newest = newest_promise(info)
    low = info.state.min_time
    if newest is None or low == FOREVER:
        return None
    # A pipeline may start at the beginning of all time.
    low = max(low, newest - MOST_STRIP_SLOTS)
    span = max(newest - low, 1)
    past = max(span // (PAST_SHARE - 1), LEAST_STRIP_SLOTS // PAST_SHARE)
    first = max(low - past, LOWEST_SLOT)
    to = max(newest + 1, first + LEAST_STRIP_SLOTS)
    # As many bins as it takes, all of one width, so that none is beyond what is promised.
    width = -(-(to - first) // STRIP_BINS)
    bins = -(-(to - first) // width)
    return first, first + width * bins, bins


def look_json(
    info: PipelineInfo,
    shards: list[ShardInfo],
    explanation: Explanation,
    fresh: dict[str, SegmentFreshness],
    span: Span | None,
) -> dict[str, Any]:
    """All that the page shows of a pipeline."""
    spec, state = info.spec, info.state
    standings = {told.segment.segment: told for told in standings_of(explanation)}
    there = [
        (number, each.segment)
        for number, each in enumerate(state.segments)
        if not is_gone(each.segment, each.min_time, spec)
    ]
    shown = dict(there[:MAX_SHOWN_SEGMENTS])
    return {
        "pipeline": spec.name,
        "at_ms": time.time_ns() // 10**6,
        "min_time": time_text(state.min_time, spec),
        "complete": state.complete,
        "begun": state.begun,
        "generation": state.generation,
        **lags_json(state.min_time, info),
        "late_items": state.late_items,
        "written_off_items": state.written_off_items,
        "segments": [
            _segment(info, index, standings.get(name), fresh.get(name))
            for index, name in shown.items()
        ],
        "more_segments": len(there) - len(shown),
        "changes": list(changes_of(info)),
        "edges": [
            [edge.source, edge.target, edge.delay]
            for edge in spec.edges
            if {edge.source, edge.target} <= {*shown.values()}
        ],
        "fresh": _fresh(fresh.get(""), spec),
        "fronts": _fronts(info),
        "more_fronts": max(0, len(state.fronts) - MAX_SHOWN_FRONTS),
        "missing_fronts": [] if state.begun else _missing_fronts(info),
        **_nodes(explanation),
        "shards": [_shard(shard, explanation) for shard in shards],
        "strip": _strip(info, explanation, span, list(shown)),
    }


def _segment(
    info: PipelineInfo,
    index: int,
    told: Standing | None,
    fresh: SegmentFreshness | None,
) -> dict[str, Any]:
    spec, described = info.spec, info.state.segments[index]
    min_time = furthest(described.min_time, told)
    causes = told.causes if told else ()
    standing_ms = told.segment.standing_ms if told else 0
    # People know the directory.
    units = [unit.name.rpartition("/")[2] for unit in told.units] if told else []
    return {
        "name": described.segment,
        "min_time": time_text(min_time, spec),
        "state": state_of(info, min_time, told),
        "removed": described.segment in spec.removed,
        **lags_json(min_time, info),
        "standing_ms": standing_ms,
        "open_slots": described.open_slots,
        "open_items": described.open_items,
        "causes": [cause_json(cause, spec) for cause in causes[:MAX_SHOWN_CAUSES]],
        "units": units[:MAX_SHOWN_UNITS],
        "more_units": max(0, len(units) - MAX_SHOWN_UNITS),
        "fresh": _fresh(fresh, spec),
    }


def _fresh(fresh: SegmentFreshness | None, spec: PipelineSpec) -> list[dict[str, int]]:
    """What is known of lags over a while; they are spans of time, so nothing where slots are numbers."""
    if fresh is None or spec.time is TimeKind.NUMBER:
        return []
    return [
        {
            "seconds": window.seconds,
            "p50": window.lag.p50_ms,
            "p95": window.lag.p95_ms,
            "p99": window.lag.p99_ms,
        }
        for window in fresh.windows
        if window.lag.samples >= LEAST_SAMPLES
    ]


def _fronts(info: PipelineInfo) -> list[dict[str, Any]]:
    return [
        {
            "front": told.front.front,
            "node_id": told.front.node_id,
            "segment": told.front.segment,
            "settled": told.front.settled,
            "promise": "" if told.promise is None else time_text(told.promise, info.spec),
            "behind_slots": told.behind_slots,
            "behind_ms": span_ms(told.behind_slots, info.spec),
            "silent_ms": told.front.silent_ms,
        }
        for told in islice(fronts_of(info), MAX_SHOWN_FRONTS)
    ]


def _missing_fronts(info: PipelineInfo) -> list[str]:
    joined = {front.front for front in info.state.fronts}
    return [name for name in info.spec.fronts if name not in joined][:MAX_SHOWN_FRONTS]


def _nodes(explanation: Explanation) -> dict[str, Any]:
    nodes = nodes_of(explanation)
    shown = [_node(node, explanation.spec) for node in nodes[:MAX_SHOWN_NODES]]
    return {"nodes": shown, "more_nodes": len(nodes) - len(shown)}


def _node_holds(node: NodeExplanation, spec: PipelineSpec) -> list[str]:
    """What a node waits for that holds time by itself: the rows in a query's state, say. The lowest slots first."""
    told = []
    for held in node.holds[:MAX_SHOWN_HOLDS]:
        waits = state_waits_text(held.name)
        where = f"holds {spec.segments[held.segment]} at {time_text(held.slot, spec)}"
        told.append(
            f"rows in its state wait for {waits}; {where}" if waits else f"{where} ({held.name})"
        )
    more = node.hold_count - len(told)
    return [*told, f"and {more} more"] if more > 0 else told


def _node(node: NodeExplanation, spec: PipelineSpec) -> dict[str, Any]:
    names = spec.segments
    return {
        "node_id": node.key.node_id,
        "incarnation": node.key.incarnation,
        "kind": node.kind,
        "ticks": node.node_time,
        "connected": node.connected,
        "gone": node.gone,
        "silent_ms": node.silent_ms,
        "consumes": [names[number] for number in node.consumes],
        "creates": [names[number] for number in node.creates],
        "staged": [f"batch {staged.batch} of {staged.query}" for staged in node.staged[:3]],
        "refused": node.refused,
        "waits": [wait.text for wait in node.waits],
        "holds": _node_holds(node, spec),
    }


def _shard(shard: ShardInfo, explanation: Explanation) -> dict[str, Any]:
    number = shard.state.shard
    part = next((part for part in explanation.parts if part.shard == number), None)
    return {
        "shard": number,
        "address": shard.address,
        "role": shard.state.role.value,
        "answers": part is not None,
        "linked": shard.state.connected,
        "behind": shard.state.entries_behind,
        "open_cells": sum(sum(s.cells) for s in part.strip.segments) if part and part.strip else 0,
        "store_waiting_ms": part.store.waiting_ms if part else 0,
        "store_error": part.store.error if part else "",
    }


def _strip(
    info: PipelineInfo, explanation: Explanation, span: Span | None, shown: list[int]
) -> dict[str, Any] | None:
    """What is open over time in the segments of these numbers, added up over the shards; done: the share of the strip
    that is before the segment's min time."""
    if span is None:
        return None
    first, to, bins = span
    width = (to - first) // bins
    rows = []
    for index in shown:
        described = info.state.segments[index]
        cells, items = [0] * bins, [0] * bins
        for part in explanation.parts:
            for strip in part.strip.segments if part.strip else ():
                if strip.segment == index:
                    cells = [a + b for a, b in zip(cells, strip.cells, strict=True)]
                    items = [a + b for a, b in zip(items, strip.items, strict=True)]
        done = (min(max(described.min_time, first), to) - first) / (to - first)
        rows.append({"name": described.segment, "cells": cells, "items": items, "done": done})
    newest = newest_promise(info) or to
    return {
        "from": time_text(first, info.spec),
        "to": time_text(to, info.spec),
        "promised": (min(newest, to) - first) / (to - first),
        "bin_slots": width,
        "bin_ms": span_ms(width, info.spec),
        "segments": rows,
    }
