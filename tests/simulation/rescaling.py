"""Runs in which shards come and go: an operator asks for more and fewer, processes join and leave.

Everything else goes on as in any run, with its faults: newcomers, peers and the sequencer die, requests
and answers are lost, operators ask twice. In the end all processes must have one table, those that were
to leave must be gone, and the others at the truth.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, replace

from tests.simulation.changes import REFUSED_FOR_NOW
from tests.simulation.checkers import Failure
from tests.simulation.plan import MS
from tests.simulation.processes import Group, Running, Shard
from tests.simulation.simulator import Simulator
from tests.simulation.stories import RESCALING, draw_plan
from tests.simulation.stories.joins import JOINS
from tests.simulation.stories.leaves import LEAVES
from tracker.core.log import (
    Answer,
    Effect,
    JoinShard,
    LeftTracker,
    MembersChanged,
    Pinned,
    RescaleShards,
    ShardNumber,
)
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.routing import RoutingTable

SHARE, STORMY_SHARE = 0.1, 0.4
"""Of all runs, and of storms, those in which shards come and go."""
ASK_AGAIN_NS = 8 * MS
_MOST_SHARDS = 4
_MOST_NEWCOMERS = 9
"""Together with those that are there, in a storm."""


def rescales(seed: int) -> bool:
    """Whether shards come and go in the run of a seed."""
    drawn, plan = random.Random(f"rescale {seed}").random(), draw_plan(seed)
    return drawn < (STORMY_SHARE if plan.storm else SHARE) or plan.story in RESCALING


@dataclass(slots=True, eq=False)
class Newcomer:
    """A process that joins: where it is reached, its place once it is told, whether it ever comes."""

    address: str
    speaks: int
    """The feature level of its release."""
    group: Group
    shard: int | None = None
    comes: bool = True


@dataclass(slots=True, eq=False)
class Wish:
    """What an operator wants."""

    name: str
    shards: int
    evacuate: bool
    group: Group
    without: tuple[int, ...] = ()
    done: bool = False


class RescalingSimulator(Simulator):
    """One run in which shards come and go."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        rng = random.Random(f"rescaling of {seed}")
        config = replace(
            self.plan.config,
            join_timeout_ms=max(rng.choice([15, 30, 100]), 100 * (self.plan.story == JOINS)),
            rescale_margin_ms=rng.choice([0, 2, 10]),
        )
        # Restarts of pipelines, retirements and write-offs are simulated in the other runs alone.
        pipelines = tuple(
            replace(pipeline, restarts=0, write_offs=0) for pipeline in self.plan.pipelines
        )
        self.plan = replace(self.plan, config=config, pipelines=pipelines, retirements=0)
        self._pipelines = {plan.spec.name: plan for plan in pipelines}
        self.newcomers: list[Newcomer] = []
        self.wishes: list[Wish] = []
        self._wish_rng = rng
        self._leader_rng = random.Random(f"sequencers of {seed}")

    def faults_begin(self) -> None:
        if self.faulty or self.healed:
            return
        super().faults_begin()
        if self.plan.story == LEAVES:
            return  # it says itself who is to go, and when
        rng = self._wish_rng
        for _ in range(rng.choice([1, 2, 3])):
            self.after(rng.randrange(self.plan.faults_for_ns), self._somebody_joins)
        for _ in range(rng.choice([1, 2, 3])):
            self.after(rng.randrange(2 * self.plan.faults_for_ns), self._somebody_wishes)

    # --- those who join ---------------------------------------------------------------------------

    def some_group(self) -> Group:
        """Of the groups, one in which something happens."""
        return self.group

    def _somebody_joins(self) -> None:
        group = self.some_group()
        present, coming = self.present_in(group), [n for n in self.newcomers if n.group is group]
        most = _MOST_NEWCOMERS - len(present) if self.plan.storm else _MOST_SHARDS
        if len(present) + len(coming) > most:
            return
        self.count("joining_shards")
        speaks = self.upgrading.newcomer_speaks()
        newcomer = Newcomer(f"host-{len(self.newcomers)}:1", speaks, group)
        self.newcomers.append(newcomer)
        self._ask_to_join(newcomer)

    def _ask_to_join(self, newcomer: Newcomer) -> None:
        if newcomer.shard is None and not self.resting:
            request = ("newcomer", self.newcomers.index(newcomer))
            event = JoinShard(request, newcomer.address, newcomer.speaks, newcomer.address)
            self.call(None, self.sequencer_of(newcomer.group), event)
            self.after(ASK_AGAIN_NS, self._ask_to_join, newcomer)

    def _is_numbered(self, newcomer: Newcomer, shard: int) -> None:
        if newcomer.shard is not None:
            return
        newcomer.shard = self._shard_of(newcomer.group, shard).number
        self.upgrading.is_numbered(newcomer.shard, newcomer.speaks)
        if self.chance("newcomers_that_never_come", 0.15):
            newcomer.comes = False
        else:
            self.after(self.latency(), self._bootstrap, newcomer)

    def _shard_of(self, group: Group, number: int) -> Shard:
        """The shard of a number, which may have been given before the newcomer has heard of it."""
        while len(self.shards) <= group.first + number:
            self.add_shard(group).gone = True
            self.ledger.add_place(group.table, group.number, group.first)
        shard = self.shards[group.first + number]
        assert shard.group is group, "no room is left for another shard: fix the simulator"
        return shard

    def _bootstrap(self, newcomer: Newcomer) -> None:
        """Takes up what some process knows; that may be long under way."""
        assert newcomer.shard is not None
        shard = self.shards[newcomer.shard]
        if not shard.gone or self._is_removed(newcomer.shard):
            return
        peers = [s.running for s in self.present_in(shard.group) if s.running is not None]
        pinning = [p for p in peers if any(isinstance(r, Pinned) for _, r in p.pending)]
        if pinning and self.chance("newcomers_asking_who_pins", 0.8):
            peers = pinning
        try:
            peer = self.rng.choice(peers)
            snapshot = peer.process.bootstrap_snapshot(shard.own)
        except (Refused, IndexError):
            self.after(2 * MS, self._bootstrap, newcomer)
            return
        data = pickle.dumps(snapshot)
        if peer in pinning or self.chance("peers_dying_after_a_bootstrap", 0.1):
            self.kill(peer)  # and what it has told is not durable with it
        if self.chance("newcomers_dying_before_they_begin", 0.2):
            self.after(2 * MS, self._bootstrap, newcomer)
        else:
            self.after(self.latency(5.0), self._begin, shard, data)

    def _begin(self, shard: Shard, data: bytes) -> None:
        if not shard.gone:
            return
        self.count("bootstraps")
        self.trace_line(lambda: f"shard {shard.number} begins with what a peer knows")
        shard.store.begin_with(data)
        self.ledger.add_shard(shard.number, pickle.loads(data))
        shard.gone = False
        self.start_process(shard)
        self._look_after(shard)

    def _look_after(self, shard: Shard) -> None:
        """A process of which the others know no more is refused by them, and ends."""
        if self._is_removed(shard.number):
            self.count("newcomers_too_late")
            shard.gone = True
            if shard.running is not None:
                self.kill(shard.running)
        elif not shard.gone:
            self.after(10 * MS, self._look_after, shard)

    def _is_removed(self, place: int) -> bool:
        """Whether nobody waits for a newcomer any more."""
        group, shard = self.shards[place].group, self.shards[place].own
        running = self.shards[self.sequencer_of(group)].running
        if running is None:
            return False
        known = running.process.membership
        return known.is_lost(shard) or (shard < known.next_shard and not known.knows(shard))

    # --- operators --------------------------------------------------------------------------------

    def _somebody_wishes(self) -> None:
        if self.resting:
            return
        rng, group = self._wish_rng, self.some_group()
        shards, evacuate = rng.randint(1, _MOST_SHARDS), rng.random() < 0.5
        without: tuple[int, ...] = ()
        if not self.plan.story and self._leader_rng.random() < 0.5:
            without = (self.shards[self.sequencer_of(group)].own,)
            shards = min(shards, max(1, len(self.present_in(group)) - 1))
        self.wish(shards, evacuate=evacuate, without=without, group=group)

    @property
    def is_rescaling(self) -> bool:
        known = [s.running.process.membership for s in self.shards if s.running is not None]
        return not all(wish.done for wish in self.wishes) or any(each.is_busy for each in known)

    def send_sequencer_away(self) -> None:
        if self.resting or not all(wish.done for wish in self.wishes):
            return
        self._somebody_joins()
        shards = max(1, len(self.present) - self._wish_rng.choice([0, 1]))
        self.wish(shards, evacuate=self._wish_rng.random() < 0.5, without=(self.sequencer,))

    def wish(
        self,
        shards: int,
        *,
        evacuate: bool,
        without: tuple[int, ...] = (),
        group: Group | None = None,
    ) -> None:
        """An operator asks for so many shards until there are."""
        wish = Wish(f"wish-{len(self.wishes)}", shards, evacuate, group or self.group, without)
        self.wishes.append(wish)
        self._ask_for(wish)

    def _ask_for(self, wish: Wish) -> None:
        if wish.done:
            self.not_a_step()
            return
        request = (wish.name, self.wishes.index(wish))
        asked = RescaleShards(request, wish.shards, wish.evacuate, wish.without)
        self.call(None, self.sequencer_of(wish.group), asked)
        self.after(ASK_AGAIN_NS, self._ask_for, wish)

    def _hear_of(self, wish: Wish, result: object) -> None:
        if wish.done:
            return
        if isinstance(result, RoutingTable):
            if len(result.shards) != wish.shards:
                raise Failure("broken", f"{wish.shards} shards were asked for, there are {result}")
            self.count("evacuations" if wish.evacuate else "rescales")
            self.counts["sequencers_sent_away"] += bool(wish.without)
            wish.done = True
        elif isinstance(result, Refusal) and result.code is RefusalCode.FULL:
            self.count("rescales_without_processes")
            wish.done = True
        elif isinstance(result, Refusal) and result.code is RefusalCode.NOT_HOME:
            self.count("sequencers_that_were_another")
        elif not _is_not_ready(result):
            raise Failure("broken", f"{wish} was answered {result}")

    # --- what processes say -----------------------------------------------------------------------

    def tell(self, running: Running, effect: Effect) -> None:
        if isinstance(effect, MembersChanged):
            if effect.address is not None:
                shard = self._shard_of(running.shard.group, effect.shard)
                self.after(self.latency(), self.connect, running, shard)
        elif isinstance(effect, LeftTracker):
            if not running.deposed:
                self._leave(running)
        elif isinstance(effect, Answer) and isinstance(effect.request, tuple):
            self._tell_operators(effect)
        else:
            super().tell(running, effect)

    def _tell_operators(self, effect: Answer) -> None:
        assert isinstance(effect.request, tuple)
        name, *rest = effect.request
        if name == "newcomer":
            if isinstance(effect.result, ShardNumber):
                self._is_numbered(self.newcomers[rest[0]], effect.result.shard)
            elif isinstance(effect.result, Refusal) and effect.result.code is RefusalCode.INVALID:
                self.count("older_newcomers_refused")
                self.newcomers[rest[0]].speaks = NEWEST_LEVEL
        elif str(name).startswith("wish-"):
            self._hear_of(self.wishes[rest[0]], effect.result)
        elif (
            name == "bad"
            and isinstance(effect.result, Refusal)
            and effect.result.code in REFUSED_FOR_NOW
        ):
            pass  # the pipeline is on its way to that shard, or from it: whether the name is taken, another knows
        else:
            self._tell_answer(effect)

    def _leave(self, running: Running) -> None:
        self.count("shards_left")
        self.trace_line(lambda: f"shard {running.shard.number} has left")
        running.shard.gone = True
        for node in self.nodes.values():
            if node.home == running.shard.number:
                node.home = self.sequencer_of(running.shard.group)  # whoever is asked knows more
        self.kill(running)
        for shard in self.present_in(running.shard.group):
            if shard.running is not None:
                self._end_if_unheard(shard.running)

    def process_started(self, running: Running) -> None:
        super().process_started(running)
        if running.process.shard in running.process.membership.former:
            self.after(MS, self._end_if_unheard, running)

    def _end_if_unheard(self, running: Running) -> None:
        """An operator ends the process of a shard that has left, and was down until all that it talks to had left, too: nobody
        is there to tell it that its last entry has come. It has come: none of these could have left without."""
        process, group = running.process, running.shard.group
        if not running.alive or running.deposed or process.shard not in process.membership.former:
            return
        if all(self._shard_of(group, other).gone for other in process.links):
            self._leave(running)

    def not_at_home(self) -> None:
        self.count("sent_to_another_home")

    # --- the end ----------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        return super()._is_settled() and all(wish.done for wish in self.wishes)

    def _has_arrived(self) -> bool:
        return super()._has_arrived() and all(map(self._agree_on_shards, self.groups))

    def _agree_on_shards(self, group: Group) -> bool:
        """Whether all processes of a group know the same shards, and none is on its way."""
        present = self.present_in(group)
        processes = [shard.running.process for shard in present if shard.running]
        known = processes[0].membership
        return {shard.own for shard in present} == known.members and all(
            process.membership.table == known.table
            and process.membership.members == known.members
            and process.membership.sequencer == known.sequencer
            and not process.membership.is_busy
            for process in processes
        )


def _is_not_ready(result: object) -> bool:
    return isinstance(result, Refusal) and result.code is RefusalCode.NOT_READY
