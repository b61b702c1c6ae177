"""Causes in words: what keeps min time, and what would let it move."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from tracker.core.insight.diagnosis import Cause, CauseKind
from tracker.core.insight.explain import MissingTicks
from tracker.core.model import NodeKind, PipelineSpec
from tracker.core.model.waits import WaitKind
from tracker.view.pipelines import span_text, time_and_slot_text
from tracker.view.state import state_waits_text

SHOWN_KEYS = 3
"""Nodes that a text names of those whose ticks a shard lacks."""


def cause_text(cause: Cause, spec: PipelineSpec) -> str:
    """A cause as half a sentence: `front jfk of node airport has ended (...)`."""
    text = _TEXTS[cause.kind]
    if cause.kind is CauseKind.NODE_REFUSED and cause.wait is None:
        text = "the last tick of {of_front}{node} was refused: {detail}"
    if cause.kind is CauseKind.AWAITS_REPLAY and (cause.front or cause.segment < 0):
        text = "the pipeline was restarted, and front {front} has not joined again"
    if _awaits_its_first_front(cause):
        text = (
            "segment {front} was added, and its first front has not joined: it stands at {moment}"
        )
    waits = state_waits_text(cause.detail)
    if waits and cause.kind is CauseKind.NODE_HOLDS:
        text = "rows in the state of {node} wait for {waits}, and hold {where}"
    elif waits and cause.kind is CauseKind.HOLDER_GONE:
        text = "rows in the state of {node} wait for {waits}, and hold {where}; it is gone: nobody lets go of them"
    one = len(cause.shards) == 1
    return text.format(
        s="s" if one else "",
        does="does" if one else "do",
        is_="is" if one else "are",
        shards=_shards(cause),
        lacking=_missing(cause),
        node=_node(cause),
        node_id=cause.node_id,
        front=cause.front,
        declared=cause.front or "one of the declared number",
        of_front=f"front {cause.front} of " if cause.front else "",
        query=cause.query,
        batch=cause.batch,
        in_batch=f" in batch {cause.batch}" if cause.batch >= 0 else "",
        silent=f" for {span_text(cause.silent_ms * 10**6)}" if cause.silent_ms >= 0 else "",
        moment=time_and_slot_text(cause.slot, spec),
        where=_where(cause, spec),
        names=", ".join(spec.segments[number] for number in cause.segments),
        detail=cause.detail,
        waits=waits,
        why=f": {cause.detail}" if cause.detail else "",
        more=f"; {cause.detail}" if cause.detail else "",
        also=f" ({cause.detail})" if cause.detail else "",
    )


_TEXTS = {
    CauseKind.STORE_AWAY: "the store of {shards} has taken nothing{silent}{why}",
    CauseKind.SHARD_DOWN: "{shards} {does} not answer",
    CauseKind.SHARD_CUT_OFF: "{shards} {is_} cut off from the other shards",
    CauseKind.SHARD_LAGS: "{shards} lag{s} behind{lacking}",
    CauseKind.FRONT_MISSING: "front {declared} has never joined",
    CauseKind.FRONT_GONE: "front {front} is gone: node {node_id} is not connected, and has promised "
    "nothing beyond {moment}",
    CauseKind.FRONT_SILENT: "front {front} is connected and has said nothing{silent}: it promises "
    "nothing beyond {moment}",
    CauseKind.FRONT_WAITS: "front {front} is at work, and promises nothing beyond {moment}",
    CauseKind.FRONT_EVICTED: "front {front} of node {node_id} was evicted after a silence, and no other "
    "feeds its segment: it stands at {moment}",
    CauseKind.FRONT_JOINING: "front {front} joins or leaves, and {shards} has not said so yet",
    CauseKind.BATCH_STAGED: "batch {batch} of query {query} is staged and not committed by node "
    "{node_id}{more}; it holds {where}",
    CauseKind.NODE_HOLDS: "{node} holds {where} ({detail})",
    CauseKind.HOLDER_GONE: "{node} holds {where} ({detail}), and is gone: nobody lets go of it",
    CauseKind.NODE_REFUSED: "{of_front}{node} is refused{in_batch}{silent}: {detail}",
    CauseKind.NODE_WAITS: "{of_front}{node} waits{in_batch}{silent} for {detail}",
    CauseKind.NODE_GONE: "{node} is not connected{silent}; it consumes from {where}, which is open",
    CauseKind.NODE_CLOSED: "{node} was {detail}; {where} is open, and may be what it left",
    CauseKind.NODE_SILENT: "{node} is connected and has committed nothing{silent}; {where} is open",
    CauseKind.NO_READER: "nobody has ever consumed from {where}, which is open{also}",
    CauseKind.AWAITS_REPLAY: "the pipeline was restarted, and nobody has consumed from {where} "
    "since{also}",
    CauseKind.GOES_ROUND: "items go round in {names}: {node} is at work there, and {where} is open",
    CauseKind.AT_WORK: "{node} is at work on {where}",
    CauseKind.KEPT_OPEN: "the pipeline is declared open and has no front{also}",
}


_ADVICE = {
    CauseKind.STORE_AWAY: "see whether the store runs and is reached; what was acknowledged is kept",
    CauseKind.SHARD_DOWN: "start it, or let a standby take its place",
    CauseKind.SHARD_CUT_OFF: "see whether the shards reach each other's addresses",
    CauseKind.SHARD_LAGS: "wait; if it stays, see whether that process gets processor time and disk",
    CauseKind.FRONT_MISSING: "start it",
    CauseKind.FRONT_GONE: "start it again; if it is gone for good: lowmark nodes retire {node}",
    CauseKind.FRONT_SILENT: "see whether its process is paused or stuck; restart it, or retire {node}",
    CauseKind.FRONT_EVICTED: "start it again; if it has left for good: lowmark nodes retire {node}",
    CauseKind.FRONT_JOINING: "wait; if it stays, see whether that shard runs",
    CauseKind.FRONT_WAITS: "nothing is wrong: min time moves on when it promises more",
    CauseKind.BATCH_STAGED: "let the query commit it: start it again if it has ended, else see Spark",
    CauseKind.NODE_HOLDS: "nothing is wrong: min time moves on when it is done with what it holds",
    CauseKind.HOLDER_GONE: "start it again; if it is gone for good: lowmark nodes retire {node} "
    "--release-holds",
    CauseKind.NODE_REFUSED: "do what the refusal says; docs/errors.md has them all",
    CauseKind.NODE_WAITS: "see the log of its process",
    CauseKind.NODE_GONE: "start it again; if it is gone for good: lowmark nodes retire {node}",
    CauseKind.NODE_CLOSED: "let another node consume it, or give it up: lowmark nodes retire {node} "
    "--write-off SEGMENT=SLOT",
    CauseKind.NODE_SILENT: "see what its running batch or step waits for",
    CauseKind.NO_READER: "start the query that reads it, or take the segment out of the pipeline",
    CauseKind.AWAITS_REPLAY: "start it again: it is told from which slot on to commit anew",
    CauseKind.GOES_ROUND: "wait until they leave the cycle; if they never do, see the job's end condition",
    CauseKind.AT_WORK: "nothing is wrong: min time moves on when it commits",
    CauseKind.KEPT_OPEN: "nothing is wrong: let a front join when there is more",
}


_STATE_ADVICE = (
    "nothing is wrong: they are emitted when later rows have moved its watermark there; if none will come: "
    "query.stop(leave=True), which gives them up"
)


_DRAIN_ADVICE = (
    "the segment was removed: let a query consume what is in it, or give that up: lowmark pipelines apply -f FILE "
    "--drop-open"
)


_WAIT_ADVICE = {
    WaitKind.UNKNOWN_ITEMS: "take out of the directory what no tracked query or front has put there; or "
    "see whether the one that did is tracked, and committed it",
    WaitKind.NOT_TOLD: "start the front or the query that publishes it: it tells the slots",
    WaitKind.WRITER_BEHIND: "see whether the writer runs, and what keeps it from committing",
    WaitKind.REFUSED: _ADVICE[CauseKind.NODE_REFUSED],
    WaitKind.OTHER: "see the log of its process",
}


def _awaits_its_first_front(cause: Cause) -> bool:
    """Whether it is a segment that was added while the pipeline runs, and that no other one feeds."""
    return cause.kind is CauseKind.FRONT_EVICTED and not cause.node_id


def advice(cause: Cause, spec: PipelineSpec) -> str:
    """What would let min time move."""
    if cause.wait is not None:
        return _WAIT_ADVICE[cause.wait]
    text = _ADVICE[cause.kind]
    if _awaits_its_first_front(cause):
        text = "start the front that feeds it, or take the segment out of the pipeline"
    if cause.kind is CauseKind.NODE_HOLDS and state_waits_text(cause.detail):
        text = _STATE_ADVICE
    if cause.kind is CauseKind.NO_READER and spec.segments[cause.segment] in spec.removed:
        text = _DRAIN_ADVICE
    return text.format(node=f"{cause.node_id} --pipeline {spec.name}")


def cause_json(cause: Cause, spec: PipelineSpec) -> dict[str, Any]:
    """What counts of a cause, by its kind, and in words."""
    told: dict[str, Any] = {
        "kind": cause.kind.value,
        "text": cause_text(cause, spec),
        "advice": advice(cause, spec),
        "trouble": cause.is_trouble,
    }
    return told | said_of(cause, spec.segments)


def said_of(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a dataclass that say something, which is not their default: segments by name."""
    told = {}
    for field in fields(value):
        said = getattr(value, field.name)
        if said == field.default:
            continue
        match said:
            case Enum():
                said = said.value
            case int() if field.name == "segment":
                said = names[said]
            case tuple() if field.name == "segments":
                said = [names[number] for number in said]
            case tuple():
                said = [missing_json(s) if isinstance(s, MissingTicks) else s for s in said]
        told[field.name] = said
    return told


def missing_json(missing: MissingTicks) -> dict[str, Any]:
    return {
        "shard": missing.shard,
        "node_id": missing.key.node_id,
        "first": missing.first,
        "last": missing.last,
        "ticks": missing.ticks,
    }


def _shards(cause: Cause) -> str:
    numbers = ", ".join(str(shard) for shard in cause.shards)
    return f"shard {numbers}" if len(cause.shards) == 1 else f"shards {numbers}"


def _node(cause: Cause) -> str:
    kind = cause.node_kind if cause.node_kind not in ("", NodeKind.OTHER) else "node"
    return f"{kind} {cause.node_id}"


def _where(cause: Cause, spec: PipelineSpec) -> str:
    segment = spec.segments[cause.segment] if cause.segment >= 0 else "a segment"
    return f"segment {segment} at {time_and_slot_text(cause.slot, spec)}"


def _missing(cause: Cause) -> str:
    if not cause.missing:
        return ""
    told = [f"{m.ticks} ticks of node {m.key.node_id}" for m in cause.missing[:SHOWN_KEYS]]
    more = len(cause.missing) - len(told)
    return f", and lacks {', '.join(told)}" + (f" and of {more} more nodes" if more else "")
