"""Why min time is where it is, for people and for scripts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from tracker.client import Explanation
from tracker.core.insight.explain import Hold, HoldKind, NodeExplanation, OpenCell
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.core.model.waits import WaitKind
from tracker.view.causes import advice, cause_json, cause_text, said_of
from tracker.view.changing import draining, is_gone, under_way
from tracker.view.model import Standing, cells_of, nodes_of, standings_of, written_off_of
from tracker.view.pipelines import min_time_json, span_text, time_and_slot_text, time_text

SHOWN_UNITS = 3
"""Names of open units that a text shows of a segment; JSON has all of them."""
SHOWN_RANGES = 12
"""Ranges of slots that a text names of a segment."""
SHOWN_WRITTEN_OFF = 10
"""Written-off cells that a text names, the last ones."""
SHOWN_HOLDS = 5
"""Of one node, those of the lowest slots."""


def ranges_text(slots: Iterable[int], spec: PipelineSpec, most: int = SHOWN_RANGES) -> str:
    """Slots as ranges: `slot 3..5, slot 9`, or the times at which they begin, with their numbers."""
    ranges: list[tuple[int, int]] = []
    for slot in sorted(set(slots)):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], slot)
        else:
            ranges.append((slot, slot))
    texts = [range_text(first, last, spec) for first, last in ranges[:most]]
    return ", ".join(texts) + (f" and {len(ranges) - most} more" if len(ranges) > most else "")


def range_text(first: int, last: int, spec: PipelineSpec) -> str:
    """The slots from a first to a last one, as `ranges_text` says them."""
    if first == last:
        return time_and_slot_text(first, spec)
    texts = [time_text(slot, spec) for slot in (first, last)]
    if texts[0].startswith("slot"):
        return f"slot {first}..{last}"
    return f"{texts[0]}..{texts[1]} (slot {first}..{last})"


# --- for scripts ----------------------------------------------------------------------------------


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """All that is known, segments by name."""
    spec = explanation.spec
    names = spec.segments
    segments = [
        {
            "segment": told.segment.segment,
            **min_time_json(told.segment.min_time, spec),
            "standing_ms": told.segment.standing_ms,
            "removed": told.segment.segment in spec.removed,
            "causes": [cause_json(cause, spec) for cause in told.causes],
            "held_by": [hold_json(hold, names) for hold in told.segment.holds],
            "units": [asdict(unit) | {"segment": names[unit.segment]} for unit in told.units],
        }
        for told in standings_of(explanation)
    ]
    return {
        "pipeline": spec.name,
        "at": explanation.at,
        "changing": explanation.state.is_changing,
        "change_awaits": list(explanation.state.change_awaits),
        "segments": segments,
        "open_cells": [cell_json(cell, names) for cell in cells_of(explanation)],
        "open_cells_in_all": sum(part.open_cells for part in explanation.parts),
        "nodes": [node_json(node, names) for node in nodes_of(explanation)],
        "written_off": [
            {
                "segment": names[cell.segment],
                "slot": cell.slot,
                "items": cell.items,
                "node_id": cell.node_id,
                "at_ms": cell.at_ms,
                "came_back": cell.came_back,
            }
            for cell in written_off_of(explanation)
        ],
        "restarts": [
            {
                "shard": part.shard,
                "generation": begun.restart.generation,
                "from_slot": begun.floor,
                "at_ms": begun.restart.at_ms,
                "dropped": [
                    asdict(dropped) | {"segment": names[dropped.segment]} for dropped in begun.cells
                ],
            }
            for part in explanation.parts
            for begun in part.restarts
        ],
        "silent_shards": {str(shard): why for shard, why in explanation.silent_shards.items()},
    }


def hold_json(hold: Hold, names: tuple[str, ...]) -> dict[str, Any]:
    """What counts of a reason, by its kind."""
    said = said_of(hold, names)
    return said | {"entries": hold.entries} if "home" in said else said


def cell_json(cell: OpenCell, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "segment": names[cell.segment],
        "slot": cell.slot,
        "items": cell.items,
        "checksum": f"{cell.checksum:016x}",
    }


def node_json(node: NodeExplanation, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "node_id": node.key.node_id,
        "incarnation": node.key.incarnation,
        "kind": node.kind,
        "node_time": node.node_time,
        "connected": node.connected,
        "silent_ms": node.silent_ms,
        "gone": node.gone,
        "consumes": [names[number] for number in node.consumes],
        "creates": [names[number] for number in node.creates],
        "fronts": list(node.fronts),
        "staged": [
            {"query": staged.query, "batch": staged.batch, "parts": staged.parts}
            for staged in node.staged
        ],
        "last_batches": dict(node.last_batches),
        "refused": node.refused,
        "waits": [said_of(wait, names) for wait in node.waits],
        "holds": [
            {"name": held.name, "segment": names[held.segment], "slot": held.slot}
            for held in node.holds
        ],
        "hold_count": node.hold_count,
    }


# --- for people -----------------------------------------------------------------------------------


def explanation_text(explanation: Explanation) -> str:
    """What changes, segments with what holds them, then what is open, nodes, and what was written off."""
    standings = standings_of(explanation)
    lines = [text] if (text := under_way(explanation.state)) else []
    lines += [line for told in standings for line in _segment(explanation, told)]
    lines += _open(explanation, standings)
    lines += _nodes(explanation)
    lines += _written_off(explanation)
    lines += _restarts(explanation)
    lines += [
        f"shard {shard} does not answer; what it holds is not shown: {why}"
        for shard, why in explanation.silent_shards.items()
    ]
    return "\n".join(lines)


def _segment(explanation: Explanation, told: Standing) -> Iterator[str]:
    segment = told.segment
    if is_gone(segment.segment, segment.min_time, explanation.spec):
        yield f"{segment.segment}: removed, and complete"
        return
    if segment.min_time == FOREVER:
        yield f"{segment.segment}: complete"
        return
    text = time_and_slot_text(segment.min_time, explanation.spec)
    standing = span_text(segment.standing_ms * 10**6)
    more = draining(segment.segment, explanation.spec)
    yield f"{segment.segment}: {f'{more}; ' if more else ''}min time {text} for {standing} or more"
    if explanation.at is not None and segment.min_time >= explanation.at:
        yield f"  has passed {time_text(explanation.at, explanation.spec)}"
        return
    for number, cause in enumerate(told.causes):
        yield f"  {'because' if number == 0 else 'or because'} {cause_text(cause, explanation.spec)}"
        yield f"    {advice(cause, explanation.spec)}"
    for hold in segment.holds:
        yield f"  held by {hold_text(hold, explanation)}"
    if not segment.holds:
        yield "  held by nothing that is known: it moves on"


def hold_text(hold: Hold, explanation: Explanation) -> str:
    """A reason in words."""
    spec = explanation.spec
    segment = spec.segments[hold.segment] if hold.segment >= 0 else ""
    at = time_and_slot_text(hold.slot, spec)
    match hold.kind:
        case HoldKind.OPEN:
            return f"open items of segment {segment} at {at}, in shard {hold.shard}"
        case HoldKind.BEHIND:
            return (
                f"shard {hold.shard}, which lacks {hold.entries} entries of shard {hold.home} that "
                f"touch segment {segment} at {at}"
            )
        case HoldKind.PROMISE if hold.shard >= 0:
            return (
                f"shard {hold.shard}, which has heard of no promise of front {hold.front} of node "
                f"{hold.node_id} beyond {at}, as others have"
            )
        case HoldKind.PROMISE:
            promise = f"promises nothing beyond {at}"
            return f"front {hold.front} of node {hold.node_id}, which feeds {segment} and {promise}"
        case HoldKind.JOINING:
            return (
                f"front {hold.front} of node {hold.node_id}, which joins or leaves: shard "
                f"{hold.shard} has not said so yet"
            )
        case HoldKind.NOT_BEGUN if hold.front:
            return f"front {hold.front}, which is declared and has not joined yet"
        case HoldKind.NOT_BEGUN:
            return f"fronts that have not joined yet; {spec.front_count} are declared"
        case HoldKind.UNHEARD:
            return f"shard {hold.shard}, which has not been heard"
        case HoldKind.VACANT if not hold.node_id:
            return f"the place of the first front of {segment}, which was added: at {at} until one joins"
        case HoldKind.VACANT:
            return (
                f"the place of front {hold.front} of node {hold.node_id}, which fed {segment} and was "
                f"evicted: at {at} until it comes back or the node is retired"
            )
        case HoldKind.KEPT_OPEN:
            return "nothing but the pipeline's being declared open: it waits for a front"


def _open(explanation: Explanation, standings: Iterable[Standing]) -> Iterator[str]:
    names = explanation.spec.segments
    cells = cells_of(explanation)
    count = sum(part.open_cells for part in explanation.parts)
    if not count:
        yield "no cell is open"
        return
    shown = "" if count == len(cells) else f", the lowest {len(cells)} of them"
    yield f"open: {count} cells{shown}"
    units_of = {told.segment.segment: told.units for told in standings}
    for number, name in enumerate(names):
        mine = [cell for cell in cells if cell.segment == number]
        if mine:
            items = sum(cell.items for cell in mine)
            yield f"  {name}: {items} items at {ranges_text((cell.slot for cell in mine), explanation.spec)}"
        units = units_of.get(name, ())
        if units:
            more = f" and {len(units) - SHOWN_UNITS} more" if len(units) > SHOWN_UNITS else ""
            listed = ", ".join(
                f"{u.name}, at {time_and_slot_text(u.slot, explanation.spec)}"
                for u in units[:SHOWN_UNITS]
            )
            yield f"  {name}: open units {listed}{more}"


def _nodes(explanation: Explanation) -> Iterator[str]:
    nodes = nodes_of(explanation)
    if nodes:
        yield "nodes:"
    for node in nodes:
        yield f"  {node_text(node, explanation.spec)}"


def node_text(node: NodeExplanation, spec: PipelineSpec) -> str:
    """A node in words."""
    names = spec.segments
    state = node.gone or ("connected" if node.connected else "not connected")
    text = f"{node.key} ({node.kind}): {state}, silent for {span_text(node.silent_ms * 10**6)}"
    for what, numbers in (("consumes from", node.consumes), ("creates in", node.creates)):
        if numbers:
            text += f", {what} {', '.join(names[number] for number in numbers)}"
    for staged in node.staged:
        text += f", batch {staged.batch} of {staged.query} staged"
    if node.refused:
        text += f", last tick refused: {node.refused}"
    for wait in node.waits:
        text += f", {'is refused:' if wait.kind is WaitKind.REFUSED else 'waits for'} {wait.text}"
    if node.fronts:
        text += f", fronts {', '.join(node.fronts)}"
    return text + holds_text(node, spec)


def holds_text(node: NodeExplanation, spec: PipelineSpec) -> str:
    """What a node holds, the lowest first."""
    if not node.hold_count:
        return ""
    shown = node.holds[:SHOWN_HOLDS]
    told = ", ".join(
        f"{time_and_slot_text(held.slot, spec)} of {spec.segments[held.segment]} ({held.name})"
        for held in shown
    )
    more = node.hold_count - len(shown)
    return f", holds {told}" + (f" and {more} more" if more else "")


def _written_off(explanation: Explanation) -> Iterator[str]:
    cells = written_off_of(explanation)
    if not cells:
        return
    more = "" if len(cells) <= SHOWN_WRITTEN_OFF else f", the last {SHOWN_WRITTEN_OFF} of them"
    yield f"written off: {len(cells)} cells{more}"
    for cell in cells[-SHOWN_WRITTEN_OFF:]:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(cell.at_ms / 1000))
        back = "; consumed after all" if cell.came_back else ""
        yield (
            f"  {explanation.spec.segments[cell.segment]} at "
            f"{time_and_slot_text(cell.slot, explanation.spec)}: {cell.items} items, "
            f"because {cell.node_id or 'the segment'} is gone, {moment} UTC{back}"
        )


def _restarts(explanation: Explanation) -> Iterator[str]:
    """The last restart, and what it dropped."""
    begun = [(part.shard, each) for part in explanation.parts for each in part.restarts]
    newest = max((each.restart.generation for _, each in begun), default=0)
    last = [(shard, each) for shard, each in begun if each.restart.generation == newest]
    if not last:
        return
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(last[0][1].restart.at_ms / 1000))
    yield f"restarted: generation {newest}, {moment} UTC, from {time_and_slot_text(last[0][1].floor, explanation.spec)}"
    for shard, each in last:
        for dropped in each.cells:
            yield (
                f"  dropped in shard {shard}: {dropped.items} items of segment "
                f"{explanation.spec.segments[dropped.segment]} in {dropped.cells} cells, at "
                f"{range_text(dropped.lowest, dropped.highest, explanation.spec)}"
            )
