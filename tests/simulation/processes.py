"""Simulated tracker processes: their stores, the network between them, and what befalls both.

The processes are the production core. A shard has a store, which outlives processes, one process that
owns it or none, and now and then former ones that do not know yet that another has taken over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests import inside
from tests.simulation.base import Base
from tests.simulation.checkers import Failure, check_bounds
from tests.simulation.forgeries import forged_frame
from tests.simulation.hearing import NOTICED_PAUSE_MS, SIGNS, Hearing
from tests.simulation.ledger import Ledger
from tests.simulation.plan import MS
from tests.simulation.recovered import Died, check_recovered
from tests.simulation.store import Fenced, SimulatedStore
from tests.simulation.upgrading import Machines, needed_by
from tests.simulation.world import FrontId
from tracker.core.log import (
    Announcement,
    Append,
    Committed,
    Effect,
    Entries,
    Entry,
    Event,
    Frame,
    FrameArrived,
    HomeEntry,
    KeyClosed,
    KeyTick,
    NodeAlive,
    PeerConnected,
    PeerDisconnected,
    PipelineChanged,
    PipelineCompleted,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    Record,
    RegisterPipeline,
    Restart,
    Send,
    ShardReport,
    SubmitTick,
    SubmitTicks,
    TickRun,
    Told,
    Wake,
    WakeAt,
    WrittenOff,
    numbered,
)
from tracker.core.log.sizes import (
    CELL_BYTES,
    entry_bytes,
    given_up_bytes,
    node_bytes,
    staged_bytes,
    summary_bytes,
    unit_bytes,
)
from tracker.core.log.steps import CellsMoved, DepartureSummarized, NodesMoved, ShardLeft
from tracker.core.model import FrontJoin, NodeKey, PipelineSpec, Refused, Tick
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import LogLost, Process
from tracker.core.replication.links import Link


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A tracker of its own. Its shards have numbers from 0 there, and places from `first` among all that are simulated."""

    number: int
    first: int
    table: RoutingTable
    """That it begins with."""


@dataclass(slots=True, eq=False)
class Wire:
    """A connection from a process to one that runs at another shard. Frames under way on a wire that
    was replaced by a newer one are gone."""

    end: Running | None
    last_arrival: int = 0
    known_to_be_broken: bool = False
    """Whether the process has found that it is."""


@dataclass(slots=True, eq=False)
class Running:
    """A process that runs, or did: `clock_ns` is what its monotonic clock shows at time 0."""

    shard: Shard
    process: Process
    epoch: int
    clock_ns: int
    alive: bool = True
    pending: list[tuple[int, Record]] = field(default_factory=list)
    """What waits for the next group commit."""
    completions: dict[int, tuple[Announcement | PipelineCompleted, set[FrontId]]] = field(
        default_factory=dict
    )
    """By position what calls segments complete, with the fronts that it knew of when it decided that."""
    appended: int = 0
    """Position of the last record that it appended."""
    committing: bool = False
    wake_at: int = -1
    wires: dict[int, Wire] = field(default_factory=dict)
    """By number of a shard of its group."""
    waiting_ticks: deque[SubmitTick | SubmitTicks | NodeAlive] = field(default_factory=deque)
    """What nodes have said on their streams, which are not read before there is room."""
    waiting_frames: deque[FrameArrived] = field(default_factory=deque)
    """What other shards have sent, whose streams are not read while too much waits for the store."""
    hearing: Hearing = field(default_factory=lambda: Hearing(0))
    paused: bool = False
    queued: deque[Event] = field(default_factory=deque)
    """What came while it was paused."""

    @property
    def deposed(self) -> bool:
        return self.shard.running is not self

    def hears(self, shard: int) -> int:
        """What the process speaks to which it has a connection, as far as it knows; that may have ended. 0 without one."""
        wire = self.wires.get(shard)
        if wire is None or wire.end is None or wire.known_to_be_broken:
            return 0
        return wire.end.process.speaks


@dataclass(slots=True, eq=False)
class Shard:
    """One shard: its place, its store, the process that owns it (None while there is none), former owners."""

    number: int
    group: Group
    store: SimulatedStore
    running: Running | None = None
    former: list[Running] = field(default_factory=list)
    gone: bool = False
    """Whether it has left the tracker, or has not joined it yet."""
    died: Died | None = None
    """Its process, from when that dies until the next one has come back."""

    @property
    def own(self) -> int:
        """Its number in its group."""
        return self.number - self.group.first


