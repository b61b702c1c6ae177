"""What a process knows of a pipeline when other shards are declared lost, and what these can have announced (rule 10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracker.core.cut.combiner import ShardView
from tracker.core.log.losses import PipelineKnown
from tracker.core.model import DroppedCells
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.shard.cells import shown_items


def known_at_loss(
    pipeline: Pipeline, lost: Iterable[int], *, is_counted: bool = True
) -> PipelineKnown:
    """What this process logs of a pipeline when shards are declared lost. A pipeline that is complete at any shard is
    complete: that was logged before it was announced. is_counted: whether the lost ones are sure to have announced by this
    shard's reports, or by no more than it has applied."""
    lost = {*lost}
    heard = [_heard(view, pipeline.graph.size) for view in pipeline.combiner.views.values()]
    least = max(min(pipeline.announced), min(pipeline.departed_floors), pipeline.floor, *heard)
    if FOREVER in heard or min(pipeline.durable) == FOREVER:
        least = FOREVER
    return PipelineKnown(
        pipeline.registered, pipeline.restart, pipeline.changed, pipeline.changes, least,
        _bound(pipeline, lost, is_counted), tuple(_open(pipeline, lost)), pipeline.placed, pipeline.base,
        tuple(each.restart for each in pipeline.restarts[:-1]),
    )  # fmt: skip


def _heard(view: ShardView, segments: int) -> int:
    """What a shard has reported to have announced of the whole pipeline."""
    return min(view.announced.get(segment, LOWEST_SLOT) for segment in range(segments))


def _bound(pipeline: Pipeline, lost: set[int], is_counted: bool) -> int | None:
    """What no lost shard can have announced more than, of the whole pipeline; None where that is not known.

    A shard announces by the reports of all others, so also by this one's: of a front that it has pinned, and that this
    shard has, no more than the front has promised here. Before it had the front it had announced no more than its pin, or
    another one's, as whose it takes over what was announced. That all have pinned the front, this shard knows from their reports, or
    the front's home from the grant, which is durable. A newcomer knows that only of what was announced since it counts; a
    front of a segment that was removed holds nothing, and neither does one that may label nothing any more.
    """
    if pipeline.held is not None:
        return pipeline.held.from_slot
    if not is_counted:
        return None
    bound = min(_promised(pipeline), default=FOREVER)
    if bound != FOREVER:
        return bound
    if pipeline.shard.begun or pipeline.changes:  # a change may have let it begin elsewhere
        return None
    # No front that it waits for was here: nobody has announced more than where the generation began.
    if pipeline.restart is None:
        return pipeline.spec.start_slot
    views = pipeline.combiner.views
    begun = [_heard(views[shard], pipeline.graph.size) for shard in lost & views.keys()]
    return max(begun, default=LOWEST_SLOT) if LOWEST_SLOT not in begun else None


def _promised(pipeline: Pipeline) -> Iterator[int]:
    """Of each front that all shards are known to have pinned, the largest of their pins, or what it has promised here
    beyond."""
    shard, combiner = pipeline.shard, pipeline.combiner
    for name, state in shard.fronts.items():
        if pipeline.spec.segments[state.segment] in pipeline.spec.removed:
            continue
        joining = shard.front_id(name)
        node = pipeline.home.nodes.get(name[0])
        grant = None if node is None else node.grants.get(name[1])
        if joining in combiner.settled_fronts:
            yield max(combiner.largest_pin(joining), state.heartbeat)
        elif grant is not None and grant.id == joining:
            yield max(grant.slot, state.heartbeat)


def _open(pipeline: Pipeline, lost: set[int]) -> Iterator[DroppedCells]:
    """What lost shards have reported last to be open, also those that were lost before."""
    views = [view for shard, view in pipeline.combiner.views.items() if shard in lost]
    held = () if pipeline.held is None else pipeline.held.open
    for segment in range(pipeline.graph.size):
        before = [each for each in held if each.segment == segment]
        lows = [view.lows[segment] for view in views if segment in view.lows]
        lows = [low for low in lows if low.open_slots]
        if lows or before:
            lowest = min([low.slot for low in lows] + [each.lowest for each in before])
            items = sum(low.open_items for low in lows) + sum(each.items for each in before)
            cells = sum(low.open_slots for low in lows) + sum(each.cells for each in before)
            highest = max([lowest] + [each.highest for each in before])
            yield DroppedCells(segment, cells, shown_items(items), lowest, highest)
