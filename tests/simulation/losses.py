"""Runs in which a shard is lost for good, at a random moment: its process, and its store. An operator declares it lost.

Everything else goes on as in any run, with its faults: those that are left die and come back, hear one another late, change
pipelines and evict fronts; in some runs shards come and go as well. What the lost shard had said of a whole pipeline must
stay true in the generation that begins then; what was open is given up, and nodes begin anew, as after a restart.
"""

from __future__ import annotations

import random

from tests import inside
from tests.simulation.checkers import Failure
from tests.simulation.nodes import Node
from tests.simulation.operators import Asked
from tests.simulation.oracle import frontier
from tests.simulation.plan import MS
from tests.simulation.processes import Running, Shard
from tests.simulation.rescaling import RescalingSimulator
from tests.simulation.stories import draw_plan
from tracker.core.log import (
    Answer,
    DeclareLost,
    Event,
    HomeEntry,
    PeerDisconnected,
    Record,
    Restart,
    RestartPipeline,
)
from tracker.core.log.losses import (
    GENERATIONS_PER_LOSS,
    LossDeclared,
    LossReport,
    PipelineKnown,
    ShardLost,
)
from tracker.core.membership.loss import begun_again
from tracker.core.model import PipelineSpec, Refusal, RefusalCode
from tracker.core.model.levels import LOSSES
from tracker.core.model.slots import FOREVER

SHARE = 0.03
"""Of all runs, those in which a shard is lost."""
ASK_AGAIN_NS = 8 * MS
_FOR_NOW = {RefusalCode.NOT_READY, RefusalCode.NOT_HOME, RefusalCode.CONFLICT}


def loses(seed: int) -> bool:
    """Whether a shard is lost in the run of a seed."""
    plan = draw_plan(seed)
    return random.Random(f"loss {seed}").random() < SHARE and plan.shards > 1 and not plan.story


