"""Nodes that are retired, and what is given up with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracker.client import NodeInfo
from tracker.core.insight.explain import OpenCell
from tracker.core.model import PipelineSpec
from tracker.view.explanations import cell_json, ranges_text
from tracker.view.nodes import node_row
from tracker.view.pipelines import time_and_slot_text


@dataclass(frozen=True, slots=True)
class Retired:
    """A node, as it was before. released: by name of a hold that was let go of its segment, and the slot where it
    stood."""

    node: NodeInfo
    released: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Retirement:
    """What was done; or would be, with dry_run. gone: the cells that are written off; stayed: those that hold other
    items by now; back: the nodes that have come back since they were shown, and stay."""

    spec: PipelineSpec
    nodes: Sequence[Retired]
    gone: Sequence[OpenCell]
    stayed: Sequence[OpenCell] = ()
    back: Sequence[NodeInfo] = ()
    dry_run: bool = False


def loss_text(segment: str, cells: Sequence[OpenCell], spec: PipelineSpec) -> str:
    """What is to be written off in a segment."""
    items = sum(cell.items for cell in cells)
    at = ranges_text((cell.slot for cell in cells), spec) or "none"
    return f"to be written off in {segment}: {items} items; open at {at}"


def retired_text(outcome: Retirement) -> str:
    """Which nodes are retired, what they held, and which of the cells that were named are written off."""
    return "\n".join(_sentences(outcome)) or "no node that is listed is gone for so long"


def _sentences(outcome: Retirement) -> Iterator[str]:
    spec, dry_run = outcome.spec, outcome.dry_run
    for each in outcome.nodes:
        yield f"{each.node.node_id} {'would be' if dry_run else 'is'} retired"
        for name, (segment, slot) in sorted(each.released.items(), key=lambda held: held[1][1]):
            at = f"{time_and_slot_text(slot, spec)} of {segment} ({name})"
            yield f"{'to let go of' if dry_run else 'let go of'}: {at}"
    for node in outcome.back:
        yield f"{node.node_id} has come back, and stays"
    if outcome.gone or outcome.stayed:
        items = sum(cell.items for cell in outcome.gone)
        what = "to be written off" if dry_run else "written off"
        yield f"{what}: {items} items in {len(outcome.gone)} cells"


def retired_json(outcome: Retirement) -> dict[str, Any]:
    """The same for scripts: each node as it is listed, with what was let go of, and cell by cell."""
    spec = outcome.spec
    return {
        "pipeline": spec.name,
        "dry_run": outcome.dry_run,
        "nodes": [
            node_row(each.node, spec)
            | {
                "released": [
                    {"name": name, "segment": segment, "slot": slot}
                    for name, (segment, slot) in each.released.items()
                ]
            }
            for each in outcome.nodes
        ],
        "back": [node.node_id for node in outcome.back],
        "written_off": [cell_json(cell, spec.segments) for cell in outcome.gone],
        "stayed": [cell_json(cell, spec.segments) for cell in outcome.stayed],
    }
