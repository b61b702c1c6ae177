"""The pipelines that one process knows, and which of them there is something to do about."""

from __future__ import annotations

from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.pipeline.pipeline import Pipeline


class Pipelines(dict[str, Pipeline]):
    """By name. A pipeline is durable; what is beside it is forgotten by a crash, and follows anew."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self._shard = shard
        self.evicting: dict[str, None] = {}
        """Those that evict silent fronts, in the order in which they were registered."""
        self.registering: dict[str, PipelineSpec] = {}
        """Appended registrations that are not durable yet."""
        self._dirty: dict[str, None] = {}
        """Those that something may have to be reported or announced of."""

    def add(self, pipeline: Pipeline) -> None:
        """A pipeline is registered, or has come back."""
        self[pipeline.spec.name] = pipeline
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

    def marked(self) -> dict[str, None]:
        """Those that are marked, in that order; none is, from here on."""
        marked, self._dirty = self._dirty, {}
        return marked