class LosingSimulator(RescalingSimulator):
    """One run in which a shard is lost."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        self._loss_rng = rng = random.Random(f"losing of {seed}")
        self.also_rescales = rng.random() < 0.3
        self.write_off = rng.random() < 0.6
        self.lost: list[int] = []
        self.bereft = self.group
        """The group that loses a shard."""
        self._is_declared = False
        self._named: int | None = None
        """The shard that another one has named as the one to ask next."""
        self._left = False
        """Whether it is durable how the others go on."""
        self._began_at: dict[str, int] = {}
        """By pipeline the generation in which it went on."""

    def faults_begin(self) -> None:
        if self.faulty or self.healed:
            return
        if self.also_rescales:
            super().faults_begin()
        else:
            super(RescalingSimulator, self).faults_begin()
        self.after(self._loss_rng.randrange(self.plan.faults_for_ns), self._lose)

    # --- losing -----------------------------------------------------------------------------------

    def _lose(self) -> None:
        present = self.present_in(self.bereft)
        there = [shard for shard in present if shard.running is not None]
        if self.resting or len(there) < 2 or len(there) < len(present):
            if not self.resting and not self.healed:
                self.after(2 * MS, self._lose)  # what is away says nothing of what it had said
            return
        if any(self._may_be_complete(name) for name in self.worlds):
            return
        counted = [shard.running.process.membership.members for shard in there if shard.running]
        there = [shard for shard in there if all(shard.own in members for members in counted)]
        if len(there) < 2:
            self.after(2 * MS, self._lose)
            return
        shard = self._loss_rng.choice(there)
        running = shard.running
        assert running is not None
        if not self._is_survived(shard.own):
            self.after(2 * MS, self._lose)
            return
        if any(self._alone_has_changed(shard, name) for name in self.worlds):
            self.after(
                MS, self._lose
            )  # the operator asks again, and would not know that it was durable once
            return
        self.count("lost_shards")
        self.counts["shards_lost_in_storms"] += self.plan.storm
        if running.process.membership.level < LOSSES:
            self.count("shards_lost_amid_an_upgrade")
        if running.process.membership.sequencer == shard.own:
            self.count("lost_sequencers")
        if running.process.membership.is_busy:
            self.count("shards_lost_amid_a_change")
        self.trace_line(lambda: f"shard {shard.number} is lost for good")
        shard.gone = True
        self.lost.append(shard.number)
        for process in [*shard.former, running]:
            self.kill(process)
        shard.died = None
        for other in self.present_in(self.bereft):
            if other.running is not None:
                self.after(self.latency(), self._notice_loss, other.running, shard.own)
        self._declare()

    def _is_survived(self, lost: int) -> bool:
        """Whether one is left that does not leave, by all that anyone has accepted: else nobody can go on."""
        known = [
            inside.expected_membership(shard.running.process)
            for shard in self.present_in(self.bereft)
            if shard.running is not None
        ]
        staying = set.intersection(*(each.members - {each.leaving} for each in known))
        return bool(staying - {lost})

    def _may_be_complete(self, name: str) -> bool:
        """Whether a process may have said that a pipeline is complete, of which others do not know, or will say so by what is
        on its way: its operator would delete it."""
        return min(frontier(self.worlds[name])) == FOREVER or any(
            slot == FOREVER
            for shard in self.present_in(self.bereft)
            if (pipeline := self.pipeline_at(shard.number, name)) is not None
            for slot in pipeline.announced
        )

    def _alone_has_changed(self, shard: Shard, name: str) -> bool:
        """Whether a change of a pipeline, or its end, is durable at a shard, and no other one has applied it."""
        present = self.present_in(self.bereft)
        counted = [s.running.process.membership.members for s in present if s.running]
        others = [
            self.pipeline_at(s.number, name)
            for s in present
            if s is not shard and all(s.own in members for members in counted)
        ]
        if self.worlds[name].generation > max(p.generation if p else -1 for p in others):
            return True
        return self.operator.changes_of(name) > max(p.changes if p else 0 for p in others)

    def _notice_loss(self, running: Running, lost: int) -> None:
        if running.alive:
            self.handle(running, PeerDisconnected(lost))

    def _declare(self) -> None:
        if self._is_declared:
            self.not_a_step()
            return
        present, first = self.present_in(self.bereft), self.bereft.first
        lost = tuple(place - first for place in self.lost)
        left = [shard.own for shard in present if shard.number not in self.lost]
        members = {
            member
            for shard in present
            if shard.running is not None
            for member in shard.running.process.membership.members
        }
        leader = first + min({*left} & members, default=min(left))
        if self._named is not None:
            leader, self._named = first + self._named, None
        for shard in present:
            if shard.running is not None:  # a connection that began before is noticed to have ended
                self._notice_loss(shard.running, lost[-1])
        self.upgrading.stays()
        event = DeclareLost(("lost", len(lost)), lost, self.write_off, 1_000)
        self.call(None, leader, event)
        self.after(ASK_AGAIN_NS, self._declare)

    # --- what follows -----------------------------------------------------------------------------

    def _durable(self, shard: int, record: Record) -> None:
        super()._durable(shard, record)
        if isinstance(record, HomeEntry) and isinstance(record.entry, ShardLost):
            self._all_go_on(record.entry)

    def _all_go_on(self, entry: ShardLost) -> None:
        """It is durable from where all go on."""
        for known in entry.pipelines:
            name = known.spec.name
            restart = (
                begun_again(known, LossDeclared(entry.lost, True, 1_000))
                if self.write_off
                else None
            )
            if known.bound is None and known.least < FOREVER:
                self.count("lost_shards_without_a_bound")
            if restart is not None and name not in self._began_at:
                self._began_at[name] = restart.generation
                self.goes_on(name, restart)
        if entry.shards is None:
            return
        self.trace_line(lambda: f"all go on without {entry.shards}")
        self._left = True
        for newcomer in self.newcomers:
            if newcomer.shard is None or newcomer.group is not self.bereft:
                continue
            gone = self.shards[newcomer.shard]
            if gone.own not in entry.shards.members:
                gone.gone = True
                if gone.running is not None:
                    self.kill(gone.running)

    def registered_anew(self, spec: PipelineSpec, restart: Restart) -> None:
        if self.lost and restart.generation % GENERATIONS_PER_LOSS == 2:
            self.begins_above(spec.name, restart.generation)
        super().registered_anew(spec, restart)

    def goes_on(self, name: str, restart: Restart) -> None:
        """It is durable that a pipeline goes on without a shard."""
        self.count("pipelines_going_on_without_a_shard")
        self.restarted(name, restart)

    def _deliver(self, node: Node | None, shard: int, event: Event) -> None:
        """Who gets no answer for long asks another process."""
        if shard in self.lost and self._left:
            shard = self.present_in(self.bereft)[0].number
            if node is not None:
                node.home = shard
        super()._deliver(node, shard, event)

    def _tell_operators(self, effect: Answer) -> None:
        assert isinstance(effect.request, tuple)
        if effect.request[0] != "lost":
            super()._tell_operators(effect)
        elif isinstance(effect.result, LossReport):
            self._hear_of_loss(effect.result)
        elif not isinstance(effect.result, Refusal) or effect.result.code not in _FOR_NOW:
            raise Failure("broken", f"a loss was answered with {effect.result}")
        elif effect.result.code is RefusalCode.NOT_HOME:
            self._named = effect.result.home

    def _hear_of_loss(self, report: LossReport) -> None:
        """The others go on; an operator restarts what stands."""
        if self._is_declared:
            return
        self._is_declared = True
        for known in report.pipelines:
            if known.least < FOREVER and not (report.write_off and known.bound is not None):
                self._restart_what_stands(known)

    def _restart_what_stands(self, known: PipelineKnown) -> None:
        self.count("pipelines_held")
        name = known.spec.name
        again = known.bound is not None and self._loss_rng.random() < 0.5
        from_slot = None if again else self._above_all(name, known.bound)
        request = self.operator.new_request()
        event = RestartPipeline(request, name, known.generation, from_slot, 0)
        asked = Asked(event, lambda: self.registrar(name), self._is_restarted)
        self.operator.ask(request, asked)

    def _is_restarted(self, result: object) -> bool:
        if isinstance(result, Restart):
            return False
        if isinstance(result, Refusal) and result.code in (
            RefusalCode.UNKNOWN_PIPELINE, RefusalCode.CONFLICT,
        ):  # fmt: skip
            return False  # it was deleted meanwhile
        if isinstance(result, Refusal) and result.code in (
            RefusalCode.NOT_READY,
            RefusalCode.NOT_HOME,
        ):
            return True
        raise Failure("broken", f"what stands was not restarted: {result}")

    def _above_all(self, name: str, held: int | None) -> int:
        said = [slot for slot in self.checkers[name].said_of_the_whole if slot < FOREVER]
        spec, began = self.worlds[name].spec, self.worlds[name].first_slot
        slot = max([held or 0, spec.start_slot, began, *said]) + self._loss_rng.randint(0, 3)
        return spec.times.next_whole(slot) if spec.rounds > 1 else slot

    def _is_settled(self) -> bool:
        return super()._is_settled() and (self._is_declared or not self.lost)
