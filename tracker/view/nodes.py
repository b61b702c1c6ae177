"""A list of nodes: what is shown of each, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracker.client import NodeInfo, NodeList
from tracker.core.insight.explain import MAX_EXPLAINED_NODES
from tracker.core.model import PipelineSpec
from tracker.core.model.waits import WaitKind
from tracker.view.model import age_ns
from tracker.view.pipelines import clock_time
from tracker.view.state import state_waits_text

SHOWN_PARTS = 3
"""Of one node, batches and waits that are named; how many more there are is said behind them."""


def node_row(node: NodeInfo, spec: PipelineSpec) -> dict[str, Any]:
    """What is listed of a node, each a plain value: null where there is nothing."""
    known, slot = node.known, node.slot
    moment = None if slot is None else clock_time(slot, spec)
    age = None if slot is None else age_ns(slot, spec)
    return {
        "pipeline": spec.name,
        "node_id": node.node_id,
        "incarnation": known.key.incarnation,
        "kind": known.kind,
        "state": node.state.value,
        "home": node.home,
        "silent_ms": known.silent_ms,
        "node_time": known.node_time,
        "batch": _joined([str(number) for _, number in known.last_batches]),
        "staged": len(known.staged),
        "slot": slot,
        "time": moment.isoformat() if moment else None,
        "age_ms": None if age is None else age // 10**6,
        "holds": known.hold_count,
        "waits": _joined(list(_waits(node))),
    }


def _waits(node: NodeInfo) -> Iterator[str]:
    """What a node waits for, as it says, and for what the rows in its state wait."""
    if node.known.refused:
        yield f"refused: {node.known.refused}"
    for wait in node.known.waits:
        yield f"refused: {wait.text}" if wait.kind is WaitKind.REFUSED else wait.text
    for held in node.known.holds:
        if waits := state_waits_text(held.name):
            yield f"for rows in its state: {waits}"


def _joined(parts: list[str]) -> str | None:
    more = len(parts) - SHOWN_PARTS
    return "; ".join(parts[:SHOWN_PARTS]) + (f"; and {more} more" if more > 0 else "") or None


def left_out(nodes: NodeList) -> Iterator[str]:
    """What a list does not have, a sentence each."""
    for shard, why in nodes.silent_shards.items():
        yield f"shard {shard} does not answer, and its nodes are not listed: {why}"
    if nodes.omitted:
        yield (
            f"{nodes.omitted} more nodes are not closed and not listed: each shard lists {MAX_EXPLAINED_NODES} of its "
            "own, the longest silent"
        )
