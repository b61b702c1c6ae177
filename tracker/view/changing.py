"""A pipeline that changes while it runs, as people are shown it: what is under way, and what that waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tracker.client import PipelineInfo
from tracker.core.insight.describe import PipelineDescription
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER


def is_gone(name: str, min_time: int, spec: PipelineSpec) -> bool:
    """Whether a segment was removed, and is complete: nobody has to look at it any more."""
    return name in spec.removed and min_time == FOREVER


def draining(name: str, spec: PipelineSpec) -> str:
    """What is shown of a segment beside why it stands, where it was removed."""
    return "removed, and drains" if name in spec.removed else ""


def under_way(state: PipelineDescription) -> str:
    """What a change of segments and edges waits for that is not over, or since when the pipeline stands; empty where it
    does not."""
    if state.held_for:
        shards = ", ".join(map(str, state.held_for))
        return (
            f"it stands since shards {shards} were declared lost: what was open there is held until it is restarted (lowmark "
            "pipelines restart)"
        )
    if not state.is_changing:
        return ""
    awaited = ", ".join(map(str, state.change_awaits))
    if not awaited:
        waits = "what was before counts until every shard has applied the entries by which all judge by it"
    elif len(state.change_awaits) == 1:
        waits = f"shard {awaited} is not known to judge by it"
    else:
        waits = f"shards {awaited} are not known to judge by it"
    return f"a change of its segments and edges is under way: {waits}"


def changes_of(info: PipelineInfo) -> Iterator[str]:
    """What is under way of a change of a pipeline's segments and edges, and what it waits for: a sentence each."""
    if text := under_way(info.state):
        yield text
    for each in info.state.segments:
        if each.segment in info.spec.removed and each.min_time != FOREVER:
            open_there = f"{each.open_items} items are open there in {each.open_slots} slots"
            yield (
                f"segment {each.segment} was removed, and is complete when what is in it and before it is processed: "
                f"{open_there if each.open_slots else 'nothing is open there'}"
            )
