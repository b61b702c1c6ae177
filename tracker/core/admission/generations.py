"""A pipeline begins, begins anew, and ends (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.confirmations import Confirmations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.admission.silence import Silence
from tracker.core.cut.stable import StableCut
from tracker.core.log import (
    Effect,
    PipelineChanged,
    PipelineEnded,
    PipelineRegistered,
    PipelinesOver,
    Restart,
)
from tracker.core.log.journal import Journal
from tracker.core.log.steps import ShardLeft
from tracker.core.membership.shards import Shards
from tracker.core.model import Refusal, RefusalCode
from tracker.core.pipeline.change import is_less_patient
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines, deleted
from tracker.core.reporting.reporter import Reporter


@dataclass(slots=True, eq=False)
class Generations:
    """Begins pipelines and their generations at this process; the pipelines keep what there is."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _reporter: Reporter
    _nodes: Nodes
    _confirmations: Confirmations
    _sessions: Sessions
    _silence: Silence
    _effects: list[Effect]

    def begin_pipeline(self, entry: PipelineRegistered, now_ns: int) -> None:
        """A registered pipeline begins here, unless one of its name is there."""
        spec = entry.spec
        self._pipelines.registering.pop(spec.name, None)
        if spec.name in self._pipelines:
            return
        pipeline = Pipeline(spec, self._cut.vectors, self._shards.own)
        if entry.restart is not None:
            pipeline.begin_generation(entry.restart)
        pipeline.shard.expect_names(self._shards.membership.hands_over)
        self._pipelines.add(pipeline)
        pipeline.moved_ns = [now_ns] * len(spec.segments)
        self._pipelines.mark(spec.name)

    def begin_generation(self, name: str, restart: Restart, now_ns: int) -> None:
        """A pipeline begins anew at this process, at the first entry that is of a newer generation.
        Whatever is of an older one, and comes or becomes durable later, is passed over."""
        pipeline = self._pipelines.get(name)
        if pipeline is None or restart.generation <= pipeline.generation:
            return
        attached = [node for node in pipeline.home.nodes.values() if node.session is not None]
        pipeline.begin_generation(restart)
        pipeline.shard.expect_names(self._shards.membership.hands_over)
        for node in attached:
            self._sessions.end(node, self._nodes.restarted(pipeline, node.key))
        pipeline.moved_ns = [now_ns] * len(pipeline.published)
        self._reporter.forget_generation(name)
        self._pipelines.mark(name)
        self._reporter.want_whole_reports(now_ns)

    def change_pipeline(self, entry: PipelineChanged, home: int, now_ns: int) -> None:
        """A pipeline becomes another one, or a home judges by what it has become. Nodes that have to say more often that
        they live are told so when they attach again, and have the time for it."""
        name = entry.pipeline
        before = self._pipelines[name].spec
        self._pipelines.change(entry.number, entry.spec)
        if entry.activated:
            self._pipelines.activated(name, home, entry.number)
        if is_less_patient(before, self._pipelines[name].spec):
            changed = f"pipeline {name!r} has changed: its nodes say more often that they live; attach again"
            self._sessions.end_all(name, Refusal(RefusalCode.NOT_READY, changed))
            self._silence.begin_anew(now_ns)
        self._pipelines.mark(name)

    def end_pipeline(self, name: str, restart: Restart) -> None:
        """A pipeline was deleted: its nodes and subscribers hear of it, and nothing more is taken of it. A repeated
        deletion, or one of an older generation, is nothing."""
        pipeline = self._pipelines.get(name)
        if pipeline is None or restart.generation <= pipeline.generation:
            return
        refusal = deleted(name)
        self._sessions.end_all(name, refusal)
        self._pipelines.end(name, restart, self._shards.membership.members)
        self._reporter.forget_pipeline(name)
        self._confirmations.forget_pipeline(name, refusal)
        self._effects.append(PipelineEnded(name))

    def activate_changes(self) -> None:
        """This home logs that it judges by changes of segments and edges from here on, once it has heard of every shard
        that it reckons with them, and what that had announced before. Not where records are applied."""
        known = self._pipelines
        ready = [name for name in known.unactivated if known[name].may_activate]
        if not ready or not self._shards.counts:
            return
        if any(isinstance(entry, ShardLeft) for entry in self._journal.pending_entries()):
            return  # that is its last entry
        for name in ready:
            pipeline = known[name]
            number = pipeline.graph_change.number
            pending = self._journal.pending_of(PipelineChanged, name)
            if not any(entry.activated and entry.number == number for entry in pending):
                self._journal.append_home(PipelineChanged(number, pipeline.spec, activated=True))
                pipeline.activate()

    def say_over(self) -> None:
        """This home says that it logs nothing more of pipelines that were deleted, once their closed keys are
        dropped. Not where records are applied: what recovery finds said is not said again."""
        if not self._shards.counts or self._shards.membership.leaving == self._shards.own:
            return  # one that leaves is waited for until its last entry
        said = {
            each
            for entry in self._journal.pending_entries()
            if isinstance(entry, PipelinesOver)
            for each in entry.pipelines
        }
        known = self._pipelines
        over = tuple(
            (each.pipeline, each.generation)
            for each in map(known.ended.__getitem__, known.unfinished)
            if known.has_ended(each)
            and (each.pipeline, each.generation) not in said
            and not self._nodes.has_closed_keys(each.pipeline)
        )
        if over:
            self._journal.append_home(PipelinesOver(over))
