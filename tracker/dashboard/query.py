"""What is asked of the tracker for one pipeline: gathered from all shards, bounded in size."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from tracker.client import Admin, Explanation, LowmarkError, PipelineInfo, ShardInfo
from tracker.core.insight.diagnosis import Cause
from tracker.core.insight.explain import MAX_STRIP_BINS, NodeExplanation
from tracker.core.insight.freshness import WINDOWS, SegmentFreshness
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.dashboard import answers
from tracker.dashboard.answers import behind, min_time
from tracker.view.causes import cause_json
from tracker.view.changing import changes_of, is_gone
from tracker.view.model import Standing, fronts_of, newest_promise, nodes_of, standings_of
from tracker.view.pipelines import span_ms, time_text
from tracker.view.progress import WORST_FIRST, furthest, state_of
from tracker.view.state import state_waits_text

MAX_SHOWN_SEGMENTS = 200
MAX_SHOWN_FRONTS = 200
MAX_SHOWN_NODES = 200
MAX_SHOWN_CAUSES = 5
MAX_SHOWN_UNITS = 5
MAX_SHOWN_HOLDS = 2
MAX_SHOWN_STAGED = 3
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

    def lags(self, pipeline: str) -> answers.Lags:
        """How far each segment was behind over the last hour, the whole pipeline last; none where slots are numbers, and
        where it is not sampled, or not yet: why says. Raises LowmarkError: RefusedError if the pipeline is unknown."""
        with self._make_admin() as admin:
            spec = admin.pipeline(pipeline).spec
            if spec.time is TimeKind.NUMBER:
                return answers.Lags(seconds=HOUR_S, segments=[], why="")
            try:
                told = admin.freshness(pipeline, points=LAG_POINTS)
            except LowmarkError as error:
                return answers.Lags(seconds=HOUR_S, segments=[], why=str(error))
        shown = [*told[:-1][:MAX_SHOWN_SEGMENTS], told[-1]]
        segments = [
            answers.SegmentLags(segment=each.segment or None, lags_ms=list(each.lags_ms))
            for each in shown
        ]
        return answers.Lags(seconds=HOUR_S, segments=segments, why="")

    def info(self, pipeline: str) -> PipelineInfo:
        """A pipeline as a process of the tracker describes it. Raises as `look`."""
        with self._make_admin() as admin:
            return admin.pipeline(pipeline)

    def look(self, pipeline: str) -> answers.Pipeline:
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
        return look_of(info, shards, explanation, fresh, span)


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


def min_times(info: PipelineInfo) -> answers.MinTimes:
    """Min times of a pipeline and its segments."""
    spec, state = info.spec, info.state
    shown = state.segments[:MAX_SHOWN_SEGMENTS]
    return answers.MinTimes(
        pipeline=spec.name,
        **min_time(state.min_time, spec),
        segments=[
            answers.SegmentMinTime(segment=each.segment, **min_time(each.min_time, spec))
            for each in shown
        ],
        more_segments=len(state.segments) - len(shown),
    )


def look_of(
    info: PipelineInfo,
    shards: list[ShardInfo],
    explanation: Explanation,
    fresh: dict[str, SegmentFreshness],
    span: Span | None,
) -> answers.Pipeline:
    """All that the page shows of a pipeline."""
    spec, state = info.spec, info.state
    standings = {told.segment.segment: told for told in standings_of(explanation)}
    there = [
        (number, each.segment)
        for number, each in enumerate(state.segments)
        if not is_gone(each.segment, each.min_time, spec)
    ]
    shown = dict(there[:MAX_SHOWN_SEGMENTS])
    segments = [
        _segment(info, index, standings.get(name), fresh.get(name)) for index, name in shown.items()
    ]
    states = [
        state_of(info, furthest(state.segments[number].min_time, told), told)
        for number, name in there
        for told in (standings.get(name),)
    ]
    nodes = nodes_of(explanation)
    return answers.Pipeline(
        pipeline=spec.name,
        at_ms=time.time_ns() // 10**6,
        **min_time(state.min_time, spec),
        **behind(state.min_time, info),
        state=min(states, key=WORST_FIRST.index),
        begun=state.begun,
        generation=state.generation,
        late_items=state.late_items,
        written_off_items=state.written_off_items,
        segments=segments,
        more_segments=len(there) - len(shown),
        changes=list(changes_of(info)),
        edges=[
            answers.Edge(source=edge.source, target=edge.target, delay=edge.delay)
            for edge in spec.edges
            if {edge.source, edge.target} <= {*shown.values()}
        ],
        freshness=_fresh(fresh.get(""), spec),
        fronts=_fronts(info),
        more_fronts=max(0, len(state.fronts) - MAX_SHOWN_FRONTS),
        missing_fronts=[] if state.begun else _missing_fronts(info),
        nodes=[_node(node, spec) for node in nodes[:MAX_SHOWN_NODES]],
        more_nodes=max(0, len(nodes) - MAX_SHOWN_NODES),
        shards=[_shard(shard, explanation) for shard in shards],
        strip=_strip(info, explanation, span, list(shown)),
    )


def _segment(
    info: PipelineInfo,
    index: int,
    told: Standing | None,
    fresh: SegmentFreshness | None,
) -> answers.Segment:
    spec, described = info.spec, info.state.segments[index]
    slot = furthest(described.min_time, told)
    causes = told.causes if told else ()
    # People know the directory.
    units = [unit.name.rpartition("/")[2] for unit in told.units] if told else []
    return answers.Segment(
        segment=described.segment,
        **min_time(slot, spec),
        **behind(slot, info),
        state=state_of(info, slot, told),
        removed=described.segment in spec.removed,
        standing_ms=told.segment.standing_ms if told else 0,
        open_slots=described.open_slots,
        open_items=described.open_items,
        causes=[_cause(cause, spec) for cause in causes[:MAX_SHOWN_CAUSES]],
        units=units[:MAX_SHOWN_UNITS],
        more_units=max(0, len(units) - MAX_SHOWN_UNITS),
        freshness=_fresh(fresh, spec),
    )


def _cause(cause: Cause, spec: PipelineSpec) -> answers.Cause:
    """The words and the kind; what else a kind has is shown by `lowmark explain --json`."""
    told = cause_json(cause, spec)
    return answers.Cause(**{name: told[name] for name in answers.Cause.model_fields})


def _fresh(fresh: SegmentFreshness | None, spec: PipelineSpec) -> list[answers.Freshness]:
    """What is known of lags over a while; they are spans of time, so nothing where slots are numbers."""
    if fresh is None or spec.time is TimeKind.NUMBER:
        return []
    return [
        answers.Freshness(
            seconds=window.seconds,
            p50_ms=window.lag.p50_ms,
            p95_ms=window.lag.p95_ms,
            p99_ms=window.lag.p99_ms,
        )
        for window in fresh.windows
        if window.lag.samples >= LEAST_SAMPLES
    ]


def _fronts(info: PipelineInfo) -> list[answers.Front]:
    return [
        answers.Front(
            front=told.front.front,
            node_id=told.front.node_id,
            segment=told.front.segment,
            settled=told.front.settled,
            heartbeat=told.promise,
            text="" if told.promise is None else time_text(told.promise, info.spec),
            behind_slots=told.behind_slots,
            behind_ms=span_ms(told.behind_slots, info.spec),
            silent_ms=told.front.silent_ms,
        )
        for told in islice(fronts_of(info), MAX_SHOWN_FRONTS)
    ]


def _missing_fronts(info: PipelineInfo) -> list[str]:
    joined = {front.front for front in info.state.fronts}
    return [name for name in info.spec.fronts if name not in joined][:MAX_SHOWN_FRONTS]


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


def _node(node: NodeExplanation, spec: PipelineSpec) -> answers.Node:
    names = spec.segments
    return answers.Node(
        node_id=node.key.node_id,
        incarnation=node.key.incarnation,
        kind=node.kind,
        node_time=node.node_time,
        connected=node.connected,
        gone=node.gone,
        silent_ms=node.silent_ms,
        consumes=[names[number] for number in node.consumes],
        creates=[names[number] for number in node.creates],
        staged=[
            answers.Staged(query=staged.query, batch=staged.batch)
            for staged in node.staged[:MAX_SHOWN_STAGED]
        ],
        refused=node.refused,
        waits=[wait.text for wait in node.waits],
        holds=_node_holds(node, spec),
    )


def _shard(shard: ShardInfo, explanation: Explanation) -> answers.Shard:
    number = shard.state.shard
    part = next((part for part in explanation.parts if part.shard == number), None)
    return answers.Shard(
        shard=number,
        address=shard.address,
        role=shard.state.role,
        answers=part is not None,
        connected=shard.state.connected,
        entries_behind=shard.state.entries_behind,
        open_cells=sum(sum(s.cells) for s in part.strip.segments) if part and part.strip else 0,
        store_waiting_ms=part.store.waiting_ms if part else 0,
        store_error=part.store.error if part else "",
    )


def _strip(
    info: PipelineInfo, explanation: Explanation, span: Span | None, shown: list[int]
) -> answers.Strip | None:
    """What is open over time in the segments of these numbers, added up over the shards."""
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
        rows.append(
            answers.StripRow(segment=described.segment, cells=cells, items=items, done=done)
        )
    newest = newest_promise(info) or to
    return answers.Strip(
        from_slot=first,
        from_text=time_text(first, info.spec),
        to_slot=to,
        to_text=time_text(to, info.spec),
        promised=(min(newest, to) - first) / (to - first),
        bin_slots=width,
        bin_ms=span_ms(width, info.spec),
        segments=rows,
    )
