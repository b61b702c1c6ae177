"""What a pipeline waits for: all fronts that it declares, before it begins; of each new segment, the first that feeds it.

That must come out the same at every shard, though a shard may hear of a change before a front joins at a home that has
not, or behind that. So a joining counts for what the pipeline was where its home went by that, as that home's log says by
where it activates the change (rule 12); what has come by then has come, whatever the change says.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, replace

from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import FrontName, PipelineSpec


@dataclass(frozen=True, slots=True)
class Former:
    """What a pipeline was before the change that is under way, as homes go by it that have not activated that: the fronts that
    have joined there by then, and the segments that wait for their first front."""

    spec: PipelineSpec
    joined: tuple[FrontName, ...] = ()
    unfed: tuple[int, ...] = ()

    def joins(self, front: FrontName, segment: int, *, has_begun: bool) -> Former:
        """A front has joined at such a home."""
        waiting = still_unfed(self.spec, {*self.unfed} - {segment})
        joined = () if has_begun else (*dict.fromkeys((*self.joined, front)),)
        return replace(self, joined=joined, unfed=tuple(sorted(waiting)))

    def feeds(self, segment: int) -> bool:
        """Whether a segment was there, and waits for no first front."""
        return segment < len(self.spec.segments) and segment not in self.unfed


def have_all_joined(spec: PipelineSpec, joined: Collection[FrontName]) -> bool:
    """Whether the fronts that a pipeline declares are among those that have joined."""
    if spec.fronts:
        return {name for _, name in joined}.issuperset(spec.fronts)
    return len(joined) >= spec.front_count


def still_unfed(spec: PipelineSpec, waiting: Set[int]) -> set[int]:
    """Of segments that wait for their first front, those that none feeds which does not wait, be it by way of others. (That a
    segment leads to itself feeds it with nothing, and neither does one that was removed as it waited: one that did not has
    fed it before.)"""
    if not waiting:
        return set()
    there = {n for n, name in enumerate(spec.segments) if name not in spec.removed}
    return {*waiting} - SegmentGraph(spec).all_reached_from(there - waiting)
