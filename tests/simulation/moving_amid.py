"""Runs with two groups, between which pipelines move while shards of either come, go and are lost.

No shard comes or goes while a pipeline is on its way from its group or to it, but by a loss; whoever asks for one while the
other is under way asks again. What goes on without a lost shard does so where the pipeline is when its move is over: where the
directory has turned to the other group, or still can, that has what was there before the loss.
"""

from __future__ import annotations

import random

from tests import inside
from tests.simulation.losses import LosingSimulator
from tests.simulation.moving import MovingSimulator
from tests.simulation.plan import MS
from tests.simulation.processes import Group, Shard
from tests.simulation.rescaling import RescalingSimulator
from tracker.core.log import Answer, HomeEntry, Record, Restart
from tracker.core.log.losses import PipelineKnown
from tracker.core.log.steps import MoveEnded
from tracker.core.model import Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.at_loss import known_at_loss

RESCALED_SHARE, LOST_SHARE = 0.2, 0.25
"""Of all runs in which pipelines move, those in which shards come and go, and in which one is lost."""
AMID_KINDS = (
    "moves_waiting_for_shards", "shards_waiting_for_moves", "moved_between_changed_shards",
    "names_given_back", "registered_anew_in_another_group", "registered_by_void_placements",
    "shards_lost_amid_moves_away", "shards_lost_amid_arrivals", "sequencers_lost_amid_moves",
    "moves_that_stayed_without_a_shard",
)  # fmt: skip
"""What happens in these runs, and where pipelines that move are deleted, and in no others. Seldom, and counted, too: pipelines that
arrive without the part of a shard, that had moved before the other group lost one, and that are deleted as a move begins."""
ROOM = 12
"""Places for shards that join the first group."""
LOOK_NS = 5 * MS


def moving_kind(seed: int, *, loses: bool, rescales: bool) -> type[MovingSimulator]:
    """What else happens in the run of a seed in which pipelines move."""
    drawn = random.Random(f"amid moves {seed}").random()
    if loses or drawn < LOST_SHARE:
        return MovingAmidLosses
    return (
        MovingAmidRescales if rescales or drawn < LOST_SHARE + RESCALED_SHARE else MovingSimulator
    )


class MovingAmidRescales(MovingSimulator, RescalingSimulator):
    """One run in which pipelines move, and shards come and go."""

    def leave_room(self) -> None:
        self._shard_of(self.group, len(self.shards) + ROOM - 1)

    def some_group(self) -> Group:
        return self._move_rng.choice(self.groups)

    def _tell_operators(self, effect: Answer) -> None:
        assert isinstance(effect.request, tuple)
        if isinstance(effect.result, Refusal) and effect.result.code is RefusalCode.NOT_READY:
            said, is_move = effect.result.message, effect.request[0] in ("wish", "move")
            waits = is_move and ("shards are changing" in said or "are joining" in said)
            self.counts["moves_waiting_for_shards"] += waits
            self.counts["shards_waiting_for_moves"] += "on their way between groups" in said
        super()._tell_operators(effect)

    def _durable(self, shard: int, record: Record) -> None:
        super()._durable(shard, record)
        entry = record.entry if isinstance(record, HomeEntry) else None
        if isinstance(entry, MoveEnded) and not entry.here:
            changed = any(self.routing_of(group).version for group in self.groups)
            self.counts["moved_between_changed_shards"] += changed


