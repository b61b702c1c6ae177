"""A whole tracker and its nodes under a simulated clock, network and store, from one seed.

The processes are the production core; everything around them is simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests import inside
from tests.simulation.changes import changes_of, front_changes_of
from tests.simulation.checkers import (
    AnnouncementChecker,
    Failure,
    SubscriberChecker,
    has_arrived,
    what_is_left,
)
from tests.simulation.forms import another_of_the_name
from tests.simulation.hearing import NOTICED_PAUSE_MS
from tests.simulation.holders import HolderNode, holds_time
from tests.simulation.local_trackers import (
    Actor,
    EagerWorker,
    LocalTrackerNode,
    LowerTracker,
    Upper,
)
from tests.simulation.long_tasks import LongTaskWorker
from tests.simulation.nodes import (
    FrontNode,
    LeaderFront,
    Life,
    Node,
    OneItemFront,
    VisitingFront,
    VisitorNode,
    WanderingFront,
    WorkerNode,
    unit_item,
)
from tests.simulation.operators import STILL_NS, Operator, deletes
from tests.simulation.oracle import standing
from tests.simulation.plan import MS, FrontPlan, PipelinePlan
from tests.simulation.processes import Group, Processes, Running, Shard
from tests.simulation.queries import QueryNode
from tests.simulation.stories import STORIES
from tests.simulation.storms import Storm
from tests.simulation.upgrading import REQUEST, Upgrading
from tests.simulation.world import FrontId, Item, World
from tracker.core.log import (
    Announced,
    Announcement,
    Answer,
    AttachSession,
    DetachSession,
    Effect,
    Entry,
    Event,
    FrontGranted,
    Joined,
    JoinNode,
    LeftTracker,
    MembersChanged,
    PipelineChanged,
    PipelineCompleted,
    PipelineEnded,
    Record,
    RegisterPipeline,
    Restart,
    SessionAttached,
    ShardReport,
    SubmitTick,
    SubmitTicks,
    TickRefused,
    UnitsArrived,
)
from tracker.core.log.steps import FIRST_SEQUENCER
from tracker.core.model import (
    HOLD_FRONT,
    FrontJoin,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    StagedContribution,
    TickContent,
)
from tracker.core.model.slots import FOREVER
from tracker.core.process import Process

SETTLE_LIMIT_NS = 4_000 * MS
"""After the faults end, all nodes must have committed all they have within this time."""
ARRIVE_LIMIT_NS = 400 * MS
"""After that, every process must say the true frontier, and forget who left, within this time."""
FAULTS_BY_NS = 40 * MS
HURRY_NS = 0.5 * MS
"""Faults begin by then, though no front may have published anything yet."""
FRONTS = {
    "": FrontNode, "one item": OneItemFront, "leader": LeaderFront, "visitor": VisitingFront,
    "wanderer": WanderingFront,
}  # fmt: skip
_STRANGER, _WITNESS = "stranger", "witness"
_NEVER_GIVEN = 2**60
"""Generations that no run comes to."""
CHECK_EVERY_STEPS = 64
"""How often a process is compared with the homes' logs as the stores have them."""


