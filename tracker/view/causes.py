"""Causes in words: what keeps min time, and what would let it move."""

from __future__ import annotations

from typing import Any

from tracker.core.diagnosis import Cause, CauseKind
from tracker.core.explain import MissingTicks
from tracker.core.model import PipelineSpec
from tracker.core.slots import LOWEST_SLOT
from tracker.core.waits import WaitKind
from tracker.view.pipelines import span_text, time_text

SHOWN_KEYS = 3
"""Nodes that a text names of those whose ticks a shard lacks."""


def cause_text(cause: Cause, spec: PipelineSpec) -> str:
    """A cause as half a sentence: `front jfk of node airport has ended (...)`."""
    shards, node = _shards(cause), _node(cause)
    where = _where(cause, spec)
    silent = f" for {span_text(cause.silent_ms * 10**6)}" if cause.silent_ms >= 0 else ""
    match cause.kind:
        case CauseKind.STORE_AWAY:
            why = f": {cause.detail}" if cause.detail else ""
            return f"the store of {shards} has taken nothing{silent}{why}"
        case CauseKind.SHARD_DOWN:
            return f"{shards} {_verb(cause, 'does', 'do')} not answer"
        case CauseKind.SHARD_CUT_OFF:
            return f"{shards} {_verb(cause, 'is', 'are')} cut off from the other shards"
        case CauseKind.SHARD_LAGS:
            return f"{shards} {_verb(cause, 'lags', 'lag')} behind{_missing(cause)}"
        case CauseKind.FRONT_MISSING:
            front = cause.front or "one of the declared number"
            return f"front {front} has never joined"
        case CauseKind.FRONT_GONE:
            return (
                f"front {cause.front} is gone: node {cause.node_id} is not connected, and has "
                f"promised nothing beyond {_moment(cause, spec)}"
            )
        case CauseKind.FRONT_SILENT:
            return (
                f"front {cause.front} is connected and has said nothing{silent}: it promises nothing "
                f"beyond {_moment(cause, spec)}"
            )
        case CauseKind.FRONT_WAITS:
            return f"front {cause.front} is at work, and promises nothing beyond {_moment(cause, spec)}"
        case CauseKind.FRONT_EVICTED:
            return (
                f"front {cause.front} of node {cause.node_id} was evicted after a silence, and no other "
                f"feeds its segment: it stands at {_moment(cause, spec)}"
            )
        case CauseKind.FRONT_JOINING:
            return f"front {cause.front} joins or leaves, and {shards} has not said so yet"
        case CauseKind.BATCH_STAGED:
            more = f"; {cause.detail}" if cause.detail else ""
            return (
                f"batch {cause.batch} of query {cause.query} is staged and not committed by node "
                f"{cause.node_id}{more}; it holds {where}"
            )
        case CauseKind.NODE_REFUSED:
            front = f"front {cause.front} of " if cause.front else ""
            if cause.wait is not None:
                return f"{front}{node} is refused{_batch(cause)}{silent}: {cause.detail}"
            return f"the last tick of {front}{node} was refused: {cause.detail}"
        case CauseKind.NODE_WAITS:
            front = f"front {cause.front} of " if cause.front else ""
            return f"{front}{node} waits{_batch(cause)}{silent} for {cause.detail}"
        case CauseKind.NODE_GONE:
            return f"{node} is not connected{silent}; it consumes from {where}, which is open"
        case CauseKind.NODE_CLOSED:
            return f"{node} was {cause.detail}; {where} is open, and may be what it left"
        case CauseKind.NODE_SILENT:
            return f"{node} is connected and has committed nothing{silent}; {where} is open"
        case CauseKind.NO_READER:
            return f"nobody has ever consumed from {where}, which is open{_more(cause)}"
        case CauseKind.AWAITS_REPLAY if cause.front or cause.segment < 0:
            return f"the pipeline was restarted, and front {cause.front or ''} has not joined again"
        case CauseKind.AWAITS_REPLAY:
            return f"the pipeline was restarted, and nobody has consumed from {where} since{_more(cause)}"
        case CauseKind.GOES_ROUND:
            names = ", ".join(spec.segments[number] for number in cause.segments)
            return f"items go round in {names}: {node} is at work there, and {where} is open"
        case CauseKind.AT_WORK:
            return f"{node} is at work on {where}"
        case CauseKind.KEPT_OPEN:
            return f"the pipeline is declared open and has no front{_more(cause)}"


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
    CauseKind.NODE_REFUSED: "do what the refusal says; docs/errors.md has them all",
    CauseKind.NODE_WAITS: "see the log of its process",
    CauseKind.NODE_GONE: "start it again; if it is gone for good: lowmark nodes retire {node}",
    CauseKind.NODE_CLOSED: "let another node consume it, or give it up: lowmark nodes retire {node} "
    "--write-off",
    CauseKind.NODE_SILENT: "see what its running batch or step waits for",
    CauseKind.NO_READER: "start the query that reads it, or take the segment out of the pipeline",
    CauseKind.AWAITS_REPLAY: "start it again: it is told from which slot on to commit anew",
    CauseKind.GOES_ROUND: "wait until they leave the cycle; if they never do, see the job's end condition",
    CauseKind.AT_WORK: "nothing is wrong: min time moves on when it commits",
    CauseKind.KEPT_OPEN: "nothing is wrong: let a front join when there is more",
}