class MovingAmidLosses(MovingAmidRescales, LosingSimulator):
    """One run in which pipelines move, and a shard is lost."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        self._amid_rng = rng = random.Random(f"losing amid moves {seed}")
        large = [group for group in self.groups if len(self.present_in(group)) > 1]
        self.bereft = rng.choice(large or self.groups)
        self._waits = rng.choice([0, 30, 60, 60])
        """For how many milliseconds a loss waits for a move."""
        self._undecided: dict[str, Restart] = {}
        """By pipeline that goes how it would go on here."""
        self.after(LOOK_NS, self._look_for_what_stands)

    def _lose(self) -> None:
        if self._waits < 0:
            self._lose_now()
        elif self._waits and not self._moving():
            self._waits -= 1
            self.after(MS, self._lose)
        else:
            self._waits = -1
            self.after(self._amid_rng.randrange(15 * MS), self._lose)

    def _lose_now(self) -> None:
        moving, leads, lost = self._moving(), self.sequencer_of(self.bereft), len(self.lost)
        super()._lose()
        if len(self.lost) == lost:
            return
        # Of each segment the others say what they know; who has heard more keeps that.
        for checker in self.checkers.values():
            checker.lost.add(self.lost[-1])
        for _, _, subscriber in self.subscribers:
            subscriber.forget_stays()
        if moving:
            self.counts["shards_lost_amid_moves_away"] += not all(moving.values())
            self.counts["shards_lost_amid_arrivals"] += any(moving.values())
            self.counts["sequencers_lost_amid_moves"] += self.lost[-1] == leads

    def _moving(self) -> dict[str, bool]:
        """The pipelines on their way, as anyone in the group knows, and whether they arrive."""
        return {
            name: move.arrives
            for shard in self.present_in(self.bereft)
            if shard.running is not None
            for name, move in shard.running.process.membership.moving.items()
        }

    def _may_be_complete(self, name: str) -> bool:
        """Also of one that comes."""
        known = [self.pipeline_at(shard.number, name) for shard in self.present]
        is_complete = any(p is not None and FOREVER in p.announced for p in known)
        return (is_complete and name in self._moving()) or super()._may_be_complete(name)

    def _alone_has_changed(self, shard: Shard, name: str) -> bool:
        if self.group_of(name) is not self.bereft:
            since = self.checkers[name].since
            others = [s for s in self.present_in(self.bereft) if s is not shard]
            known = [self.pipeline_at(other.number, name) for other in others]
            return all(p is not None and p.generation < since for p in known)  # it was deleted
        arrives = self._moving().get(name, False)
        if arrives and self.pipeline_at(shard.number, name) is None:
            return False
        return super()._alone_has_changed(shard, name)

    def goes_on(self, name: str, restart: Restart) -> None:
        if self.ledger.stays.is_moving(name) and name in self._moving():
            self._undecided[name] = restart  # wherever the directory has it: that may be lost, too
        elif self.group_of(name) is not self.bereft:
            self.count("moved_before_a_loss")
        else:
            super().goes_on(name, restart)

    def _durable(self, shard: int, record: Record) -> None:
        super()._durable(shard, record)
        entry = record.entry if isinstance(record, HomeEntry) else None
        if not isinstance(entry, MoveEnded) or self.shards[shard].group is not self.bereft:
            return
        restart = self._undecided.pop(entry.pipeline, None)
        if restart is None:
            return
        if entry.here:
            self.count("moves_that_stayed_without_a_shard")
            super().goes_on(entry.pipeline, restart)
        else:
            self.count("moved_before_a_loss")

    # --- what stands ------------------------------------------------------------------------------

    def _restart_what_stands(self, known: PipelineKnown) -> None:
        """Where it is by then."""

    def _look_for_what_stands(self) -> None:
        self.after(LOOK_NS, self._look_for_what_stands)
        for name in sorted(self._standing()):
            known = self.pipeline_at(self.registrar(name), name)
            if known is None or known.held is None or self.operator.asks_for_a_restart(name):
                continue
            self.counts["arrived_without_a_shard"] += known.arrived_number > 0
            super()._restart_what_stands(known_at_loss(known, ()))

    def _standing(self) -> set[str]:
        """But for those that are complete, with which nobody can begin anything."""
        return {
            name
            for shard in self.present_in(self.bereft)
            if shard.running is not None
            for name, pipeline in inside.pipelines(shard.running.process).items()
            if pipeline.held is not None and pipeline.min_time < FOREVER
        }

    def _above_all(self, name: str, held: int | None) -> int:
        # What shards have announced of each segment, one has it all by now.
        known = self.pipeline_at(self.registrar(name), name)
        return super()._above_all(name, max(held or 0, 0 if known is None else known.min_time))

    def _is_settled(self) -> bool:
        """Whoever goes on with a move waits long for a shard that is lost."""
        running = [shard.running for shard in self.present if shard.running is not None]
        moving = any(each.process.membership.moving for each in running)
        return super()._is_settled() and not moving and not self._standing()