class Processes(Base):
    """The tracker of one run. What processes tell nodes and subscribers goes to `tell`."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        super().__init__(seed, traced=traced)
        number = self.plan.shards
        self.group = Group(0, 0, RoutingTable.uniform(number, self.plan.block_slots))
        self.groups = [self.group]
        self.ledger = Ledger(number, self.group.table)
        self.shards: list[Shard] = []
        self.machines = Machines(seed)
        for _ in range(number):
            self._begin_store(self.add_shard(self.group))
        self.cut_links: set[tuple[int, int]] = set()
        self.slow_shards: set[int] = set()
        self._stalled: dict[int, int] = {}
        """By shard, until when its store takes its time."""
        self._held_links: dict[tuple[int, int], int] = {}
        """Until when what is sent there does not arrive."""
        self._deaf_links: dict[tuple[int, int], tuple[int, type]] = {}
        """Until when frames of what kind that are sent there are lost."""
        self._unheard = False
        self.watch: Callable[[Running, list[Effect]], None] = lambda running, effects: None
        """Sees all that a process returns, in the order in which it happens."""

    def add_shard(self, group: Group) -> Shard:
        """One that has no process yet."""
        place = len(self.shards)
        store = SimulatedStore(lambda record: self._durable(place, record))
        self.shards.append(Shard(place, group, store))
        return self.shards[place]

    def _begin_store(self, shard: Shard) -> None:
        """What the release that the tracker begins with has written there."""
        first = self.machines.first_store(shard.own, shard.group.table)
        if first is None:
            shard.store.format = NEWEST_LEVEL
        else:
            shard.store.begin_with(first)

    @property
    def present(self) -> list[Shard]:
        """The shards that there are."""
        return [shard for shard in self.shards if not shard.gone]

    def present_in(self, group: Group) -> list[Shard]:
        """Those of a group."""
        return [shard for shard in self.present if shard.group is group]

    def peers(self, shard: Shard) -> list[Shard]:
        """The others of its group, also those that are gone."""
        return [each for each in self.shards if each.group is shard.group and each is not shard]

    def peer(self, shard: Shard, number: int) -> Shard:
        """The one of that number in its group."""
        return self.shards[shard.group.first + number]

    # --- what a subclass makes of it --------------------------------------------------------------

    def tell(self, running: Running, effect: Effect) -> None:
        """A process says something to a node or to subscribers."""
        raise NotImplementedError

    def process_started(self, running: Running) -> None:
        """A process has come back from its store."""
        raise NotImplementedError

    def process_ended(self, running: Running) -> None:
        """A process is gone."""
        raise NotImplementedError

    def front_evicted(
        self, pipeline: str, generation: int, key: NodeKey, *, keeps_places: bool
    ) -> None:
        """It is durable that a front was evicted, or retired."""
        raise NotImplementedError

    def node_retired(self, pipeline: str, generation: int, node_id: str) -> None:
        """It is durable that an operator says a node to be gone."""
        raise NotImplementedError

    def called_complete(self, said: Announcement | PipelineCompleted, known: set[FrontId]) -> None:
        """It is durable that a process calls segments complete; `known`: the fronts that it knew of when it
        decided that, and their places."""
        raise NotImplementedError

    def batch_durable(self, pipeline: str, node_id: str, number: int) -> None:
        """A batch of a node is durable at its home."""
        raise NotImplementedError

    def fronts_joined(
        self, pipeline: str, generation: int, change: int, joins: Sequence[FrontJoin]
    ) -> None:
        """It is durable that fronts join, at a home that has activated this change last."""
        raise NotImplementedError

    def changed(self, entry: PipelineChanged) -> None:
        """It is durable that a pipeline is changed, or that a home judges by that."""
        raise NotImplementedError

    def entry_durable(self, entry: Entry) -> None:
        """An entry of a home log is durable, and nothing has followed from that."""
        raise NotImplementedError

    def dies_about(self, records: list[Record]) -> str:
        """Whether a process dies just "before" what it writes is durable, or just "after" that; else nothing."""
        raise NotImplementedError

    def nearly_complete(self, pipeline: str) -> None:
        """It is durable that a front has left, or that some shard has announced that a segment is complete."""
        raise NotImplementedError

    def deleted(self, pipeline: str, restart: Restart) -> None:
        """It is durable that a pipeline was deleted."""
        raise NotImplementedError

    def registered_anew(self, spec: PipelineSpec, restart: Restart) -> None:
        """It is durable that a pipeline is registered under the name of one that was deleted."""
        raise NotImplementedError

    def is_wanted(self, event: RegisterPipeline) -> bool:
        """Whether somebody still asks for a pipeline, and it is not one that was deleted."""
        raise NotImplementedError

    def restarted(self, pipeline: str, restart: Restart) -> None:
        """It is durable that a pipeline begins anew."""
        raise NotImplementedError

    # --- who decides on what ----------------------------------------------------------------------

    @property
    def routing(self) -> RoutingTable:
        """The newest table that a process has heard of."""
        return self.routing_of(self.group)

    def routing_of(self, group: Group) -> RoutingTable:
        """The newest table that a process of a group has heard of."""
        tables = [
            shard.running.process.routing
            for shard in self.shards
            if shard.running and shard.group is group
        ]
        return max(tables, key=lambda table: table.version, default=group.table)

    def group_of(self, pipeline: str) -> Group:
        """Where a pipeline lives."""
        return self.group

    def lives_at(self, shard: Shard, pipeline: str) -> bool:
        """Whether the shard is of the group in which a pipeline lives."""
        return shard.group is self.group_of(pipeline)

    def place(self, pipeline: str, number: Callable[[RoutingTable], int]) -> int:
        """Of the shard that the table of a pipeline's group names."""
        group = self.group_of(pipeline)
        return group.first + number(self.routing_of(group))

    def registrar(self, pipeline: str) -> int:
        """The place of the shard that decides on a pipeline's name."""
        return self.place(pipeline, lambda table: table.registrar(pipeline))

    def home(self, pipeline: str, node_id: str) -> int:
        """The place of the shard at which a node is at home."""
        return self.place(pipeline, lambda table: table.home(pipeline, node_id))

    # --- starting and ending ----------------------------------------------------------------------

    def start_process(self, shard: Shard) -> Running:
        """A process acquires the store and becomes what it holds."""
        store = shard.store
        epoch = store.acquire()
        # A process's clock counts from when its machine started: it is another one after a restart.
        clock_ns = self.rng.randrange(1000) * MS
        process = Process(
            shard.own, shard.group.table, epoch, self.plan.config, self._release_for(shard)
        )
        running = Running(
            shard, process, epoch, clock_ns, appended=store.position, hearing=Hearing(self.now)
        )
        shard.running = running
        self.trace_line(lambda: f"shard {shard.number} starts as epoch {epoch}")
        snapshot, records = store.load()
        effects = process.recover(snapshot, records, self.now + clock_ns)
        if shard.died is not None:
            self._compare_with_the_dead(shard, shard.died)
            shard.died = None
        self.process_started(running)
        self._take_effects(running, effects)
        process.validate()
        self.check_process(running)
        for other in self.peers(shard):
            running.wires[other.own] = Wire(other.running)
            self.after(self.latency(), self.connect, running, other)
            if other.running is not None:
                later = self.latency(5.0)
                if shard.former:  # which it still talks to
                    later += self.milliseconds(0, 10)
                self.after(later, self.connect, other.running, shard)
        return running

    def check_process(self, running: Running) -> None:
        """Compares it with the homes' logs as the stores have them."""
        self.ledger.check_process(running.process, running.shard.group.first)

    def _release_for(self, shard: Shard) -> int:
        """The feature level that the release on a shard's machine speaks; where its store refuses that, its operator has the
        other one started."""
        if self.machines.speaks(shard.number) < shard.store.format:
            self.count("older_releases_refused_by_stores")
            self.machines.install(shard.number, NEWEST_LEVEL)
        return self.machines.speaks(shard.number)

    def _compare_with_the_dead(self, shard: Shard, died: Died) -> None:
        """What its store holds makes a process just what the one that died had made durable."""
        found = inside.JustRecovered(
            shard.own, shard.group.table, shard.store.epoch, self.plan.config
        )
        found.recover(*shard.store.load(), self.now)
        nothing_lost = check_recovered(died, found, self.now)
        self.count("recoveries_compared_whole" if nothing_lost else "recoveries_compared")

    def kill(self, running: Running) -> None:
        """A process dies: what is not durable is gone."""
        if not running.alive:
            return
        shard = running.shard
        self.trace_line(lambda: f"shard {shard.number} (epoch {running.epoch}) dies")
        running.alive = False
        if running.pending:
            self.count("crashes_losing_records")
            running.pending = []
        if any(pipeline.told for pipeline in inside.pipelines(running.process).values()):
            self.count("crashes_losing_what_was_told")
        if running in shard.former:
            shard.former.remove(running)
        self.process_ended(running)
        if running.deposed:
            return
        shard.running = None
        shard.died = Died(running.process, shard.store.position)
        for other in self.peers(shard):
            if other.running is not None and self.rng.random() < 0.5:
                self.after(self.latency(), self._notice_end, other.running, running)
        self.after(self.milliseconds(1, self.plan.downtime_ms), self.restart, shard)

    def _notice_end(self, running: Running, ended: Running) -> None:
        """A process finds its connection broken, unless it has a newer one."""
        number = ended.shard.own
        if running.alive and number in running.wires and running.wires[number].end is ended:
            self.handle(running, PeerDisconnected(number))

    def restart(self, shard: Shard) -> None:
        if shard.running is None and not shard.gone:
            self.start_process(shard)

    def take_over(self, shard: Shard) -> None:
        """Another process becomes the owner, and the one that was runs on until it notices."""
        if shard.running is None:
            return
        self.count("takeovers")
        former = shard.running
        shard.former.append(former)
        self.trace_line(lambda: f"shard {shard.number} is taken over")
        self.start_process(shard)
        self.after(self.milliseconds(10, 60), self.kill, former)  # if it never writes again

    # --- events and effects -----------------------------------------------------------------------

    def handle_if_alive(self, running: Running, event: Event) -> None:
        if running.alive:
            self.handle(running, event)

    def pipeline_at(self, shard: int, name: str) -> Pipeline | None:
        """A pipeline as the process of a shard has it; None while that is away, or does not know it."""
        running = self.shards[shard].running
        return inside.pipelines(running.process).get(name) if running else None

    def handle(self, running: Running, event: Event) -> None:
        """A process takes an event, unless it is paused; its invariants hold after each."""
        process = running.process
        if isinstance(event, RegisterPipeline) and not self.is_wanted(event):
            return  # a late repetition would bring back what was deleted, or changed since
        if running.paused:
            self.count("queued_while_paused")
            running.queued.append(event)
            return
        if isinstance(event, SIGNS) and (running.waiting_ticks or not process.takes_ticks):
            self.count("congested_ticks")
            running.waiting_ticks.append(event)
            return
        if isinstance(event, FrameArrived) and (running.waiting_frames or process.is_behind):
            self.count("full_backlogs")
            running.waiting_frames.append(event)
            return
        self._handle(running, event)
        self._take_waiting(running)

    def _take_waiting(self, running: Running) -> None:
        """Reads on where there is room again. Frames come first: what others confirm makes room for ticks."""
        process = running.process
        while running.alive and running.waiting_frames and not process.is_behind:
            self._handle(running, running.waiting_frames.popleft())
        while running.alive and running.waiting_ticks and process.takes_ticks:
            self._handle(running, running.waiting_ticks.popleft())

    # --- pauses -----------------------------------------------------------------------------------

    def pause_process(self, running: Running, span_ns: int) -> None:
        """A process stands still, as if stopped by a signal, for `span_ns` or for as long as it takes to
        notice that; what comes meanwhile is queued."""
        if running.alive and not running.paused:
            self.count("paused_processes")
            running.paused = True
            running.hearing.can_hear(self.now, can=False)
            self.after(max(span_ns, NOTICED_PAUSE_MS * MS), self.resume, running)

    def resume(self, running: Running) -> None:
        """It goes on: first it wakes, if it should have, and then it takes what was queued."""
        if not running.paused:
            return
        running.paused = False
        if running.alive and 0 <= running.wake_at <= self.now:
            running.wake_at = -1
            self._handle(running, Wake())
        queued, running.queued = running.queued, deque()
        while queued and running.alive:
            self.handle(running, queued.popleft())
        running.hearing.can_hear(self.now, can=running.process.takes_ticks)

    def _handle(self, running: Running, event: Event) -> None:
        process = running.process
        running.hearing.hear(process, event, self.now)
        if type(event) is PeerDisconnected and event.shard in running.wires:
            running.wires[event.shard].known_to_be_broken = True
        if self.trace is not None:
            name = self._name(running)
            self.trace_line(lambda: f"{name} <- {_short(event)}")
        try:
            effects = process.handle(event, self.now + running.clock_ns)
        except LogLost:
            if not running.deposed:
                raise
            self.count("former_owners_lost")
            self.kill(running)  # others have heard of its successor's log: it has to stop
            return
        process.validate()
        check_bounds(process)
        if not running.paused:
            running.hearing.can_hear(self.now, can=process.takes_ticks)
        if effects:
            self._take_effects(running, effects)

    def _take_effects(self, running: Running, effects: list[Effect]) -> None:
        self.watch(running, effects)
        if self.chance("crashes_between_effects", self.plan.effect_crashes):
            effects = effects[: self.rng.randrange(len(effects) + 1)]
            self._carry_out(running, effects)
            self.kill(running)
        else:
            self._carry_out(running, effects)

    def _carry_out(self, running: Running, effects: list[Effect]) -> None:
        for effect in effects:
            if self.trace is not None and type(effect) is not WakeAt:
                self.trace_line(partial(self._effect_line, running, effect))
            kind = type(effect)
            if kind is Append:
                self._append(running, effect)  # type: ignore[arg-type]
            elif kind is Send:
                self._send(running, effect.shard, effect.frame)  # type: ignore[union-attr]
            elif kind is WakeAt:
                running.wake_at = max(self.now, effect.now_ns - running.clock_ns)  # type: ignore[union-attr]
                self.after(running.wake_at - self.now, self._wake, running)
            else:
                self.tell(running, effect)

    def _effect_line(self, running: Running, effect: Effect) -> str:
        return f"{self._name(running)} -> {_short(effect)}"

    def _name(self, running: Running) -> str:
        former = f" (epoch {running.epoch})" if running.deposed else ""
        return f"shard {running.shard.number}{former}"

    def _wake(self, running: Running) -> None:
        if running.alive and running.wake_at == self.now and not running.paused:
            running.wake_at = -1
            self.handle(running, Wake())
        else:
            self.not_a_step()  # overtaken by another wake

    # --- store ------------------------------------------------------------------------------------

    def _durable(self, shard: int, record: Record) -> None:
        self.ledger.take(shard, record)
        self.machines.take(record, self.shards[shard])
        if isinstance(record, HomeEntry):
            self.entry_durable(record.entry)
        if isinstance(record, Announcement):
            if any(slot == FOREVER for _, slot in record.min_times):
                self.nearly_complete(record.pipeline)
        elif isinstance(record, HomeEntry):
            entry = record.entry
            if isinstance(entry, KeyTick) and entry.tick.content.leaves:
                self.nearly_complete(entry.tick.pipeline)
            if isinstance(entry, KeyClosed) and entry.evicted:
                name, key = entry.pipeline, entry.key
                generation = self.ledger.generation_of(shard, name, key)
                self.front_evicted(name, generation, key, keeps_places=entry.keeps_places)
            elif isinstance(entry, WrittenOff):
                self.node_retired(entry.pipeline, entry.generation, entry.node_id)
            elif isinstance(entry, PipelineChanged):
                self.changed(entry)
            elif isinstance(entry, PipelineRestarted):
                self.restarted(entry.pipeline, entry.restart)
            elif isinstance(entry, PipelineDeleted):
                self.deleted(entry.pipeline, entry.restart)
            elif isinstance(entry, PipelineRegistered) and entry.restart is not None:
                self.registered_anew(entry.spec, entry.restart)
            elif isinstance(entry, KeyTick):
                self._tick_durable(shard, entry.tick)

    def _tick_durable(self, shard: int, tick: Tick) -> None:
        name, content = tick.pipeline, tick.content
        if content.batch is not None:
            self.batch_durable(name, tick.key.node_id, content.batch.id)
        if content.joins:
            generation = self.ledger.generation_of(shard, name, tick.key)
            change = self.ledger.waiting.change_of(shard, name)
            self.fronts_joined(name, generation, change, content.joins)

    def _append(self, running: Running, effect: Append) -> None:
        running.appended += 1
        unread = (*running.queued, *running.waiting_ticks)
        running.hearing.check(running.process, effect.record, self.now, unread)
        self.machines.check_appended(effect.record, running, self.present)
        if effect.position != running.appended:
            raise Failure("broken", f"position {effect.position} is not {running.appended}")
        running.pending.append((effect.position, effect.record))
        said = _completion(effect.record)
        if said is not None:
            known = inside.known_fronts(running.process, said.pipeline)
            running.completions[effect.position] = said, known
        if effect.can_wait:
            self.after(self.milliseconds(0, 20), self._commit_late, running)
        elif not running.committing:
            self._commit_soon(running)

    def _commit_late(self, running: Running) -> None:
        """What nobody waits for is written, if it has not gone with something else."""
        if running.alive and running.pending and not running.committing:
            self._commit_soon(running)
        else:
            self.not_a_step()

    def _commit_soon(self, running: Running, delay_ns: int = 0) -> None:
        running.committing = True
        if self.chance("slow_writes", self.plan.store_faults):
            delay_ns += self.milliseconds(5, 20)
        delay_ns += max(0, self._stalled.get(running.shard.number, 0) - self.now)
        delay_ns += int(self.rng.expovariate(1.0) * self.plan.commit_ns)
        self.after(delay_ns, self._commit, running)

    def _commit(self, running: Running) -> None:
        """A group commit: what waits becomes durable, mostly all of it."""
        if not running.alive:
            self.not_a_step()
            return
        store, rng = running.shard.store, self.rng
        share = len(running.pending)
        if self.faulty and share > 1 and rng.random() < self.plan.part_commits:
            share = rng.randint(1, share - 1)
        try:
            store.check(running.epoch)
            if self.chance("failed_writes", self.plan.store_faults):
                self._commit_soon(running, self.milliseconds(1, 5))
                return
            torn = share > 1 and self.chance("torn_writes", self.plan.store_faults)
            if torn:
                share = rng.randint(1, share - 1)
            written = running.pending[:share]
            dies = self.dies_about([record for _, record in written])
            if dies == "before":
                self.kill(running)
                return
            store.commit(running.epoch, written)
        except Fenced:
            self.count("fenced_writes")
            self.kill(running)
            return
        del running.pending[:share]
        for position in [at for at, _ in written if at in running.completions]:
            self.called_complete(*running.completions.pop(position))
        if torn or dies or self.chance("unanswered_writes", self.plan.store_faults):
            # The records are there, and the process dies without knowing it.
            self.kill(running)
            return
        running.committing = False
        if running.pending:
            self._commit_soon(running)
        committed = Committed(written[-1][0])
        if self.faulty and rng.random() < 0.3:
            self.after(self.latency(), self.handle_if_alive, running, committed)
        else:
            self.handle(running, committed)

    def stall_store(self, shard: int, span_ns: int) -> None:
        """What a shard has not begun to write becomes durable when some time is over."""
        self.count("slow_writes")
        self._stalled[shard] = self.now + span_ns

    def write_snapshot(self, running: Running) -> None:
        if not running.deposed and not running.paused:
            self.count("snapshots")
            running.shard.store.write_snapshot(running.epoch, running.process.snapshot())

    # --- network between processes ----------------------------------------------------------------

    def latency(self, slowness: float = 1.0) -> int:
        return int(self.rng.expovariate(1.0) * self.plan.latency_ns * slowness) + 1000

    def connect(self, running: Running, other: Shard) -> None:
        """A process opens a connection to whoever owns another shard now."""
        if running.alive and other.running is not None:
            if running.process.speaks < other.running.process.membership.level:
                self.count("older_releases_refused_by_others")
                self.after(self.milliseconds(1, 5), self.connect, running, other)
                return
            running.wires[other.own] = Wire(other.running)
            self.handle(running, PeerConnected(other.own))

    def _send(self, source: Running, target: int, frame: Frame) -> None:
        plan, rng = self.plan, self.rng
        self.machines.check_sent(frame)
        self._check_frame(source, target, frame)
        wire = source.wires.get(target)
        if wire is None:
            return  # a process that starts has no connections: it answers one that has left in vain
        link = (source.shard.number, self.peer(source.shard, target).number)
        if self.faulty:
            if link in self.cut_links:
                self.count("frames_on_cut_links")
                return
            if rng.random() < plan.loss or self._is_deaf(link, frame):
                self.count("lost_frames")
                return
            slowness = plan.slow_links.get(link, 1.0)
            if self.slow_shards and not self.slow_shards.isdisjoint(link):
                self.count("frames_of_slow_peers")
                slowness *= 20
            delay = self.latency(slowness)
            if link in self._held_links:
                delay += max(0, self._held_links[link] - self.now)
            if rng.random() < plan.duplication:
                self.count("duplicated_frames")
                later = delay + self.latency(10.0)
                self.after(later, self._frame_arrives, source, target, wire, frame)
            if plan.reorders:
                self.count("unordered_frames")
                self.after(delay, self._frame_arrives, source, target, wire, frame)
                return
        else:
            delay = self.latency()
        arrival = max(self.now + delay, wire.last_arrival + 1)
        wire.last_arrival = arrival
        self.after(arrival - self.now, self._frame_arrives, source, target, wire, frame)

    def _check_frame(self, source: Running, target: int, frame: Frame) -> None:
        """Frames and what is under way are bounded; notes which limits were reached."""
        body, config = frame.body, self.plan.config
        if type(body) is Entries:
            count = body.last - body.first + 1
            if count > config.max_entries_per_frame:
                raise Failure("broken", f"a frame has {count} entries")
            if count == config.max_entries_per_frame:
                self.count("full_frames")
            self._check_sizes(source, body)
            for _, run in _runs_of(frame):
                kinds = [kind for kind in ("columns", "parts") if getattr(run, kind)]
                for kind in kinds or ["nothing"]:
                    self.count(f"runs_with_{kind}")
            receiver = self.peer(source.shard, target).running
            if (
                receiver is not None
                and receiver.process.speaks < NEWEST_LEVEL == source.process.speaks
                and len(body.entries) > 1
            ):
                self.count("frames_for_older_releases")
            link: Link = source.process.links.get(target, Link())
            ahead = body.last - link.confirmed
            if ahead >= config.max_entries_in_flight:
                self.count("full_links")

    def _check_sizes(self, source: Running, body: Entries) -> None:
        """A frame takes no more bytes than it may, and neither does what is handed over, unless it is one
        thing."""
        config, entries = self.plan.config, body.entries
        size = sum(map(entry_bytes, entries))
        if len(entries) > 1 and size > config.max_bytes_per_frame:
            raise Failure("broken", f"a frame of {len(entries)} entries has {size} bytes")
        count = body.last - body.first + 1
        if count < config.max_entries_per_frame and body.last < inside.home_last(source.process):
            self.count("frames_full_by_bytes")
        for entry, after in zip(entries, (*entries[1:], None), strict=True):
            repeated = isinstance(entry, NodesMoved | CellsMoved) and type(after) is type(entry)
            if repeated or isinstance(entry, DepartureSummarized):
                self.count("moves_in_pieces")
            for things in _handed_over(entry):
                if len(things) > 1 and sum(things) > config.max_bytes_per_move:
                    raise Failure("broken", f"one entry hands over {things} bytes: {_short(entry)}")

    def _frame_arrives(
        self, source: Running, target: int, wire: Wire, frame: Frame, *, forged: bool = False
    ) -> None:
        if wire.end is None or not wire.end.alive or source.wires[target] is not wire:
            self.not_a_step()
            return
        process = wire.end.process
        if needed_by(frame) > process.speaks:
            # It is of a release that cannot read it, and has come too late.
            self.count("frames_refused_by_older_releases")
            self._end_wire(source, target, wire)
            return
        try:
            process.check_frame(frame)
        except Refused as refused:
            self._refuse_frame(source, target, wire, frame, refused, forged=forged)
            return
        self._note_runs_taken(process, frame)
        if isinstance(frame.body, ShardReport) and process.unknown_homes(frame.body):
            self.count("reports_of_unknown_shards")
        self.handle(wire.end, FrameArrived(frame))
        if self.faulty and not forged and self.rng.random() < self.plan.forgeries:
            false = forged_frame(self.rng, process, frame)
            if false is not None:
                self.count("forged_frames")
                self._frame_arrives(source, target, wire, false, forged=True)

    def _note_runs_taken(self, process: Process, frame: Frame) -> None:
        """Counts the runs that a process takes, but not from their beginning, or not at once."""
        link = process.links.get(frame.shard)
        known = inside.pipelines(process)
        for number, run in _runs_of(frame):
            if link is not None and number <= link.accepted < number + run.count - 1:
                self.count("runs_taken_in_part")
            if not all(
                columns.pipeline not in known
                or known[columns.pipeline].shard.takes_at_once(run, columns)
                for columns in run.columns
            ):
                self.count("ticks_applied_one_by_one")

    def _refuse_frame(
        self,
        source: Running,
        target: int,
        wire: Wire,
        frame: Frame,
        refused: Refused,
        *,
        forged: bool,
    ) -> None:
        """The stream ends with the frame: what is under way on it is gone, and a new one begins later.
        No frame that a process has made itself is refused by another one, but by a former owner: what the
        owner after it has decided cannot be, as far as it knows."""
        if forged:
            self.count("refused_frames")
        elif wire.end is not None and wire.end.deposed:
            self.count("frames_refused_by_former_owners")
        else:
            raise Failure("broken", f"{_short(frame)} was refused: {refused}")
        self.trace_line(lambda: f"{_short(frame)} is refused: {refused}")
        self._end_wire(source, target, wire)

    def _end_wire(self, source: Running, target: int, wire: Wire) -> None:
        wire.end = None
        if source.alive:
            self.handle(source, PeerDisconnected(target))
            self.after(
                self.milliseconds(1, 5), self.connect, source, self.peer(source.shard, target)
            )

    def reset_link(self, a: int, b: int) -> None:
        """What is under way between two shards is gone, and both hear of a new link."""
        one, other = self.shards[a], self.shards[b]
        for source, target in ((one, other), (other, one)):
            if source.running is not None:
                self.after(self.latency(), self.connect, source.running, target)

    def cut_link(self, a: int, b: int, *, both_ways: bool) -> None:
        """Nothing passes for a while; the sender notices or does not."""
        links = {(a, b), (b, a)} if both_ways else {(a, b)}
        self.cut_links |= links
        noticed = self.rng.random() < 0.5
        for source, target in sorted(links):
            running = self.shards[source].running
            if noticed and running is not None:
                self.handle(running, PeerDisconnected(self.shards[target].own))
        self.after(self.milliseconds(5, 60), self._mend_links, links, noticed)

    def _mend_links(self, links: set[tuple[int, int]], noticed: bool) -> None:
        self.cut_links -= links
        for source, target in sorted(links):
            running = self.shards[source].running
            if noticed and running is not None:
                self.connect(running, self.shards[target])

    def hold_link(self, source: int, target: int, span_ns: int) -> None:
        """What one shard sends another from now on arrives when some time is over."""
        self.count("held_links")
        self._held_links[source, target] = self.now + span_ns

    def release_link(self, source: int, target: int) -> None:
        """What one shard sends another from now on is not held any more."""
        del self._held_links[source, target]

    def deafen_link(self, source: int, target: int, span_ns: int, what: type = object) -> None:
        """What one shard sends another is lost for some time: frames of some kind, or all."""
        self.count("deaf_links")
        self._deaf_links[source, target] = self.now + span_ns, what

    def mend_link(self, source: int, target: int) -> None:
        """What one shard sends another is no longer lost."""
        self._deaf_links.pop((source, target), None)

    def _is_deaf(self, link: tuple[int, int], frame: Frame) -> bool:
        until, what = self._deaf_links.get(link, (0, object))
        return self.now < until and isinstance(frame.body, what)

    def slow_down(self, shard: int) -> None:
        """All that a shard sends and is sent takes long, for a while."""
        self.slow_shards.add(shard)
        self.after(self.milliseconds(5, 30), self.slow_shards.discard, shard)