_WAIT_ADVICE = {
    WaitKind.UNKNOWN_ITEMS: "take out of the directory what no tracked query or front has put there; or "
    "see whether the one that did is tracked, and committed it",
    WaitKind.NOT_TOLD: "start the front or the query that publishes it: it tells the slots",
    WaitKind.WRITER_BEHIND: "see whether the writer runs, and what keeps it from committing",
    WaitKind.REFUSED: _ADVICE[CauseKind.NODE_REFUSED],
    WaitKind.OTHER: "see the log of its process",
}


def advice(cause: Cause, spec: PipelineSpec) -> str:
    """What would let min time move."""
    if cause.wait is not None:
        return _WAIT_ADVICE[cause.wait]
    text = _ADVICE[cause.kind]
    return text.format(node=f"{cause.node_id} --pipeline {spec.name}")


def cause_json(cause: Cause, spec: PipelineSpec) -> dict[str, Any]:
    """What counts of a cause, by its kind, and in words."""
    told: dict[str, Any] = {
        "kind": cause.kind.value,
        "text": cause_text(cause, spec),
        "advice": advice(cause, spec),
        "trouble": cause.is_trouble,
    }
    if cause.segment >= 0:
        told["segment"] = spec.segments[cause.segment]
    if cause.slot != LOWEST_SLOT:
        told["slot"] = cause.slot
    if cause.shards:
        told["shards"] = list(cause.shards)
    for name in ("node_id", "node_kind", "front", "query", "detail"):
        if getattr(cause, name):
            told[name] = getattr(cause, name)
    if cause.wait is not None:
        told["wait"] = cause.wait.value
    if cause.batch >= 0:
        told["batch"] = cause.batch
    if cause.silent_ms >= 0:
        told["silent_ms"] = cause.silent_ms
    if cause.segments:
        told["segments"] = [spec.segments[number] for number in cause.segments]
    if cause.missing:
        told["missing"] = [missing_json(missing) for missing in cause.missing]
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


def _batch(cause: Cause) -> str:
    return f" in batch {cause.batch}" if cause.batch >= 0 else ""


def _verb(cause: Cause, one: str, many: str) -> str:
    return one if len(cause.shards) == 1 else many


def _node(cause: Cause) -> str:
    kind = cause.node_kind if cause.node_kind not in ("", "other") else "node"
    return f"{kind} {cause.node_id}"


def _where(cause: Cause, spec: PipelineSpec) -> str:
    segment = spec.segments[cause.segment] if cause.segment >= 0 else "a segment"
    return f"segment {segment} at {_moment(cause, spec)}"


def _moment(cause: Cause, spec: PipelineSpec) -> str:
    text = time_text(cause.slot, spec)
    return text if text.startswith("slot") else f"{text} (slot {cause.slot})"


def _missing(cause: Cause) -> str:
    if not cause.missing:
        return ""
    told = [f"{m.ticks} ticks of node {m.key.node_id}" for m in cause.missing[:SHOWN_KEYS]]
    more = len(cause.missing) - len(told)
    return f", and lacks {', '.join(told)}" + (f" and of {more} more nodes" if more else "")


def _more(cause: Cause) -> str:
    return f" ({cause.detail})" if cause.detail else ""
