"""The graph rule without cleverness: what one edge says, repeated until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER

NumberedEdge = tuple[int, int, int]
"""(source, target, delay), segments by number."""


def numbered_edges(spec: PipelineSpec) -> list[NumberedEdge]:
    place = {name: number for number, name in enumerate(spec.segments)}
    return [(place[edge.source], place[edge.target], edge.delay) for edge in spec.edges]


def spread(lows: list[int], edges: Sequence[NumberedEdge]) -> list[int]:
    """By segment the lowest slot that an item can ever have there, if `lows` are the lowest slots at
    which something is in (or can be put into) each segment. Nothing is FOREVER. In place."""
    changed = True
    while changed:
        changed = False
        for source, target, delay in edges:
            entering = min(FOREVER, lows[source] + delay)
            if entering < lows[target]:
                lows[target], changed = entering, True
    return lows


def reachable_lows(spec: PipelineSpec, own: Sequence[int]) -> list[int]:
    """`spread` for a pipeline as registered."""
    return spread(list(own), numbered_edges(spec))