def _completion(record: Record) -> Announcement | PipelineCompleted | None:
    """What a record says, if that calls segments complete."""
    said = record.entry if isinstance(record, HomeEntry) else record
    if isinstance(said, Announcement) and any(slot == FOREVER for _, slot in said.min_times):
        return said
    return said if isinstance(said, PipelineCompleted) else None


def _handed_over(entry: Told) -> Iterator[list[int]]:
    """The bytes of each thing of a kind that an entry hands over."""
    match entry:
        case NodesMoved():
            yield list(map(node_bytes, entry.nodes))
            yield list(map(staged_bytes, entry.staged))
        case CellsMoved():
            yield [CELL_BYTES] * len(entry.cells)
            yield list(map(unit_bytes, entry.units))
            yield list(map(unit_bytes, entry.consumed))
            yield list(map(given_up_bytes, entry.written_off))
        case DepartureSummarized() | ShardLeft():
            yield list(map(summary_bytes, entry.pipelines))


def _runs_of(frame: Frame) -> Iterator[tuple[int, TickRun]]:
    """The runs in a frame, each with the number of its first entry."""
    if isinstance(frame.body, Entries):
        for number, told in numbered(frame.body.first, frame.body.entries):
            if isinstance(told, TickRun):
                yield number, told


def _short(thing: Any) -> str:
    """A line for the trace."""
    text = repr(thing)
    return text if len(text) <= 300 else text[:297] + "..."
