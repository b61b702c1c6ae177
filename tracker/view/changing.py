"""A pipeline that changes while it runs, as people are shown it: what is under way, and what that waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tracker.client import PipelineInfo
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER


def is_gone(name: str, min_time: int, spec: PipelineSpec) -> bool:
    """Whether a segment was removed, and is complete: nobody has to look at it any more."""
    return name in spec.removed and min_time == FOREVER


def draining(name: str, spec: PipelineSpec) -> str:
    """What is shown of a segment beside why it stands, where it was removed."""
    return "removed, and drains" if name in spec.removed else ""


def changes_of(info: PipelineInfo) -> Iterator[str]:
    """What is under way of a change of a pipeline's segments and edges, and what it waits for: a sentence each."""
    for each in info.state.segments:
        if each.segment in info.spec.removed and each.min_time != FOREVER:
            open_there = f"{each.open_items} items are open there in {each.open_slots} slots"
            yield (
                f"segment {each.segment} was removed, and is complete when what is in it and before it is processed: "
                f"{open_there if each.open_slots else 'nothing is open there'}"
            )
