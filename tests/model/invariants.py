"""What must hold in every state, told by the script alone: who knows every item needs no protocol.

1. What was announced stays true: below it nothing is in flight, nor can anything appear. (The safety
   property that Naiad's clock protocol was proven for, restated for exclusive min times.)
2. A shard's cell is the XOR of all ticks in its vector, and of no other.
3. M is a cut of whole steps: of each node a prefix of its ticks, and no shard is behind it.
4. What is in flight at M can be seen there: no candidate passes it.
5. Announcements never go back, also over a crash.
"""

from __future__ import annotations

from collections import Counter

from tests.model.script import FIRST_TICK, NODE_IDS, PIPELINE, System, items
from tests.model.transitions import Facts
from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER


class Violation(Exception):
    """An invariant does not hold."""


def check_process(
    shard: int, facts: Facts, system: System, change: PipelineSpec | None = None
) -> None:
    """What one process must hold by itself (2 and 4)."""
    if facts.said is None:
        return
    applied = [
        max(0, facts.node_times.get(node_id, 0) - first + 1)
        for node_id, first in zip(NODE_IDS, FIRST_TICK, strict=True)
    ]
    due: Counter[tuple[int, int]] = Counter()
    for item in items(change):
        if system.routing.owner(item.slot) == shard:
            for by in (item.created, item.consumed):
                if by is not None and by[1] < applied[by[0]]:
                    due[(item.segment, item.slot)] ^= system.value(item)
    if facts.cells != {cell: checksum for cell, checksum in due.items() if checksum}:
        raise Violation(
            f"shard {shard} has applied {applied} and holds {facts.cells}, due is {dict(due)}"
        )
    # One shard is its own M.
    inside = applied if system.shards == 1 else _inside_cut(facts, system)
    _check_visible(shard, facts, inside, change)


def _inside_cut(facts: Facts, system: System) -> list[int]:
    """By node, how many of its ticks are inside M."""
    first = zip(system.homes, system.first_entry, strict=True)
    return [max(0, facts.cut[home] - entry + 1) for home, entry in first]


def _check_visible(
    shard: int, facts: Facts, inside: list[int], change: PipelineSpec | None
) -> None:
    graph = SegmentGraph(change or PIPELINE)
    for item in items(change):
        created = item.created[1] < inside[item.created[0]]
        consumed = item.consumed is not None and item.consumed[1] < inside[item.consumed[0]]
        if not created or consumed:
            continue
        for segment, candidate in enumerate(facts.candidates):
            distance = graph.distance(item.segment, segment)
            if candidate is not None and distance != FOREVER and candidate > item.slot + distance:
                raise Violation(
                    f"shard {shard} could announce {candidate} for segment {segment}: the item at "
                    f"slot {item.slot} of segment {item.segment} is in flight at its M {inside}"
                )


def check_cut(facts: list[Facts]) -> None:
    """What the processes must hold together (3)."""
    for shard, each in enumerate(facts):
        for home, number in enumerate(each.cut):
            for other, theirs in enumerate(facts):
                if theirs.applied[home] < number:
                    raise Violation(
                        f"shard {shard} takes entry {number} of home {home} for applied by all, "
                        f"but shard {other} has applied {theirs.applied[home]}"
                    )


def check_announced(facts: list[Facts], truth: tuple[int, ...]) -> None:
    """What is said must be true (1). truth: min times by segment."""
    for shard, each in enumerate(facts):
        for segment, (said, true) in enumerate(zip(each.said or (), truth, strict=False)):
            if said > true:
                raise Violation(
                    f"shard {shard} announces {said} for segment {segment}, but something at slot "
                    f"{true} is not processed, or can still come"
                )


def check_step(before: list[Facts], after: list[Facts]) -> None:
    """What a step must not undo (5)."""
    for shard, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.said is None or old.said is new.said:
            continue
        if new.said is None or any(n < o for o, n in zip(old.said, new.said, strict=False)):
            raise Violation(f"shard {shard} had said {old.said} and now says {new.said}")
