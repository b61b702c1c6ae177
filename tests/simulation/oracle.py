"""The oracle: up to where everything is truly processed, computed from the world by brute force."""

from __future__ import annotations

from tests.core.graphs import spread
from tests.simulation.world import World
from tracker.core.model.slots import FOREVER

VACANT = FOREVER - 1_000_000
"""Where a segment is at most of which a front was evicted: anywhere, but never done."""


def standing(world: World) -> set[int]:
    """The segments that stand at a place which an evicted front has left vacant, wherever that is: those in
    which no other front is, and whatever they lead to."""
    fed = {f.segment for f in world.fronts.values() if not f.left and not f.evicted}
    vacant = world.vacant_segments() - fed
    lows = [VACANT if n in vacant else FOREVER for n in range(len(world.spec.segments))]
    return {n for n, low in enumerate(spread(lows, world.edges)) if low != FOREVER}


def frontier(world: World, *, with_floors: bool = True) -> list[int]:
    """By segment the lowest slot at which there is, or can still come to be, an item. with_floors: along edges that were
    added nothing comes below what was announced then; the tracker need not go by that.

    It looks at every single item, hold and front, and follows single edges until nothing changes. A
    pipeline whose declared fronts have not all joined is held at its first slot. It knows one
    generation of a pipeline; after a restart there is another world.
    """
    segments = len(world.spec.segments)
    if not world.begun:
        return [world.first_slot] * segments
    lows = [FOREVER] * segments
    for item in world.items:
        if item.slot < lows[item.segment]:
            lows[item.segment] = item.slot
    for segment, slot in world.holds.values():
        lows[segment] = min(lows[segment], slot)
    for front in world.fronts.values():
        if front.may_label_from is not None:
            lows[front.segment] = min(lows[front.segment], front.may_label_from)
    for segment in world.vacant_segments():
        lows[segment] = min(lows[segment], VACANT)
    return _spread_from(lows, world) if with_floors and world.floors else spread(lows, world.edges)


def _spread_from(lows: list[int], world: World) -> list[int]:
    """As `spread`, in place; over an edge with a floor nothing enters below that."""
    changed = True
    while changed:
        changed = False
        for edge in world.edges:
            source, target, delay = edge
            entering = min(FOREVER, lows[source] + delay)
            if lows[source] < FOREVER:
                entering = max(entering, world.floors.get(edge, entering))
            if entering < lows[target]:
                lows[target], changed = entering, True
    return lows
