"""What the API answers, declared once: the models from which answers are made, and the OpenAPI document too.

Words are those of the command line's JSON and of the contract. A slot is an int64, and `text` the same for people.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from tracker.client import PipelineInfo
from tracker.core.insight.describe import ShardRole
from tracker.core.model import PipelineSpec
from tracker.view.pipelines import lags_json, min_time_json, time_text
from tracker.view.progress import State


class Answer(BaseModel):
    """What every answer is: its fields, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Error(Answer):
    """Why a request was refused."""

    code: str
    """What went wrong, for programs: a code of docs/errors.md."""
    message: str
    """For people: what was refused, the value, the limit, what to do."""


class MinTime(Answer):
    """Everything labelled below it is completely processed, and nothing more can come below it."""

    min_time: int
    """A slot, exclusive; the largest int64 when complete."""
    time: str | None
    """The moment at which the slot begins (ISO 8601, UTC); null when complete, and where slots are numbers."""
    complete: bool
    """Whether everything is processed, and nothing more can come."""
    whole_time: int | None = None
    """Of a pipeline with rounds: the number of the slot's time."""
    round: int | None = None
    """Of a pipeline with rounds: the slot's round."""
    text: str
    """The same for people: a moment, a number, or `complete`."""


class Lag(Answer):
    """How far a min time is behind; null where there is nothing to compare, and milliseconds where slots are numbers."""

    lag_slots: int | None
    """Slots behind the newest promise of a front."""
    lag_ms: int | None
    """The same in milliseconds."""
    age_ms: int | None
    """Milliseconds behind the clock on the wall."""


class SegmentMinTime(MinTime):
    """Min time of a segment."""

    segment: str


class MinTimes(MinTime):
    """Min time of a pipeline and of its segments. It changes only when one of them moves."""

    pipeline: str
    segments: list[SegmentMinTime]
    more_segments: int
    """Segments beyond those that are listed."""


class Announcement(MinTime):
    """Min time of a pipeline, or of one of its segments, has moved."""

    pipeline: str
    segment: str | None
    """Null for the whole pipeline."""


class PipelineRow(MinTime, Lag):
    """A pipeline at a glance."""

    pipeline: str
    state: State
    """That of its worst segment."""
    segments: int
    open_slots: int
    open_items: int
    holds: str | None
    """What holds min time, in words; null where nothing is known to."""
    advice: str | None
    """What would let it move."""
    lags_ms: list[int]
    """Over the last hour, the oldest first, -1 where nothing is known; empty until it was shown for a while."""


class Pipelines(Answer):
    """A page of pipelines, the worst first."""

    pipelines: list[PipelineRow]
    offset: int
    """Rows before this page."""
    page_size: int
    """Rows that a page has at most."""
    found: int
    """Pipelines with the text that was searched for."""
    all: int
    """Pipelines that you may see."""
    states: dict[State, int]
    """How many of them are in which state."""
    more: int
    """Pipelines beyond those that are kept."""
    trouble: str
    """Why this may be old: what went wrong when the tracker was asked last; empty where nothing did."""


class Cause(Answer):
    """Something that keeps min time where it is."""

    kind: str
    text: str
    """In words."""
    advice: str
    """What would let it move."""
    trouble: bool
    """Whether somebody should look after it."""


class Freshness(Answer):
    """What a lag did not pass in so many percent of the samples of the last seconds."""

    seconds: int
    p50_ms: int
    p95_ms: int
    p99_ms: int


class Segment(MinTime, Lag):
    """A segment, and why it is where it is."""

    segment: str
    state: State
    removed: bool
    """Whether it was removed from the pipeline, and drains."""
    standing_ms: int
    """Since when its min time has not moved."""
    open_slots: int
    open_items: int
    causes: list[Cause]
    units: list[str]
    """Names of open units (files, say), the first of them."""
    more_units: int
    freshness: list[Freshness]


