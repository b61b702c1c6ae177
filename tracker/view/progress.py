"""How far each segment of a pipeline is, and what holds it, a line each: for tables of many pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tracker.client import Explanation, PipelineInfo
from tracker.core.model.slots import FOREVER
from tracker.view.causes import advice, cause_text
from tracker.view.changing import draining, is_gone, under_way
from tracker.view.model import Standing, standings_of
from tracker.view.pipelines import lags_json, min_time_json

STUCK_AFTER_MS = 3_000
"""A segment that stands for longer, for a reason that somebody should look after, is stuck."""
State = Literal["stuck", "waiting", "moving", "complete"]
"""The states of segments and pipelines, the one first that somebody should look at."""
WORST_FIRST: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a segment (None: of the whole pipeline) its min time, a slot; its state, one of WORST_FIRST; items and slots
    that are open; what holds it and what would let it move, in words, and `cause`, what holds it as a value of
    CauseKind: empty where nothing is known to."""

    segment: str | None
    min_time: int
    state: State
    open_slots: int
    open_items: int
    holds: str = ""
    advice: str = ""
    cause: str = ""


def state_of(info: PipelineInfo, min_time: int, told: Standing | None) -> State:
    """The state of a segment whose min time is at a slot, by why it stands (None: nobody has told)."""
    if min_time == FOREVER:
        return "complete"
    if not info.state.begun:
        return "waiting"
    stands = told is not None and told.segment.standing_ms >= STUCK_AFTER_MS
    if told and stands and told.causes and told.causes[0].is_trouble:
        return "stuck"
    return "moving"


def furthest(described: int, told: Standing | None) -> int:
    """A segment's min time: another process than the one that described it may have announced more."""
    return max(described, told.segment.min_time) if told else described


def progress_of(info: PipelineInfo, explanation: Explanation | None) -> list[Progress]:
    """The whole pipeline first, then its segments, but for those that were removed and are drained. Without an explanation
    nothing is said to hold any."""
    told = {} if explanation is None else {s.segment.segment: s for s in standings_of(explanation)}
    segments = []
    for described in info.state.segments:
        standing = told.get(described.segment)
        min_time = furthest(described.min_time, standing)
        if is_gone(described.segment, min_time, info.spec):
            continue
        causes = standing.causes if standing and min_time != FOREVER else ()
        held = [
            draining(described.segment, info.spec),
            cause_text(causes[0], info.spec) if causes else "",
        ]
        segments.append(
            Progress(
                described.segment, min_time, state_of(info, min_time, standing),
                described.open_slots, described.open_items,
                "; ".join(filter(None, held)),
                advice(causes[0], info.spec) if causes else "",
                causes[0].kind.value if causes else "",
            )
        )  # fmt: skip
    return [whole_of(info, segments), *segments]


def whole_of(info: PipelineInfo, segments: Sequence[Progress]) -> Progress:
    """The pipeline is as its worst segment, and among these as the one that is furthest behind."""
    worst = min(segments, key=lambda each: (WORST_FIRST.index(each.state), each.min_time))
    min_time = max(info.state.min_time, min(each.min_time for each in segments))
    return Progress(
        None, min_time, worst.state,
        sum(each.open_slots for each in segments), sum(each.open_items for each in segments),
        "; ".join(filter(None, [under_way(info.state), worst.holds])), worst.advice, worst.cause,
    )  # fmt: skip


def progress_json(progress: Progress, info: PipelineInfo) -> dict[str, Any]:
    """A line as JSON, and as a row of a table of columns: null where there is nothing to compare."""
    return {
        "pipeline": info.spec.name,
        "segment": progress.segment,
        **min_time_json(progress.min_time, info.spec),
        **lags_json(progress.min_time, info),
        "state": progress.state,
        "open_slots": progress.open_slots,
        "open_items": progress.open_items,
        "holds": progress.holds or None,
        "advice": progress.advice or None,
    }
