"""A pipeline begins, and begins anew (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.cut.stable import StableCut
from tracker.core.log import Effect, Restart, SessionRefused
from tracker.core.membership.shards import Shards
from tracker.core.model import PipelineSpec
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.reporting.reporter import Reporter


@dataclass(slots=True, eq=False)
class Generations:
    """Begins pipelines and their generations at this process; the pipelines keep what there is."""

    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _reporter: Reporter
    _nodes: Nodes
    _sessions: Sessions
    _effects: list[Effect]

    def begin_pipeline(self, spec: PipelineSpec, now_ns: int) -> None:
        """A registered pipeline begins here, unless one of its name is there."""
        self._pipelines.registering.pop(spec.name, None)
        if spec.name in self._pipelines:
            return
        pipeline = Pipeline(spec, self._cut.vectors, self._shards.own)
        self._pipelines.add(pipeline)
        pipeline.moved_ns = [now_ns] * len(spec.segments)
        self._pipelines.mark(spec.name)

    def begin_generation(self, name: str, restart: Restart, now_ns: int) -> None:
        """A pipeline begins anew at this process, at the first entry that is of a newer generation.
        Whatever is of an older one, and comes or becomes durable later, is passed over."""
        pipeline = self._pipelines[name]
        if restart.generation <= pipeline.generation:
            return
        attached = [node for node in pipeline.home.nodes.values() if node.session is not None]
        pipeline.begin_generation(restart)
        for node in attached:
            self._effects.append(
                SessionRefused(node.session, self._nodes.restarted(pipeline, node.key))
            )
            self._sessions.detach(node.session)
        pipeline.moved_ns = [now_ns] * len(pipeline.published)
        self._reporter.forget_generation(name)
        self._pipelines.mark(name)
        self._reporter.want_whole_reports(now_ns)