class Edge(Answer):
    """What enters a segment because of what is in another one."""

    source: str
    target: str
    delay: int
    """Slots by which it is later."""


class Front(Answer):
    """Whatever labels input."""

    front: str
    node_id: str
    segment: str
    """That it feeds."""
    settled: bool
    """False while it joins or leaves."""
    heartbeat: int | None
    """It will label nothing below this slot; null before it has promised one."""
    text: str
    """The same for people; empty for none."""
    behind_slots: int | None
    behind_ms: int | None
    """Behind the newest promise of a front."""
    silent_ms: int


class Staged(Answer):
    """What tasks of a batch have handed over, and their query has not committed yet."""

    query: str
    batch: int


class Node(Answer):
    """Whatever commits ticks: a front, a Spark query, a local tracker."""

    node_id: str
    incarnation: int
    kind: str
    node_time: int
    """The number of its last tick."""
    connected: bool
    gone: str
    """How it ended; empty where it has not."""
    silent_ms: int
    consumes: list[str]
    creates: list[str]
    """Segments."""
    staged: list[Staged]
    refused: str
    """Why its last tick was refused; empty where it was not."""
    waits: list[str]
    """What it reports that it waits for."""
    holds: list[str]
    """What holds time by itself: rows in a query's state, say."""


class Shard(Answer):
    """A process of the tracker that keeps the checksums of some slots."""

    shard: int
    address: str
    role: ShardRole
    answers: bool
    connected: bool
    entries_behind: int
    """Entries of the asked process's log that it has not confirmed."""
    open_cells: int
    """Of this pipeline, within the strip."""
    store_waiting_ms: int
    """For how long its store has taken nothing."""
    store_error: str


class StripRow(Answer):
    """What is open in a segment, by bin of slots."""

    segment: str
    cells: list[int]
    """Slots with open items."""
    items: list[int]
    """Open items; below zero: taken ahead of the tick that created them."""
    done: float
    """The share of the strip that is before the segment's min time."""


class Strip(Answer):
    """What is open over time: from a little before min time to the newest promise, in bins of equal width."""

    from_slot: int
    from_text: str
    to_slot: int
    to_text: str
    """Exclusive."""
    promised: float
    """The share of it that is before the newest promise."""
    bin_slots: int
    bin_ms: int | None
    segments: list[StripRow]


class Pipeline(MinTime, Lag):
    """One pipeline: where it is, and why."""

    pipeline: str
    at_ms: int
    """When this was looked at (unix time)."""
    state: State
    """That of its worst segment."""
    begun: bool
    """Whether all declared fronts have joined."""
    generation: int
    """How often it was restarted."""
    late_items: int
    written_off_items: int
    segments: list[Segment]
    more_segments: int
    changes: list[str]
    """What is under way of a change of its graph, and what that waits for."""
    edges: list[Edge]
    freshness: list[Freshness]
    fronts: list[Front]
    more_fronts: int
    missing_fronts: list[str]
    """Declared fronts that have never joined."""
    nodes: list[Node]
    more_nodes: int
    shards: list[Shard]
    strip: Strip | None
    """Null where nothing is promised, and where all is complete."""


class SegmentLags(Answer):
    """How far a segment was behind."""

    segment: str | None
    """Null for the whole pipeline."""
    lags_ms: list[int]
    """The oldest first, -1 where nothing is known."""


class Lags(Answer):
    """How far a pipeline and its segments were behind over the last hour, sampled each 12 seconds."""

    seconds: int
    segments: list[SegmentLags]
    """The whole pipeline last; empty where slots are numbers, and where nothing is sampled."""
    why: str
    """Why there is none; empty where there is."""


def min_time(slot: int, spec: PipelineSpec) -> dict[str, Any]:
    """The fields of a MinTime."""
    return {**min_time_json(slot, spec), "text": time_text(slot, spec)}


def behind(slot: int, info: PipelineInfo) -> dict[str, Any]:
    """The fields of a Lag."""
    return lags_json(slot, info)
