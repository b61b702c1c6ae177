"""A whole tracker and its nodes under a simulated clock, network and store, from one seed.

The processes are the production core; everything around them is simulated. One event is taken from
a queue at a time; what it causes goes back into the queue at a later moment. All randomness comes
from one generator, so a seed gives one run.
"""

from __future__ import annotations

import heapq
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulation.checkers import (
    AnnouncementChecker,
    Failure,
    SubscriberChecker,
    has_arrived,
    what_is_left,
)
from tests.simulation.nodes import FrontNode, Node, WorkerNode, unit_item
from tests.simulation.plan import MS, FrontPlan, PipelinePlan, Plan, draw_plan
from tests.simulation.world import Item, World
from tracker.core.messages import (
    Announced,
    Answer,
    Append,
    Committed,
    DetachSession,
    Effect,
    Event,
    Frame,
    FrameArrived,
    FrontGranted,
    Joined,
    PeerConnected,
    Record,
    RegisterPipeline,
    Send,
    SessionAttached,
    SessionRefused,
    SubmitTick,
    TickRefused,
    TicksDurable,
    UnitsArrived,
    Wake,
    WakeAt,
)
from tracker.core.model import PipelineSpec, Refused
from tracker.core.process import Process, ProcessConfig
from tracker.core.routing import RoutingTable

CONFIG = ProcessConfig(report_interval_ms=4, retransmit_ms=40, max_entries_per_frame=8)
SETTLE_LIMIT_NS = 4_000 * MS
"""After the faults end, all nodes must have committed all they have within this time."""
ARRIVE_LIMIT_NS = 400 * MS
"""After that, every process must say the true frontier, and forget who left, within this time."""
FAULTS_BY_NS = 40 * MS
"""Faults begin by then, though no front may have published anything yet."""
STEP_LIMIT = 50_000


@dataclass(slots=True)
class Store:
    """A shard's durable log and snapshot, and what waits for the next group commit."""

    records: list[tuple[int, Record]] = field(default_factory=list)
    snapshot: bytes | None = None
    snapshot_position: int = 0
    pending: list[tuple[int, Record]] = field(default_factory=list)
    position: int = 0
    """The last durable position."""


@dataclass(slots=True)
class Shard:
    """One shard: its process, or None while it is down, and its store, which outlives processes."""

    number: int
    store: Store = field(default_factory=Store)
    process: Process | None = None
    epoch: int = 0
    committing: bool = False
    wake_at: int = -1


