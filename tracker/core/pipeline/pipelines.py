"""The pipelines that one process knows, and which of them there is something to do about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.pipeline.pipeline import Pipeline


@dataclass(init=False, eq=False, repr=False)
class Pipelines(dict[str, Pipeline]):
    """By name. Durable are the pipelines themselves."""

    evicting: dict[str, None] = d.follows("the pipelines")
    """Those that evict silent fronts, in the order in which they were registered."""
    segments: int = d.follows("the pipelines")
    """Of all of them together."""
    registering: dict[str, PipelineSpec] = d.follows("what is appended", ahead=True)
    """Appended registrations that are not durable yet."""
    _shard: int = d.follows("which process it is")
    _dirty: dict[str, None] = d.forgotten(d.REPORTED_AGAIN)
    """Those that something may have to be reported or announced of."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self._shard, self.segments = shard, 0
        self.evicting, self.registering, self._dirty = {}, {}, {}

    def add(self, pipeline: Pipeline) -> None:
        """A pipeline is registered, or has come back."""
        self[pipeline.spec.name] = pipeline
        self.segments += len(pipeline.spec.segments)
        if pipeline.spec.evicts:
            self.evicting[pipeline.spec.name] = None

    def named(self, name: str) -> Pipeline:
        """The pipeline of this name; raises Refused(UNKNOWN_PIPELINE) if there is none."""
        pipeline = self.get(name)
        if pipeline is None:
            raise Refused(
                RefusalCode.UNKNOWN_PIPELINE,
                f"pipeline {name!r} is not registered (shard {self._shard} knows "
                f"{len(self)} pipelines); register it first",
            )
        return pipeline

    def mark(self, *names: str) -> None:
        """Something may have to be reported or announced of these."""
        self._dirty.update(dict.fromkeys(names))

    def unmark(self, name: str) -> None:
        """What there was to report of it is reported."""
        del self._dirty[name]

    @property
    def has_news(self) -> bool:
        """Whether any is marked."""
        return bool(self._dirty)

    @property
    def of_which_news(self) -> Collection[str]:
        """Those that are marked."""
        return self._dirty.keys()

    def marked(self) -> dict[str, None]:
        """Those that are marked, in that order; none is, from here on."""
        marked, self._dirty = self._dirty, {}
        return marked
