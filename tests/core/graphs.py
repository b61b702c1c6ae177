"""The graph rule without cleverness: what one edge says, repeated until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

from tracker.core.model import PipelineSpec
from tracker.core.slots import FOREVER


def reachable_lows(spec: PipelineSpec, own: Sequence[int]) -> list[int]:
    """By segment the lowest slot that an item can ever have there, if the lowest slot at which
    something is in (or can be put into) each segment is `own`. Nothing is FOREVER."""
    lows = list(own)
    changed = True
    while changed:
        changed = False
        for edge in spec.edges:
            source, target = spec.segments.index(edge.source), spec.segments.index(edge.target)
            entering = min(FOREVER, lows[source] + edge.delay)
            if entering < lows[target]:
                lows[target], changed = entering, True
    return lows