class Simulator:
    """One run. `run()` raises `Failure` where a promise is broken; `counts` says what happened."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.plan: Plan = draw_plan(seed)
        self.rng = random.Random(f"run {seed}")
        self.now = 0
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if traced else None
        self.faulty = False
        self.healed = False
        self.routing = RoutingTable.uniform(self.plan.shards, self.plan.block_slots)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._queued = 0
        self._last_on_link: dict[Any, int] = {}
        self._link_life: Counter[tuple[int, int]] = Counter()
        self._names = 0
        self._unheard = False
        self.shards = [Shard(number) for number in range(self.plan.shards)]
        self.worlds: dict[str, World] = {}
        self.checkers: dict[str, AnnouncementChecker] = {}
        self.subscribers: list[tuple[int, str, SubscriberChecker]] = []
        self.nodes: dict[str, Node] = {}
        self.registered: set[str] = set()
        self._waiting_to_start: list[Node] = []
        self._pipelines = {p.spec.name: p for p in self.plan.pipelines}

    # --- the run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Faults for a while, then none; everything must come to rest at the truth."""
        for shard in self.shards:
            self._start_process(shard)
        for pipeline in self.plan.pipelines:
            self._begin_pipeline(pipeline)
        if self.plan.faults_from_start:
            self.faults_begin()
        self.after(FAULTS_BY_NS, self.faults_begin)
        self._run_until(self._is_settled, "commit all that nodes have to say", None)
        deadline = self.now + ARRIVE_LIMIT_NS
        self._run_until(self._has_arrived, "announce the true frontier", deadline)
        self._run_until(self._is_tidy, "empty the tables and forget the nodes that left", deadline)

    def _run_until(self, done: Callable[[], bool], what: str, deadline: int | None) -> None:
        while not done():
            if deadline is None and self.healed:
                deadline = self.now + SETTLE_LIMIT_NS
            if not self._queue or self.steps >= STEP_LIMIT:
                raise Failure("lost", f"nothing more happens; still to {what}: {self._state()}")
            if deadline is not None and self.now > deadline:
                raise Failure("lost", f"too late to {what}: {self._state()}")
            self._step()

    def _step(self) -> None:
        self.now, _, call = heapq.heappop(self._queue)
        self.steps += 1
        call()
        for checker in self.checkers.values():
            checker.check()

    def _is_settled(self) -> bool:
        return self.healed and all(
            not world.items and name in self.registered for name, world in self.worlds.items()
        ) and all(node.settled for node in self.nodes.values())  # fmt: skip

    def _has_arrived(self) -> bool:
        return all(
            shard.process is not None and has_arrived(world, shard.process)
            for world in self.worlds.values()
            for shard in self.shards
        )

    def _is_tidy(self) -> bool:
        present = {node.name for node in self.nodes.values() if not node.finished}
        for shard in self.shards:
            assert shard.process is not None
            for name, world in self.worlds.items():
                if what_is_left(world, shard.process, self.now):
                    return False
                nodes = shard.process.describe(name, self.now).nodes
                if any(n.key.node_id not in present for n in nodes) or len(nodes) > len(present):
                    return False
        return True

    def _state(self) -> str:
        parts = []
        for name, world in self.worlds.items():
            for shard in self.shards:
                if shard.process is not None and name in self.registered:
                    parts += what_is_left(world, shard.process, self.now)
            said = [s.process.min_times(name) if s.process and name in self.registered else None
                    for s in self.shards]  # fmt: skip
            parts.append(f"{name}: {len(world.items)} items, said {said}")
            parts += [f"{n.name}: {len(n.window)} ticks under way, attached={n.attached}"
                      for n in self.nodes.values() if n.world is world and not n.settled]  # fmt: skip
        return "; ".join(parts)

    # --- the plan becomes events --------------------------------------------------------------

    def _begin_pipeline(self, plan: PipelinePlan) -> None:
        world = World(plan.spec)
        self.worlds[plan.spec.name] = world
        self.checkers[plan.spec.name] = AnnouncementChecker(world, self.plan.shards)
        self._register(plan.spec)
        for front in plan.fronts:
            node = FrontNode(
                self, world, front.name, front.segment, front.batches, leaves=front.leaves
            )
            self.nodes[front.name] = node
            self.after(front.joins_ns, partial(self._start_when_registered, node))
            if front.again and front.leaves:
                self.after(front.joins_ns + 20 * MS, partial(self._come_again, node, front))
        for name, reads in plan.workers:
            worker = WorkerNode(self, world, name, set(reads))
            self.nodes[name] = worker
            self.after(self.rng.randint(0, 3) * MS, partial(self._start_when_registered, worker))

    def _register(self, spec: PipelineSpec) -> None:
        """Asks until it is answered; asking again changes nothing."""
        if spec.name in self.registered:
            return
        shard = self.routing.registrar(spec.name)
        self.call(shard, RegisterPipeline(("register", spec.name), spec))
        self.after(6 * MS, partial(self._register, spec))

    def _start_when_registered(self, node: Node) -> None:
        if node.world.spec.name in self.registered:
            node.start()
        else:
            self._waiting_to_start.append(node)

    def _is_registered(self, name: str) -> None:
        self.registered.add(name)
        for node in [n for n in self._waiting_to_start if n.world.spec.name == name]:
            self._waiting_to_start.remove(node)
            self.after(self.rng.randint(0, 2) * MS, node.start)

    def _come_again(self, node: FrontNode, plan: FrontPlan) -> None:
        if node.finished:
            checker = self.checkers[node.world.spec.name]
            if node.world.spec.open or max(checker.highest) < 2**62:
                self.count("ids_used_again")
                node.come_again(batches=1)
        elif not self.healed:
            self.after(5 * MS, partial(self._come_again, node, plan))

    def faults_begin(self) -> None:
        """From now on things go wrong, for the planned time; called when there is something to
        lose, or at the start."""
        if self.faulty or self.healed:
            return
        self.faulty = True
        self.trace_line(lambda: "faults begin")
        plan, rng = self.plan, self.rng
        self.after(plan.faults_for_ns, self._heal)

        def at_random(times: int, call: Callable[[], None]) -> None:
            for _ in range(times):
                self.after(rng.randrange(plan.faults_for_ns), call)

        at_random(plan.process_crashes, self._crash_some_process)
        at_random(plan.node_crashes, self._crash_some_node)
        at_random(plan.session_breaks, self._break_some_session)
        at_random(plan.snapshots * plan.shards, self._snapshot_some_process)
        at_random(3, self._subscribe_somewhere)
        if plan.shards > 1:
            at_random(plan.link_resets, self._reset_some_link)

    def _heal(self) -> None:
        self.faulty, self.healed = False, True
        self.trace_line(lambda: "faults end")
        for link in self.plan.slow_links:
            self._last_on_link.pop(link, None)  # what dawdled under faults holds up nobody now
        for shard in self.shards:
            if shard.process is None:
                self._start_process(shard)
        for node in self.nodes.values():
            if not node.alive and not node.finished and node.life:
                node.start()

    # --- services for nodes -------------------------------------------------------------------

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (self.now + delay_ns, self._queued, call))

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def chance(self, what: str) -> bool:
        """Whether a rare thing happens here and now; only while there are faults."""
        if self.faulty and self.rng.random() < 0.04:
            self.counts[what] += 1
            return True
        return False

    def pause(self) -> int:
        """How long somebody takes to do the next thing."""
        return int(self.rng.expovariate(1.0) * self.plan.pause_ns) + 1000

    def front_pause(self) -> int:
        """How long a front takes to do the next thing; it hurries once the faults are over."""
        mean = self.plan.pause_ns if self.healed else self.plan.front_pause_ns
        return int(self.rng.expovariate(1.0) * mean) + 1000

    def slot_now(self, world: World) -> int:
        return world.spec.start_slot + self.now // world.spec.slack_ns

    def draw_skew(self) -> int:
        return self.rng.choice([0, 0, 1, -1, 0, 5, -5])

    def new_item(
        self, world: World, segment: int, slot: int, value: int, hops: int | None = None
    ) -> Item:
        plan = self._pipelines[world.spec.name]
        left = plan.hops if hops is None else hops
        if self.rng.random() < plan.unit_share:
            self._names += 1
            return unit_item(segment, slot, f"unit-{self._names}", left)
        return Item(segment, slot, value, left)

    def items_appeared(self, world: World) -> None:
        for node in self.nodes.values():
            if node.world is world and isinstance(node, WorkerNode):
                node.wake()

    def resolve_unit(self, world: World, segment: int, name: str) -> int | None:
        process = self.shards[self.routing.names_keeper(world.spec.name, segment)].process
        if process is None:
            return None
        return process.resolve_units(world.spec.name, segment, [name])[0]

    def trace_line(self, line: Callable[[], str]) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now / MS:9.3f} ms  {line()}")

    # --- network ------------------------------------------------------------------------------

    def _latency(self, slowness: float = 1.0) -> int:
        return int(self.rng.expovariate(1.0) * self.plan.latency_ns * slowness) + 1000

    def _in_order(self, link: Any, delay_ns: int) -> int:
        """A delay that lets nothing overtake on the link."""
        arrival = max(self.now + delay_ns, self._last_on_link.get(link, 0) + 1)
        self._last_on_link[link] = arrival
        return arrival - self.now

    def call(self, shard: int, event: Event) -> None:
        """A request of a node; it or its answer may be lost."""
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_requests")
            return
        self.after(self._latency(), partial(self._deliver, shard, event))

    def stream(self, node: Node, event: Event) -> None:
        """The next message of a node's stream of ticks. A stream repeats nothing; a copy of a tick
        that follows later all the same must not hurt, and its answers are lost."""
        delay = self._in_order(node.session, self._latency())
        self.after(delay, partial(self._deliver, node.home, event))
        if (
            self.faulty
            and isinstance(event, SubmitTick)
            and self.rng.random() < self.plan.tick_duplication
        ):
            self.count("duplicated_ticks")
            self.after(delay + self._latency(5.0), partial(self._deliver_copy, node.home, event))

    def _deliver_copy(self, shard: int, event: Event) -> None:
        self._unheard = True
        self._deliver(shard, event)
        self._unheard = False

    def _deliver(self, shard: int, event: Event) -> None:
        """An event reaches a process; nobody hears it if the process is down."""
        if self.shards[shard].process is not None:
            self._handle(self.shards[shard], event)

    def _to_node(self, name: str, link: Any, effect: Effect) -> None:
        node = self.nodes[name]
        self.after(self._in_order(("to", link), self._latency()), partial(node.hear, effect))

    def _send(self, source: Shard, target: int, frame: Frame) -> None:
        link = (source.number, target)
        if self.faulty and self.rng.random() < self.plan.loss:
            self.count("lost_frames")
            return
        delay = self._latency(self.plan.slow_links[link] if self.faulty else 1.0)
        if not (self.faulty and self.plan.reorders):
            delay = self._in_order(link, delay)
        else:
            self.count("unordered_frames")
        life = self._link_life[link]
        self.after(delay, partial(self._frame_arrives, link, life, frame))
        if self.faulty and self.rng.random() < self.plan.duplication:
            self.count("duplicated_frames")
            self.after(delay + self._latency(10.0), partial(self._frame_arrives, link, life, frame))

    def _frame_arrives(self, link: tuple[int, int], life: int, frame: Frame) -> None:
        if self._link_life[link] == life:
            self._deliver(link[1], FrameArrived(frame))

    # --- processes ----------------------------------------------------------------------------

    def _start_process(self, shard: Shard) -> None:
        store = shard.store
        shard.epoch += 1
        shard.wake_at, shard.committing = -1, False
        shard.process = Process(shard.number, self.routing, shard.epoch, CONFIG)
        snapshot = None if store.snapshot is None else pickle.loads(store.snapshot)
        self.trace_line(lambda: f"shard {shard.number} starts as epoch {shard.epoch}")
        effects = shard.process.recover(snapshot, list(store.records), self.now)
        for name in self.worlds:
            self._read(shard, name)
        self._take_effects(shard, effects)
        shard.process.validate()
        for other in self.shards:
            if other is not shard and other.process is not None:
                self._connect(shard.number, other.number)
                self._connect(other.number, shard.number)

    def _connect(self, shard: int, other: int) -> None:
        self._link_life[shard, other] += 1
        self.after(self._latency(), partial(self._deliver, shard, PeerConnected(other)))

    def _read(self, shard: Shard, name: str) -> None:
        """Somebody asks a process for min time; what it answers counts as said."""
        assert shard.process is not None
        try:
            min_times = shard.process.min_times(name)
        except Refused:
            return  # it does not know the pipeline yet
        self.checkers[name].hear(shard.number, list(enumerate(min_times)))

    def _handle(self, shard: Shard, event: Event) -> None:
        assert shard.process is not None
        self.trace_line(lambda: f"shard {shard.number} <- {_short(event)}")
        effects = shard.process.handle(event, self.now)
        if effects:  # an event from which nothing follows is validated with the next one
            self._take_effects(shard, effects)
            shard.process.validate()

    def _take_effects(self, shard: Shard, effects: list[Effect]) -> None:
        for effect in effects:
            if self.trace is not None and not isinstance(effect, WakeAt):
                self.trace_line(lambda e=effect: f"shard {shard.number} -> {_short(e)}")  # type: ignore[misc]
            self._TAKERS[type(effect)](self, shard, effect)

    def _take_append(self, shard: Shard, effect: Append) -> None:
        store = shard.store
        last = store.pending[-1][0] if store.pending else store.position
        if effect.position != last + 1:
            raise Failure("broken", f"position {effect.position} was appended after {last}")
        store.pending.append((effect.position, effect.record))
        if not shard.committing:
            self._commit_soon(shard)

    def _take_send(self, shard: Shard, effect: Send) -> None:
        self._send(shard, effect.shard, effect.frame)

    def _take_wake(self, shard: Shard, effect: WakeAt) -> None:
        shard.wake_at = max(self.now, effect.now_ns)
        self.after(shard.wake_at - self.now, partial(self._wake, shard, shard.epoch))

    def _wake(self, shard: Shard, epoch: int) -> None:
        if shard.epoch == epoch and shard.process is not None and shard.wake_at == self.now:
            shard.wake_at = -1
            self._handle(shard, Wake())
        else:
            self.steps -= 1  # overtaken by another wake: nothing happened

    def _take_announced(self, shard: Shard, effect: Announced) -> None:
        self.counts["announcements"] += 1
        checker = self.checkers[effect.pipeline]
        checker.hear(shard.number, list(effect.min_times))
        for number, name, subscriber in self.subscribers:
            if number == shard.number and name == effect.pipeline:
                subscriber.hear(list(effect.min_times))

    def _take_answer(self, shard: Shard, effect: Answer) -> None:
        if effect.request[0] == "register":  # type: ignore[index]
            if not isinstance(effect.result, PipelineSpec):
                return  # asked again later
            self._is_registered(effect.result.name)
            return
        name: str = effect.request[0]  # type: ignore[index]
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

    def _front_may_label(self, addressee: Any, front: str, slot: int) -> None:
        """From the moment at which a home says so, unless the life that it says it to is over."""
        name, life, _ = addressee
        node = self.nodes[name]
        if node.alive and node.life == life and (name, front) in node.world.fronts:
            node.world.front_granted((name, front), slot)

    def _take_for_session(self, shard: Shard, effect: Any) -> None:
        if self._unheard and isinstance(effect, TickRefused):
            return
        name: str = effect.session[0]
        if isinstance(effect, FrontGranted) and effect.grant.granted:
            grant = effect.grant
            self._front_may_label(effect.session, grant.front, max(grant.slot, grant.heartbeat))
        self._to_node(name, effect.session, effect)

    def _take_nothing(self, shard: Shard, effect: Effect) -> None:
        """Something that no simulated party waits for."""

    _TAKERS: dict[type, Callable[[Simulator, Shard, Any], None]] = {}

    # --- store --------------------------------------------------------------------------------

    def _commit_soon(self, shard: Shard) -> None:
        shard.committing = True
        delay = int(self.rng.expovariate(1.0) * self.plan.commit_ns)
        self.after(delay, partial(self._commit, shard, shard.epoch))

    def _commit(self, shard: Shard, epoch: int) -> None:
        """A group commit: what waits becomes durable, mostly all of it."""
        if shard.epoch != epoch or shard.process is None:
            self.steps -= 1
            return
        store, rng = shard.store, self.rng
        share = len(store.pending)
        if self.faulty and share > 1 and rng.random() < 0.3:
            share = rng.randint(1, share - 1)
        store.records += store.pending[:share]
        del store.pending[:share]
        store.position = store.records[-1][0]
        shard.committing = False
        if store.pending:
            self._commit_soon(shard)
        if self.faulty and rng.random() < 0.3:
            # The process hears of it later, or never.
            self.after(self._latency(), partial(self._say_committed, shard, epoch, store.position))
        else:
            self._say_committed(shard, epoch, store.position)

    def _say_committed(self, shard: Shard, epoch: int, position: int) -> None:
        if shard.epoch == epoch and shard.process is not None:
            self._handle(shard, Committed(position))

    def _snapshot_some_process(self) -> None:
        shard = self.rng.choice(self.shards)
        if shard.process is None:
            return
        snapshot = shard.process.snapshot()
        store = shard.store
        if snapshot.position > store.position:
            raise Failure("broken", "a snapshot covers what is not durable")
        self.count("snapshots")
        store.snapshot, store.snapshot_position = pickle.dumps(snapshot), snapshot.position
        store.records = [r for r in store.records if r[0] > snapshot.position]

    # --- faults -------------------------------------------------------------------------------

    def _crash_some_process(self) -> None:
        shard = self.rng.choice(self.shards)
        if shard.process is None or not self.faulty:
            return
        self.count("crashes")
        self.trace_line(lambda: f"shard {shard.number} dies")
        shard.process = None
        if shard.store.pending:
            self.count("crashes_losing_records")
        shard.store.pending = []
        self.subscribers = [s for s in self.subscribers if s[0] != shard.number]
        for node in self.nodes.values():
            if node.home == shard.number and node.alive and node.session is not None:
                session = node.session
                self.after(self._latency(), partial(self._session_breaks, node, session))
        downtime = self.rng.randint(1, self.plan.downtime_ms) * MS
        self.after(downtime, partial(self._restart, shard))

    def _restart(self, shard: Shard) -> None:
        if shard.process is None:
            self._start_process(shard)

    def _crash_some_node(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.alive and self.faulty:
            node.crash()
            self.after(self.rng.randint(1, 15) * MS, partial(self._restart_node, node))

    def _restart_node(self, node: Node) -> None:
        if not node.finished:
            node.start()

    def _break_some_session(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        if node.alive and node.session is not None and self.faulty:
            self.count("session_breaks")
            session = node.session
            self._session_breaks(node, session)
            if self.rng.random() < 0.7:
                event = DetachSession(session)
                self.after(self._latency(5.0), partial(self._deliver, node.home, event))

    def _session_breaks(self, node: Node, session: Any) -> None:
        if node.alive and node.session == session:
            node.session_broke()

    def _reset_some_link(self) -> None:
        """What is under way between two shards is gone, and both hear of a new link."""
        a, b = self.rng.sample(range(self.plan.shards), 2)
        if self.shards[a].process is not None and self.shards[b].process is not None:
            self.count("link_resets")
            self._connect(a, b)
            self._connect(b, a)

    def _subscribe_somewhere(self) -> None:
        shard = self.rng.choice(self.shards)
        name = self.rng.choice(list(self.worlds))
        if shard.process is None or name not in self.registered:
            return
        self._read(shard, name)
        subscriber = SubscriberChecker(self.worlds[name])
        subscriber.connect(shard.process.min_times(name))
        self.subscribers.append((shard.number, name, subscriber))


_FOR_SESSIONS = (SessionAttached, SessionRefused, TicksDurable, TickRefused, FrontGranted)
Simulator._TAKERS = {
    Append: Simulator._take_append,
    Send: Simulator._take_send,
    WakeAt: Simulator._take_wake,
    Announced: Simulator._take_announced,
    Answer: Simulator._take_answer,
    UnitsArrived: Simulator._take_nothing,  # simulated readers ask again by themselves
    **dict.fromkeys(_FOR_SESSIONS, Simulator._take_for_session),
}


def _short(thing: Any) -> str:
    """A line for the trace."""
    text = repr(thing)
    return text if len(text) <= 300 else text[:297] + "..."