class Simulator(Processes):
    """One run. `run()` raises `Failure` where a promise is broken; `counts` says what happened."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        self._last_on_stream: dict[Any, int] = {}
        self._last_number: dict[Any, int] = {}
        """By stream of ticks, the number that was sent last."""
        self._renumbered: set[Any] = set()
        """Streams on which a number has been given to another tick, since one was refused."""
        self._names = 0
        self.worlds: dict[str, World] = {}
        """Of each pipeline its newest generation."""
        self._generations: dict[str, dict[int, World]] = {}
        self.checkers: dict[str, AnnouncementChecker] = {}
        self.healed_ns = 0
        self.resting = False
        """Whether all nodes have committed all they had to say."""
        self.subscribers: list[tuple[Running | None, str, SubscriberChecker]] = []
        self.nodes: dict[str, Node] = {}
        self.actors: list[Actor] = []
        self.registered: set[str] = set()
        self._unaware: dict[str, Running] = {}
        """By node the former owner of its home that it still talks to."""
        self._waiting_to_start: list[Node] = []
        self._pipelines = {p.spec.name: p for p in self.plan.pipelines}
        self.story = STORIES[self.plan.story](self) if self.plan.story else None
        self.operator = Operator(self)
        self.upgrading = Upgrading(self)
        self.chance_to_restart = random.Random(f"restarts of {seed}")
        self.storm = Storm(self) if self.plan.storm else None

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Faults for a while, then none; everything must come to rest at the truth."""
        for pipeline in self.plan.pipelines:
            given_up = pipeline.restarts or pipeline.write_offs or deletes(self.plan, pipeline)
            exact_late = not (given_up or self.plan.storm)
            world = World(
                pipeline.spec, exact_late=exact_late, runs_ahead=pipeline.readers_run_ahead
            )
            self.worlds[pipeline.spec.name] = world
            self._generations[pipeline.spec.name] = {0: world}
            self.checkers[pipeline.spec.name] = AnnouncementChecker(world)
        for shard in self.present:
            self.start_process(shard)
        for pipeline in self.plan.pipelines:
            self._begin_pipeline(pipeline)
        self.upgrading.begin()
        if self.plan.faults_from_start:
            self.faults_begin()
        self.after(FAULTS_BY_NS, self.faults_begin)
        self._run_until(self._is_settled, "commit all that nodes have to say", None)
        self.resting = True
        self.operator.give_up_what_is_never_created()
        deadline = self.now + ARRIVE_LIMIT_NS
        self._run_until(self._has_arrived, "announce the true frontier", deadline)
        self._run_until(self._is_tidy, "empty the tables and forget the nodes that left", deadline)
        self._check_all_applied()

    def _run_until(self, done: Callable[[], bool], what: str, deadline: int | None) -> None:
        checkers = list(self.checkers.values())
        while not done():
            if deadline is None and self.healed:
                deadline = self.now + SETTLE_LIMIT_NS
            if deadline is not None and self.now > deadline:
                raise Failure("lost", f"too late to {what}: {self._state()}")
            self.take_step()
            for checker in checkers:
                checker.check()
            if not self.steps % CHECK_EVERY_STEPS:
                present = self.present
                shard = present[self.steps // CHECK_EVERY_STEPS % len(present)]
                if shard.running is not None:
                    self.check_process(shard.running)

    def _is_settled(self) -> bool:
        return (
            self.healed
            and self.upgrading.settled
            and (self.storm is None or self.storm.is_over)
            and all(world.at_rest for world in self.worlds.values())
            and not any(map(self._takes_late, self.worlds.values()))
            and len(self.registered) == len(self.worlds)
            and all(node.settled for node in self.nodes.values())
            and all(actor.settled for actor in self.actors)
            and not self.operator.busy
        )

    def _takes_late(self, world: World) -> bool:
        """Whether there is something to take that comes too late. (Queries read what their sources list.)"""
        return bool(world.late) and self._pipelines[world.spec.name].kind != "queries"

    def _has_arrived(self) -> bool:
        return all(map(self._agree, self.worlds.values())) and all(
            shard.running is not None
            and (not self.lives_at(shard, name) or has_arrived(world, shard.running.process))
            for name, world in self.worlds.items()
            for shard in self.present
        )

    def _agree(self, world: World) -> bool:
        """Whether all processes say the same, where the truth does not say where min time has to be."""
        stand, name = standing(world), world.spec.name
        if not stand:
            return True
        present = (shard for shard in self.present if self.lives_at(shard, name))
        running = [shard.running for shard in present if shard.running is not None]
        said = [inside.pipeline(each.process, name).durable for each in running]
        return len({tuple(slots[s] for s in stand if s < len(slots)) for slots in said}) == 1

    def _is_tidy(self) -> bool:
        present = {node.name for node in self.nodes.values() if not node.finished}
        return all(shard.running is not None for shard in self.present) and not any(
            what_is_left(world, shard.running.process, present)
            for shard in self.shards
            for name, world in self.worlds.items()
            if shard.running is not None and self.lives_at(shard, name)
        )

    def _check_all_applied(self) -> None:
        """At the end: each published batch is in one home's log, and every shard has applied it."""
        for shard in self.present:
            assert shard.running is not None
            self.check_process(shard.running)
            self.operator.check_changes(shard)
            self.upgrading.check_end(shard.running.process)
            self._check_begun(shard.running.process)
        for node in self.nodes.values():
            for number in node.published.keys() - set(getattr(node, "given_up", ())):
                scope = node.published[number]
                if not self.ledger.has_batch(node.world.spec.name, scope, number):
                    if isinstance(node, FrontNode) and node.dies and node.finished:
                        continue  # it died for good before it had committed it
                    raise Failure("lost", f"batch {number} of {node.name} is in no home's log")

    def _check_begun(self, process: Process) -> None:
        """No generation begins where a process has said that the pipeline is complete: no front could
        ever label anything in it."""
        for name, pipeline in inside.pipelines(process).items():
            if pipeline.generation and pipeline.floor == FOREVER:
                raise Failure(
                    "lost",
                    f"shard {process.shard} had said that {name} is complete when it was restarted",
                )

    def _state(self) -> str:
        parts = []
        for name, world in self.worlds.items():
            there = [
                shard.running.process
                for shard in self.shards
                if shard.running is not None and name in inside.pipelines(shard.running.process)
            ]
            present = {n.name for n in self.nodes.values() if not n.finished}
            for process in there:
                parts += what_is_left(world, process, present)
            said = [process.min_times(name) for process in there]
            parts.append(f"{name}: {len(world.items)} items, {len(world.holds)} holds, said {said}")
            parts += [f"{n.name}: {len(n.window)} ticks under way, attached={n.attached}"
                      for n in self.nodes.values() if n.world is world and not n.settled]  # fmt: skip
        parts += [f"{actor.name} is not done" for actor in self.actors if not actor.settled]
        return "; ".join(parts)

    @property
    def sequencer(self) -> int:
        """The shard that decides which shards come and go, as far as any process has heard."""
        return self.sequencer_of(self.group)

    def sequencer_of(self, group: Group) -> int:
        """The place of the shard that decides in a group."""
        known = [
            s.running.process.membership
            for s in self.shards
            if s.running is not None and s.group is group
        ]
        newest = max(known, key=lambda each: each.moves, default=None)
        return group.first + (FIRST_SEQUENCER if newest is None else newest.sequencer)

    # --- the plan becomes events ------------------------------------------------------------------

    def _begin_pipeline(self, plan: PipelinePlan) -> None:
        world = self.worlds[plan.spec.name]
        self._register(plan.spec)
        for front in plan.fronts:
            node = FRONTS[front.role](
                self, world, front.name, front.segment, front.batches,
                leaves=front.leaves, dies=front.dies,
            )  # fmt: skip
            self.add_node(node, front.joins_ns)
            if front.late:
                self.count("late_fronts")
            if front.again and front.leaves and not front.dies:
                later = front.joins_ns + self.milliseconds(5, 25)
                self.after(later, self._come_again, node, front)
        if plan.kind == "eager":
            self._begin_tree(plan, world)
        for name, reads in plan.workers if plan.kind != "eager" else ():
            kind = QueryNode if plan.kind == "queries" else WorkerNode
            if holds_time(self.plan, plan):
                kind = HolderNode
            self.add_node(kind(self, world, name, set(reads)), self.milliseconds(0, 3))
        for number in range(plan.visitors):
            visitor = VisitorNode(self, world, f"{plan.spec.name}-visitor{number}")
            self.add_node(visitor, self.milliseconds(0, 10))

    def add_node(self, node: Node, delay_ns: int) -> None:
        self.nodes[node.name] = node
        self.after(delay_ns, self._start_when_registered, node)

    def _begin_tree(self, plan: PipelinePlan, world: World) -> None:
        """Workers hand over to lower local trackers, or straight to the upper one, which is a node."""
        root = LocalTrackerNode(self, world, f"{plan.spec.name}-tracker")
        self.add_node(root, self.milliseconds(0, 3))
        lower = [LowerTracker(self, world, f"{root.name}-{n}", root) for n in range(2)]
        self.actors += lower
        for place, (name, reads) in enumerate(plan.workers):
            uppers: list[Upper] = [*lower, root]
            upper = uppers[place % 3]
            holds = holds_time(self.plan, plan, "eager")
            kind = LongTaskWorker if holds else EagerWorker
            self.actors.append(kind(self, world, name, upper, set(reads)))

    def _register(self, spec: PipelineSpec) -> None:
        """Asks until it is answered; asking again changes nothing."""
        if spec.name in self.registered:
            self.not_a_step()
            return
        shard = self.registrar(spec.name)
        self.call(None, shard, RegisterPipeline(("register", spec.name), spec))
        self.after(6 * MS, self._register, spec)

    def _start_when_registered(self, node: Node) -> None:
        if node.world.spec.name in self.registered:
            node.start()
        else:
            self._waiting_to_start.append(node)

    def _is_registered(self, name: str) -> None:
        if name in self.registered:
            return
        self.registered.add(name)
        is_for_good = not (self.plan.storm or deletes(self.plan, self._pipelines[name]))
        if self.rng.random() < 0.2 and is_for_good:
            self.count("bad_registrations")
            other = PipelineSpec(name, ("another",), open=True)
            bad = RegisterPipeline(("bad", name), other)
            self.call(None, self.registrar(name), bad)
        for node in [n for n in self._waiting_to_start if n.world.spec.name == name]:
            self._waiting_to_start.remove(node)
            self.after(self.milliseconds(0, 2), node.start)
        for actor in self.actors:
            if actor.world.spec.name == name:
                self.after(self.milliseconds(0, 2), actor.start)

    def _come_again(self, node: FrontNode, plan: FrontPlan) -> None:
        if self.resting:
            return
        if node.finished:
            checker = self.checkers[node.world.spec.name]
            if max(checker.highest) < 2**62:
                self.count("ids_used_again")
                node.come_again(batches=1)
        elif not self.healed:
            self.after(5 * MS, self._come_again, node, plan)

    def faults_begin(self) -> None:
        """From now on things go wrong, for the planned time; called when there is something to
        lose, or at the start."""
        if self.faulty or self.healed:
            return
        self.faulty = True
        self.trace_line(lambda: "faults begin")
        plan, rng = self.plan, self.rng
        rng_of_changes = random.Random(f"times of changes {plan.seed}")
        self.after(plan.faults_for_ns, self._heal)

        def at_random(times: int, call: Callable[[], None]) -> None:
            for _ in range(times):
                self.after(rng.randrange(plan.faults_for_ns), call)

        if self.story is not None:
            self.after(self.milliseconds(1, 6), self.story.begin)
        if self.storm is not None:
            self.storm.begin()
        for pipeline in plan.pipelines:
            for _ in range(pipeline.restarts):
                self.after(rng.randrange(plan.faults_for_ns), self.operator.restart, pipeline.spec)
            if deletes(plan, pipeline):
                self.after(
                    rng.randrange(plan.faults_for_ns), self.operator.delete, pipeline.spec.name
                )
            for _ in range(changes_of(plan, pipeline)):
                self.after(
                    rng_of_changes.randrange(plan.faults_for_ns),
                    self.operator.change_graph,
                    pipeline.spec.name,
                )
            for at_ns in front_changes_of(plan, pipeline):
                self.after(at_ns, self.operator.change_fronts, pipeline.spec.name)
            for call, times in (
                (self.operator.change_limits, pipeline.limit_changes),
                (self.operator.write_off, pipeline.write_offs),
            ):
                for _ in range(times):
                    self.after(rng.randrange(plan.faults_for_ns), call, pipeline.spec)
        at_random(plan.process_crashes, self._crash_some_process)
        at_random(plan.takeovers, self._take_over_some_process)
        at_random(plan.pauses, self._pause_some_process)
        at_random(plan.node_crashes, self._crash_some_node)
        at_random(plan.session_breaks, self._break_some_session)
        at_random(plan.retirements, self.operator.retire_some)
        at_random(plan.snapshots * plan.shards, self._snapshot_some_process)
        at_random(3, self._subscribe_somewhere)
        if plan.shards > 1:
            at_random(plan.link_resets, self._reset_some_link)
            at_random(plan.link_cuts, self._cut_some_link)
            at_random(plan.slow_peers, self._slow_some_peer)

    def _heal(self) -> None:
        self.faulty, self.healed, self.healed_ns = False, True, self.now
        self.trace_line(lambda: "faults end")
        self.after(STILL_NS + MS, self.operator.give_up_what_is_never_created)
        for shard in self.present:
            if shard.running is None:
                self.start_process(shard)
            else:
                for wire in shard.running.wires.values():
                    wire.last_arrival = 0  # what dawdled under faults holds up nobody now
        for node in self.nodes.values():
            if not node.alive and not node.finished and node.life:
                node.start()
        for actor in self.actors:
            if actor.life:
                actor.start()

    # --- services for nodes -----------------------------------------------------------------------

    def pause(self) -> int:
        """How long somebody takes to do the next thing; all hurry once the faults are over."""
        return self._pause(HURRY_NS if self.healed else self.plan.pause_ns)

    def _pause(self, mean_ns: float) -> int:
        return int(self.rng.expovariate(1.0) * mean_ns) + 1000

    def front_pause(self) -> int:
        """How long a front takes to do the next thing; it hurries once the faults are over."""
        return self._pause(HURRY_NS if self.healed else self.plan.front_pause_ns)

    def slot_now(self, world: World) -> int:
        return world.spec.start_slot + self.now // world.spec.slack_ns

    @property
    def workers_wait(self) -> bool:
        """Whether a story has workers do nothing just now."""
        return self.story is not None and self.story.workers_wait

    @property
    def visitors_wait(self) -> bool:
        """Whether a story has visiting fronts stay away just now."""
        return self.story is not None and self.story.visitors_wait

    def may_take(self, item: Item) -> bool:
        """Whether a story lets workers take an item now."""
        return self.story is None or self.story.only is None or item in self.story.only

    def label_child(self, lowest: int) -> int:
        """The slot of a child, at or above the lowest that it may have."""
        return self.slot_of_story(lowest + self.rng.choice([0, 0, 1, 2]))

    def slot_of_story(self, slot: int) -> int:
        """The first slot from there on that a story may want; any, once the shard it wants has left."""
        toward = None if self.story is None else self.story.toward
        routing = self.routing
        if toward in routing.shards:
            while routing.owner(slot) != toward:
                slot += 1
        return slot

    def draw_skew(self) -> int:
        """By how many slots a clock is off; clocks should be within one of each other."""
        skew = self.rng.choice([0, 0, 1, -1, 0, 5, -5])
        if abs(skew) > 1:
            self.count("skewed_clocks")
        return skew

    def child_share(self, world: World) -> float:
        """How often an item has a child; once the faults are over, most come to an end."""
        share = self._pipelines[world.spec.name].child_share
        return min(share, 0.2) if self.healed else share

    def new_item(
        self, world: World, segment: int, slot: int, value: int, hops: int | None = None
    ) -> Item:
        plan = self._pipelines[world.spec.name]
        left = plan.hops if hops is None else hops
        if plan.unit_share and self.rng.random() < plan.unit_share:
            return self.new_unit(segment, slot, left)
        return Item(segment, slot, value, left)

    def new_unit(self, segment: int, slot: int, hops: int) -> Item:
        self._names += 1
        return unit_item(segment, slot, f"unit-{self._names}", hops)

    def items_appeared(self, world: World) -> None:
        for node in self.nodes.values():
            if node.world is world and isinstance(node, (WorkerNode, QueryNode)):
                node.wake()
        for actor in self.actors:
            if actor.world is world:
                actor.wake()

    def consumes(self, world: World, items: list[Item]) -> None:
        """A reader consumes items, of which the tracker may not have accepted some."""
        for item in items:
            if not item.known and not item.late:
                self.count("consumed_ahead")
                if item not in world.items:
                    self.count("consumed_of_evicted_fronts")

    def resolve_unit(self, world: World, segment: int, name: str) -> int | None:
        """What the keeper of a segment's names says of a unit; None if it is away or does not know, or is in a generation
        in which who asks is not."""
        pipeline = world.spec.name
        keeper = self.place(pipeline, lambda table: table.names_keeper(pipeline, segment))
        running = self.shards[keeper].running
        if running is None or self._generation_at(running, pipeline) != world.generation:
            return None
        try:
            return running.process.resolve_units(pipeline, segment, [name])[0]
        except Refused as refused:
            if refused.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:  # else it was deleted
                self.not_at_home()
            return None

    def read_staged(self, node: Node, batch: int) -> tuple[StagedContribution, ...] | None:
        """What is staged for a batch of a query; None while its home is away, or in a generation that
        the query is not in."""
        running, name = self._at_home(node), node.world.spec.name
        if running is None or self._generation_at(running, name) != node.world.generation:
            node.follows()
            return None
        try:
            return running.process.staged(name, node.name, node.name, batch)
        except Refused as refused:
            if refused.refusal.home < 0:
                self.not_at_home()
            else:
                node.sent_to(refused.refusal.home)
            return None

    def _generation_at(self, running: Running, pipeline: str) -> int | None:
        known = inside.pipelines(running.process).get(pipeline)
        return None if known is None else known.generation

    # --- between nodes and their homes ------------------------------------------------------------

    def has_gone(self, node: Node) -> bool:
        """Whether a node's pipeline lives in another group than the one in which it takes itself to be at home."""
        return False

    def asks_elsewhere(self, result: object) -> bool:
        """Whether whoever asked was told that the pipeline is in another group."""
        return False

    def not_at_home(self) -> None:
        """A process has sent somebody elsewhere, who is where the newest table says."""
        raise Failure("broken", "somebody was sent away from home")

    def _at_home(self, node: Node) -> Running | None:
        """The process that a node takes for its home's."""
        return self._unaware.get(node.name) or self.shards[node.home].running

    def call(self, node: Node | None, shard: int, event: Event) -> None:
        """A request of a node; it or its answer may be lost."""
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_requests")
            return
        self.after(self.latency(), self._deliver_call, node, shard, event)

    def _deliver_call(self, node: Node | None, shard: int, event: Any) -> None:
        if node is not None and node.finished and event.request[1] != node.life:
            self.not_a_step()  # what it opened nobody would close: an operator would have to
            return
        self._deliver(node, shard, event)

    def stream(self, node: Node, event: Event) -> None:
        """The next message of a node's stream of ticks. Now and then a tick comes twice: at once, or
        later, from a stream that is not the node's any more. (Later on the same stream its number
        may be another tick's, if it was refused; but streams repeat nothing.) Copies go unanswered."""
        delay = self._in_order(node.session, self.latency())
        ticks: Sequence[SubmitTick] = ()
        if isinstance(event, SubmitTick | SubmitTicks):
            ticks = (event,) if isinstance(event, SubmitTick) else event.ticks
        for tick in ticks:
            if tick.number <= self._last_number.get(node.session, 0):
                self._renumbered.add(node.session)
            self._last_number[node.session] = tick.number
        if ticks and self.faulty and self.rng.random() < self.plan.tick_duplication:
            self.count("duplicated_ticks")
            self.after(delay, self._deliver_twice, node, event)
            self.after(delay + self.latency(20.0), self._deliver_late, node, event)
        else:
            self.after(delay, self._deliver, node, node.home, event)

    def _deliver_twice(self, node: Node, event: Event) -> None:
        self._deliver(node, node.home, event)
        running = self._at_home(node)
        if running is not None and not running.waiting_ticks:  # where it would be answered later
            self._deliver_copy(node, event)

    def _deliver_late(self, node: Node, event: SubmitTick | SubmitTicks) -> None:
        if node.session != event.session and event.session not in self._renumbered:
            self.count("ticks_of_older_streams")
            self._deliver_copy(node, event)
        else:
            self.not_a_step()

    def _in_order(self, stream: Any, delay_ns: int) -> int:
        """A delay that lets nothing overtake on the stream."""
        arrival = max(self.now + delay_ns, self._last_on_stream.get(stream, 0) + 1)
        self._last_on_stream[stream] = arrival
        return arrival - self.now

    def _deliver_copy(self, node: Node, event: Event) -> None:
        running = self._at_home(node)
        if running is not None and running.paused:  # it would be answered later
            return
        self._unheard = True
        self._deliver(node, node.home, event)
        self._unheard = False

    def _deliver(self, node: Node | None, shard: int, event: Event) -> None:
        """An event reaches a process; nobody hears it if the process is down."""
        running = self.shards[shard].running
        if node is not None and node.name in self._unaware and shard == node.home:
            running = self._unaware[node.name]
        if running is not None and running.alive:
            self.handle(running, event)
        else:
            self.not_a_step()

    def perhaps_a_zombie(self, node: Node, key: NodeKey) -> None:
        """A process of a node that is over goes on all the same: it opens a stream and commits a tick.
        (What is wrong with that, if it is too late, the ledger knows.)"""
        if self.chance("zombies", self.plan.zombies):
            session = (node.name, -1, key)
            name, generation = node.world.spec.name, node.world.generation
            event = AttachSession(session, name, key, generation)
            self.after(self.milliseconds(0, 12), self._deliver, None, node.home, event)

    def _zombie_hears(self, home: int, effect: Any) -> None:
        if isinstance(effect, SessionAttached):
            event = SubmitTick(effect.session, effect.last_number + 1, TickContent())
            self.after(self.latency(), self._deliver, None, home, event)

    def perhaps_a_stranger(self, node: Node) -> None:
        """Somebody else, a copy that was started by mistake, asks to join under a node's id."""
        if self.chance("strangers"):
            name = node.world.spec.name
            event = JoinNode((_STRANGER, node.name), name, node.name, node.kind, _STRANGER)
            self.after(self.milliseconds(0, 12), self._deliver_stranger, node, event)
        if self.chance("witnesses") and node.key is not None:
            # It knows of a joining of which the tracker does not: as if the store were an older one.
            event = JoinNode(
                (_WITNESS, node.name), node.world.spec.name, node.name, node.kind, node.name,
                known_incarnation=node.key.incarnation, known_generation=_NEVER_GIVEN,
            )  # fmt: skip
            self.after(self.milliseconds(0, 12), self._deliver, None, node.home, event)

    def _deliver_stranger(self, node: Node, event: JoinNode) -> None:
        running = self.shards[node.home].running
        pipeline = running and inside.pipelines(running.process).get(event.pipeline)
        known = pipeline and pipeline.home.nodes.get(node.name)
        if running and not running.paused and known and known.session is not None:
            self._deliver(None, node.home, event)
        else:
            # It would be let in, and nobody would close what it opened: as soon as the process goes on,
            # where it stands still, and what had come before ends the session.
            self.not_a_step()

    def _to_node(self, name: str, link: Any, effect: Effect) -> None:
        self.after(self._in_order(("to", link), self.latency()), self.nodes[name].hear, effect)

    # --- what processes say -----------------------------------------------------------------------

    def tell(self, running: Running, effect: Effect) -> None:
        if isinstance(effect, Announced):
            self._tell_announced(running, effect)
        elif isinstance(effect, Answer):
            self._tell_answer(effect)
        elif isinstance(effect, PipelineEnded):
            for place, (process, name, _) in enumerate(self.subscribers):
                if process is running and name == effect.pipeline:
                    self._ended_for(place, name, moved=effect.moved)
        elif isinstance(effect, MembersChanged | LeftTracker):
            raise Failure("broken", f"{effect}, where nobody joins or leaves")
        elif not isinstance(effect, UnitsArrived):  # simulated readers ask again by themselves
            self._tell_session(effect)

    def _tell_announced(self, running: Running, effect: Announced) -> None:
        self.counts["announcements"] += 1
        min_times = list(effect.min_times)
        if not self._is_present(running, effect.pipeline):
            return
        told = inside.pipeline(running.process, effect.pipeline).told
        self.ledger.check_said(running.shard.number, effect.pipeline, min_times, told)
        if told and not running.deposed:
            self._check_found_again(running, effect.pipeline)
        self._hear(running, effect.pipeline, min_times)
        checker = self.checkers[effect.pipeline]
        checker.hear_whole(running.shard.number, running.epoch, effect.pipeline_min_time)
        for process, name, subscriber in self.subscribers:
            if process is running and name == effect.pipeline:
                subscriber.hear(min_times)

    def _tell_answer(self, effect: Answer) -> None:
        assert isinstance(effect.request, tuple)
        name: str = effect.request[0]
        if name == "register":
            if isinstance(effect.result, PipelineSpec) and self._is_newest(effect.result):
                self._is_registered(effect.result.name)
            return  # else it is asked again later
        if name == self.operator.name:
            self.operator.hear(effect)
            return
        if name == REQUEST:
            self.upgrading.hear(effect.result)
            return
        if name == "bad":
            code = effect.result.code if isinstance(effect.result, Refusal) else None
            if code is not RefusalCode.CONFLICT:
                raise Failure("broken", f"another pipeline of that name was answered {code}")
            self.count("refused_conflict")
            return
        if name == _STRANGER:
            if isinstance(effect.result, Joined):
                raise Failure("broken", f"{effect.request} joined as {effect.result.key}, in use")
            self.count("refused_strangers")
            return
        if name == _WITNESS:
            code = effect.result.code if isinstance(effect.result, Refusal) else None
            if code in (None, RefusalCode.CONFLICT):
                raise Failure(
                    "broken", f"{effect.request} was not told what is lost: {effect.result}"
                )
            if code is RefusalCode.LOST:
                self.count("refused_witnesses")
            return
        if isinstance(effect.result, Joined):
            for grant in effect.result.fronts:
                if grant.granted:
                    self._front_may_label(
                        effect.request, grant.front, max(grant.slot, grant.heartbeat)
                    )
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_answers")
            return
        self._to_node(name, effect.request, effect)

    def _tell_session(self, effect: Any) -> None:
        if self._unheard and isinstance(effect, TickRefused):
            return
        name: str = effect.session[0]
        if effect.session[1] < 0:
            self._zombie_hears(self.nodes[name].home, effect)
            return
        if isinstance(effect, FrontGranted) and effect.grant.granted:
            grant = effect.grant
            self._front_may_label(effect.session, grant.front, max(grant.slot, grant.heartbeat))
        self._to_node(name, effect.session, effect)

    def _front_may_label(self, addressee: Any, front: str, slot: int) -> None:
        """From the moment at which a home says so, unless the life that it says it to is over."""
        name, life, _ = addressee
        node = self.nodes[name]
        if node.alive and node.life == life and (name, front) in node.world.fronts:
            node.world.front_granted((name, front), slot)

    # --- what becomes durable ---------------------------------------------------------------------

    def node_retired(self, pipeline: str, generation: int, node_id: str) -> None:
        self.world_of(pipeline, generation).node_retired(node_id)

    def front_evicted(
        self, pipeline: str, generation: int, key: NodeKey, *, keeps_places: bool
    ) -> None:
        if not isinstance(self.nodes[key.node_id], FrontNode):
            return
        self.count("evicted_fronts")
        self.trace_line(lambda: f"{key} is evicted")
        world = self.world_of(pipeline, generation)
        world.front_evicted(key.node_id, keeps_places=keeps_places)
        if world.vacant_segments():
            self.count("vacant_places")
        may_restart = self._pipelines[pipeline].restarts and not self.resting
        if may_restart and self.chance_to_restart.random() < 0.5:
            self._restart_soon(pipeline, "restarts_behind_evictions")

    def called_complete(self, said: Announcement | PipelineCompleted, known: set[FrontId]) -> None:
        world = self.world_of(said.pipeline, said.generation)
        segments = set(range(len(world.spec.segments)))
        if isinstance(said, Announcement):
            segments = {segment for segment, slot in said.min_times if slot == FOREVER}
        world.called_complete(segments, known)

    def batch_durable(self, pipeline: str, node_id: str, number: int) -> None:
        world = self.nodes[node_id].world
        if world.batch_known(node_id, number):
            self.items_appeared(world)

    def fronts_joined(
        self, pipeline: str, generation: int, change: int, joins: Sequence[FrontJoin]
    ) -> None:
        feeding = [join.segment for join in joins if not join.front.startswith(HOLD_FRONT)]
        self.world_of(pipeline, generation).joins_by(change, feeding)

    def changed(self, entry: PipelineChanged) -> None:
        self.operator.changed(entry)

    def entry_durable(self, entry: Entry) -> None:
        if self.storm is not None:
            self.storm.durable(entry)

    def dies_about(self, records: list[Record]) -> str:
        return "" if self.storm is None else self.storm.dies_about(records)

    @property
    def is_rescaling(self) -> bool:
        """Whether shards come or go."""
        return False

    def send_sequencer_away(self) -> None:
        """An operator wants the tracker without the shard that is the sequencer, where shards come and go."""

    def plan_of(self, pipeline: str) -> PipelinePlan:
        return self._pipelines[pipeline]

    def nearly_complete(self, pipeline: str) -> None:
        rng = self.chance_to_restart
        if self._pipelines[pipeline].restarts and not self.resting and rng.random() < 0.4:
            # The others hear from the registrar that it is complete, and the registrar not from them.
            registrar = self.registrar(pipeline)
            for other in self.present:
                if other.number != registrar:
                    self.deafen_link(other.number, registrar, 16 * MS, ShardReport)
            self._restart_soon(pipeline, "restarts_amid_completion")

    def _restart_soon(self, pipeline: str, what: str) -> None:
        later = self.chance_to_restart.randint(1, 14) * MS
        self.after(later, self.operator.restart_in_time, pipeline, what)

    def restarted(self, pipeline: str, restart: Restart) -> None:
        self.count("restarts")
        self.trace_line(lambda: f"{pipeline} is restarted: {restart}")
        world = self.worlds[pipeline].next_generation(restart.generation, restart.from_slot)
        if any(front.evicted for front in self.worlds[pipeline].fronts.values()):
            self.count("restarts_with_evictions")
        if self._pipelines[pipeline].kind == "eager":
            self.count("restarts_of_eager_trees")
        self.checkers[pipeline].begin_generation(world)
        self._begin_world(world)

    def _begin_world(self, world: World) -> None:
        """There is a new generation of a pipeline."""
        pipeline = world.spec.name
        self.worlds[pipeline] = self._generations[pipeline][world.generation] = world
        self.operator.start_fronts(pipeline)
        self.operator.start_actors(pipeline)

    def deleted(self, pipeline: str, restart: Restart) -> None:
        """It is durable that a pipeline was deleted; another one of its name is registered at once."""
        self.count("deleted_pipelines")
        self.trace_line(lambda: f"{pipeline} is deleted: {restart}")
        before, checker = self.worlds[pipeline], self.checkers[pipeline]
        reached = [slot for slot in checker.highest if slot < FOREVER]
        start = max([before.spec.start_slot, *reached]) + 1
        rng = random.Random(f"another {self.plan.seed} {pipeline} {restart.generation}")
        spec = another_of_the_name(before.spec, start, rng)
        world = before.successor(spec, restart.generation + 1)
        world.since = world.generation
        self.registered.discard(pipeline)
        checker.begin_anew(world)
        self._begin_world(world)
        self.operator.deleted(pipeline)
        self._register(spec)

    def stays_as_it_is(self, pipeline: str) -> bool:
        """Whether no edge comes to a pipeline any more along which something could be created that must be refused now."""
        return self.storm is None or self.storm.changes_no_more(pipeline)

    def reads_of(self, world: World, worker: str) -> set[int]:
        """The segments that a worker reads of a pipeline that is another one of its name: those that it did by the plan,
        and all that the plan does not know."""
        plan = self._pipelines[world.spec.name]
        named = {plan.spec.segments[segment] for segment in dict(plan.workers)[worker]}
        segments = enumerate(world.spec.segments)
        return {n for n, name in segments if name in named or name not in plan.spec.segments}

    def is_wanted(self, event: RegisterPipeline) -> bool:
        """Whether somebody still asks for a pipeline, and it is not one that was deleted."""
        return self._is_newest(event.spec) and (not event.change or self.operator.asks(event))

    def _is_newest(self, spec: PipelineSpec) -> bool:
        return spec.start_slot >= self.worlds[spec.name].spec.start_slot

    def begins_above(self, name: str, generation: int) -> None:
        """A pipeline is registered in a generation that is not the next one of its name."""
        last = self.worlds[name]
        if generation > last.generation:
            last.generation = last.since = generation
            self._generations[name][generation] = last
            self.checkers[name].begin_anew(last)

    def registered_anew(self, spec: PipelineSpec, restart: Restart) -> None:
        """It is durable that a pipeline is registered under the name of one that was deleted."""
        world = self.worlds[spec.name]
        if (spec, restart.generation) != (world.spec, world.generation):
            raise Failure(
                "broken",
                f"{spec} is registered in {restart}, not {world.spec} in {world.generation}",
            )
        self.count("registered_after_deletion")

    def world_of(self, pipeline: str, generation: int) -> World:
        """One generation of a pipeline."""
        return self._generations[pipeline][generation]

    def announced(self, pipeline: str) -> list[int]:
        """By segment the most that any process has announced in the newest generation. One that had come as far in the
        generation before says nothing of it."""
        highest = list(self.checkers[pipeline].highest)
        generation = self.worlds[pipeline].generation
        for shard in self.shards:
            for segment, slots in self.ledger.said(shard.number, pipeline).items():
                if segment < len(highest):
                    of_it = (slot for slot, number in slots.items() if number == generation)
                    highest[segment] = max((highest[segment], *of_it))
        return highest

    # --- processes come and go --------------------------------------------------------------------

    def process_started(self, running: Running) -> None:
        for checker in self.checkers.values():
            checker.begin(running.shard.number, running.epoch)
        for name in self.worlds:
            self._read(running, name)

    def _hear(self, running: Running, name: str, min_times: list[tuple[int, int]]) -> None:
        number = running.shard.number
        logged = self.ledger.said(number, name)
        if not self._is_present(running, name):
            return
        state = inside.pipeline(running.process, name)
        if state.told:  # of its present generation
            told = {segment: {slot: state.generation} for segment, slot in state.told.items()}
            logged = {s: {**logged.get(s, {}), **told.get(s, {})} for s in logged.keys() | told}
        self.checkers[name].hear(number, running.epoch, min_times, logged)
        self.operator.hear_complete(name, [s for s, slot in min_times if slot == FOREVER])

    def _is_present(self, running: Running, name: str) -> bool:
        """Whether a process has the pipeline of a name that there is, and not one that was deleted."""
        known = inside.pipelines(running.process).get(name)
        return known is not None and known.generation >= self.checkers[name].since

    def _check_found_again(self, running: Running, name: str) -> None:
        """What a process says before it is durable, the next one would say at once if this one died now."""
        self.count("told_before_durable")
        shard = running.shard
        found = Process(shard.own, shard.group.table, running.epoch, self.plan.config)
        found.recover(*running.shard.store.load(), self.now)
        said, again = running.process.min_times(name), found.min_times(name)
        if any(slot > back for slot, back in zip(said, again, strict=True)):
            raise Failure(
                "regressed",
                f"shard {running.shard.number} says {said} for {name}, and {again} if it died now",
            )

    def _read(self, running: Running, name: str) -> tuple[int, ...] | None:
        """Somebody asks a process for min time; what it answers counts as said."""
        try:
            min_times = running.process.min_times(name)
        except Refused:
            return None  # it does not know the pipeline yet
        self._hear(running, name, list(enumerate(min_times)))
        if not self._is_present(running, name):
            return None
        whole = running.process.pipeline_min_time(name)
        self.checkers[name].hear_whole(running.shard.number, running.epoch, whole)
        return min_times

    def process_ended(self, running: Running) -> None:
        for node in self.nodes.values():
            unaware = self._unaware.get(node.name)
            if unaware is running or (unaware is None and node.home == running.shard.number
                                      and not running.deposed):  # fmt: skip
                if node.alive and node.session is not None:
                    self.after(self.latency(), self.session_breaks, node, node.session)
                elif unaware is running:
                    del self._unaware[node.name]
        for place, (process, name, subscriber) in enumerate(self.subscribers):
            if process is running:
                self.subscribers[place] = (None, name, subscriber)
                self.after(self.milliseconds(1, 20), self._connect, place, name, subscriber)

    def session_breaks(self, node: Node, session: Any) -> None:
        """A node hears that its stream has broken, unless it has another one by now."""
        self._unaware.pop(node.name, None)
        if node.alive and node.session == session:
            node.session_broke()

    # --- faults -----------------------------------------------------------------------------------

    def _some_shard(self) -> Shard:
        return self.rng.choice(self.present)

    def _crash_some_process(self) -> None:
        shard = self._some_shard()
        if shard.running is not None and self.faulty:
            self.count("crashes")
            self.kill(shard.running)

    def _take_over_some_process(self) -> None:
        shard = self._some_shard()
        former = shard.running
        if former is None or not self.faulty:
            return
        self.take_over(shard)
        for node in self.nodes.values():
            if node.home == shard.number and node.alive and node.session is not None:
                self._unaware.setdefault(node.name, former)
                later = self.latency(5.0)
                self.after(later, self.session_breaks, node, node.session)

    def _pause_some_process(self) -> None:
        """For longer than can go unnoticed, and longer than many a front may be silent."""
        shard = self._some_shard()
        if shard.running is not None and self.faulty:
            self.pause_process(shard.running, self.milliseconds(NOTICED_PAUSE_MS, 60))

    def _crash_some_node(self) -> None:
        victims: list[Node | Actor] = [*self.nodes.values(), *self.actors]
        victim = self.rng.choice(victims)
        if victim.alive and self.faulty:
            self.let_die(victim)

    def let_die(self, victim: Life) -> None:
        """It crashes, and is started again a while later."""
        self.trace_line(lambda: f"{victim.name} dies")
        victim.crash()
        self.after(self.milliseconds(1, 15), self._restart_node, victim)

    def _restart_node(self, node: Life) -> None:
        if not node.finished:
            node.start()

    def _break_some_session(self) -> None:
        self.break_session(self.rng.choice(list(self.nodes.values())))

    def break_session(self, node: Node) -> None:
        """A node finds its stream broken; its home may notice later."""
        if node.alive and node.session is not None and self.faulty:
            self.count("session_breaks")
            session = node.session
            self.session_breaks(node, session)
            if self.rng.random() < 0.7:
                event = DetachSession(session)
                self.after(self.latency(5.0), self._deliver, node, node.home, event)

    def _snapshot_some_process(self) -> None:
        shard = self._some_shard()
        if shard.running is not None:
            self.write_snapshot(shard.running)

    def _reset_some_link(self) -> None:
        if len(linked := self.linked()) >= 2:
            self.count("link_resets")
            self.reset_link(*self.rng.sample(linked, 2))

    def _cut_some_link(self) -> None:
        if len(linked := self.linked()) < 2:
            return
        a, b = self.rng.sample(linked, 2)
        both_ways = self.rng.random() < 0.5
        self.count("links_cut_both_ways" if both_ways else "links_cut_one_way")
        self.cut_link(a, b, both_ways=both_ways)

    def linked(self) -> list[int]:
        """Places of shards that are connected."""
        return [shard.number for shard in self.present]

    def _slow_some_peer(self) -> None:
        self.count("slow_peers")
        self.slow_down(self._some_shard().number)

    def _ended_for(self, place: int, name: str, *, moved: bool) -> None:
        """A subscriber hears that a pipeline was deleted, and listens to the one that comes after it; or that it has gone to
        another group."""
        if moved:
            self.count("subscribers_of_moved_pipelines")
            subscriber = self.subscribers[place][2]
        else:
            self.count("subscribers_of_deleted_pipelines")
            subscriber = SubscriberChecker(self.checkers[name].since)
        self.subscribers[place] = (None, name, subscriber)
        self._connect(place, name, subscriber)

    def _subscribe_somewhere(self) -> None:
        name = self.rng.choice(list(self.worlds))
        subscriber = SubscriberChecker()
        self.subscribers.append((None, name, subscriber))
        self._connect(len(self.subscribers) - 1, name, subscriber)

    def _connect(self, place: int, name: str, subscriber: SubscriberChecker) -> None:
        """A subscriber finds a process, maybe one that has been deposed."""
        shard = self._some_shard()
        running = shard.running
        if shard.former and self.rng.random() < 0.5:
            running = shard.former[-1]
        if running is None:
            if not self.healed:
                self.after(5 * MS, self._connect, place, name, subscriber)
            return
        min_times = self._read(running, name)
        if self.subscribers[place][2] is not subscriber:
            return  # it has begun anew
        if min_times is not None and subscriber.since != self.checkers[name].since:
            subscriber = SubscriberChecker(self.checkers[name].since)
        if min_times is None:
            self.after(5 * MS, self._connect, place, name, subscriber)
        else:
            self.count("subscriptions")
            self.subscribers[place] = (running, name, subscriber)
            placed = inside.pipeline(running.process, name).placed
            stay = self.ledger.stays.at(name, placed)
            subscriber.connect(shard.number, running.epoch, min_times, stay)
