"""A pipeline begins, begins anew, and ends (rule 9)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.confirmations import Confirmations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.admission.silence import Silence
from tracker.core.cut.stable import StableCut
from tracker.core.log import (
    Announcement,
    Effect,
    KeyClosed,
    PipelineChanged,
    PipelineEnded,
    PipelineRegistered,
    PipelinesOver,
    Restart,
)
from tracker.core.log.journal import Journal
from tracker.core.log.losses import LossDeclared, PipelineKnown
from tracker.core.log.steps import ShardLeft
from tracker.core.membership.loss import begun_again
from tracker.core.membership.shards import Shards
from tracker.core.model import DroppedCells, Held, Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.change import is_less_patient
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines, deleted, gone
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
        pipeline.placed, pipeline.base = entry.placed, entry.base
        if entry.restart is not None:
            pipeline.begin_generation(entry.restart)
        pipeline.shard.expect_names(self._shards.membership.hands_over)
        self._pipelines.add(pipeline)
        pipeline.moved_ns = [now_ns] * len(spec.segments)
        self._pipelines.mark(spec.name)

    def begin_generation(
        self, name: str, restart: Restart, now_ns: int, lost: tuple[DroppedCells, ...] = ()
    ) -> None:
        """A pipeline begins anew at this process, by the registrar's entry; where that one is lost, at the first entry of it.
        Whatever is of an older one, and comes or becomes durable later, is passed over. lost: what was open at shards
        that are lost."""
        pipeline = self._pipelines.get(name)
        if pipeline is None or restart.generation <= pipeline.generation:
            return
        attached = [node for node in pipeline.home.nodes.values() if node.session is not None]
        pipeline.begin_generation(restart, lost)
        self._pipelines.begun(name, restart.generation)
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

    def take_up(self, pipeline: Pipeline, now_ns: int) -> None:
        """A pipeline has come back from what is durable, or has come from another group: its nodes, where they are at home here,
        and all that there is to report of it."""
        name = pipeline.spec.name
        closed = {key for _, of, key in self._nodes.closed_keys if of == name}
        claims = pipeline.claims()
        # One that was moved here may have left since, or have been granted what it waited for.
        pipeline.home.newest.clear()
        pipeline.home.waiting.clear()
        for node in pipeline.home.nodes.values():
            node.pending.clear()
            node.heard(now_ns)
            pipeline.home.take_up(node, claims.get(node.key.node_id, {}))
            if node.key not in closed and not node.evicted:
                pipeline.home.newest[node.key.node_id] = node.key
        pipeline.moved_ns = [now_ns] * len(pipeline.published)
        pipeline.shard.mark_all_changed()
        pipeline.unreported.update(enumerate(pipeline.durable))
        self._pipelines.mark(name)

    def end_pipeline(
        self, name: str, restart: Restart, next_shard: int, *, moved: bool = False
    ) -> None:
        """A pipeline was deleted, or has gone to another group: its nodes and subscribers hear of it, and nothing more is taken of
        it. A repeated deletion, or one of an older generation, is nothing. next_shard: shards from this number on know nothing of
        it."""
        pipeline = self._pipelines.get(name)
        if pipeline is None or restart.generation <= pipeline.generation:
            return
        refusal = gone(name) if moved else deleted(name)
        self._sessions.end_all(name, refusal)
        shards = self._shards.membership.with_newcomers
        self._pipelines.end(name, restart, shards, next_shard, moved=moved)
        self._reporter.forget_pipeline(name)
        self._confirmations.forget_pipeline(name, refusal)
        if moved:
            self._nodes.forget_joinings(name)
        self._effects.append(PipelineEnded(name, moved))

    def end_before(self, name: str, generation: int, next_shard: int, *, still_moves: bool) -> None:
        """A pipeline was deleted, by a log of which no more comes: one of a later generation is another one. Or it has gone, if
        that is the last that was heard of it."""
        pipeline, move = self._pipelines.get(name), self._shards.membership.moving.get(name)
        if pipeline is not None and pipeline.generation < generation:
            ends = Restart(generation, pipeline.spec.start_slot, 0)
            gone = move is not None and not move.arrives and not still_moves
            self.end_pipeline(name, ends, next_shard, moved=gone)
        if name not in self._pipelines:
            self._pipelines.will_not_come(name, generation, next_shard)

    def go_on_after_loss(
        self, known: PipelineKnown, declared: LossDeclared, leader: int, now_ns: int
    ) -> None:
        """Shards are lost, and all that are left have this pipeline from here on: in a new generation, or standing in the
        one that it is in. It is complete where any shard has announced that. A shard that has heard of a later restart
        already stays there. What was open at the lost ones is listed by the leader alone."""
        name = known.spec.name
        given_up = known.open if leader == self._shards.own else ()
        registered = PipelineRegistered(known.spec, known.restart, known.placed, known.base)
        self.begin_pipeline(registered, now_ns)
        pipeline = self._pipelines[name]
        pipeline.placed, pipeline.base = known.placed, known.base
        if known.changed is not None:
            self._pipelines.change(known.changes, known.changed)
        if known.restart is not None:
            self.begin_generation(name, known.restart, now_ns)
        pipeline.hear_restarts(known.before)
        if pipeline.generation != known.generation:
            return
        if known.least == FOREVER:
            everything = tuple((segment, FOREVER) for segment in range(pipeline.graph.size))
            record = Announcement(name, everything, pipeline.generation, declared.at_ms)
            self._reporter.publish(record, now_ns)
        elif declared.write_off and (restart := begun_again(known, declared)) is not None:
            self.begin_generation(name, restart, now_ns, given_up)
        else:
            pipeline.hold(Held(declared.lost, known.bound, declared.at_ms, given_up))
        self._pipelines.mark(name)

    def activate_changes(self) -> None:
        """This home logs that it judges by changes of segments and edges from here on, once it has heard of every shard
        that it reckons with them, and what that had announced before. Not where records are applied."""
        known = self._pipelines
        ready = [name for name in known.unactivated if known[name].may_activate]
        if not ready or not self._shards.counts:
            return
        if self._shards.membership.loss is not None:
            return  # all are activated when it is over
        if any(isinstance(entry, ShardLeft) for entry in self._journal.pending_entries()):
            return  # that is its last entry
        for name in ready:
            pipeline = known[name]
            number = pipeline.graph_change.number
            pending = self._journal.pending_of(PipelineChanged, name)
            if not any(entry.activated and entry.number == number for entry in pending):
                self._reporter.adopt_announced(pipeline)
                activated = PipelineChanged(number, pipeline.spec, True, pipeline.generation)
                self._journal.append_home(activated)
                pipeline.activate()

    def say_over(self) -> None:
        """This home says that it logs nothing more of pipelines that were deleted, once their closed keys are
        dropped. Not where records are applied: what recovery finds said is not said again."""
        if not self._shards.counts or self._shards.membership.leaving == self._shards.own:
            return  # one that leaves is waited for until its last entry
        if self._shards.membership.loss is not None:
            return  # all say so anew when it is over
        said = {
            each
            for entry in self._journal.pending_entries()
            if isinstance(entry, PipelinesOver)
            for each in entry.pipelines
        }
        closing = {
            entry.pipeline
            for entry in self._journal.pending_entries()
            if isinstance(entry, KeyClosed)
        }
        known = self._pipelines
        over = tuple(
            (each.pipeline, each.generation)
            for each in map(known.ended.__getitem__, known.unfinished)
            if each.pipeline not in self._shards.membership.moving
            and (each.pipeline, each.generation) not in said
            and each.pipeline not in closing
            and not self._nodes.has_closed_keys(each.pipeline)
        )
        if over:
            self._journal.append_home(PipelinesOver(over))
