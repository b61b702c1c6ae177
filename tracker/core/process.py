"""A tracker process: home to some nodes, owner of some slots, announcer of min times (rules 1 to 9).

`handle(event, now_ns)` takes what happened and returns what to do. Whatever must survive goes through
the log: it is appended, and takes effect when the shell says that it is durable, or when recovery
replays it; both run `_apply`. Nothing is said to a node, another shard or a subscriber before what it
rests on is durable, announcements included: they never go back over a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tracker.core.cut import Vectors
from tracker.core.describe import PipelineDescription, ShardDescription
from tracker.core.home import HomeNode
from tracker.core.links import Link
from tracker.core.messages import (
    Announced,
    Announcement,
    Answer,
    Append,
    AttachSession,
    Committed,
    DetachSession,
    Effect,
    Entries,
    EntriesReceived,
    Entry,
    Event,
    Frame,
    FrameArrived,
    FrameBody,
    FrontGranted,
    HomeEntry,
    Joined,
    JoinNode,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    LeaveNode,
    PeerConnected,
    PeerDisconnected,
    Pinned,
    PipelineRegistered,
    PipelineReport,
    ReceivedEntries,
    Record,
    RegisterPipeline,
    ReportWanted,
    Send,
    SessionAttached,
    SessionRefused,
    ShardReport,
    StageContributions,
    Staged,
    SubmitTick,
    Swept,
    TickRefused,
    TicksDurable,
    UnitsArrived,
    Wake,
    WakeAt,
)
from tracker.core.model import (
    Cells,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    SilentFront,
    StagedContribution,
    Tick,
    TickContent,
)
from tracker.core.parts import OutboxEntry
from tracker.core.pipeline import Pipeline
from tracker.core.registration import check_spec, differences
from tracker.core.restore import restore_pipeline, snapshot_pipeline
from tracker.core.routing import RoutingTable
from tracker.core.snapshot import ProcessSnapshot

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Limits and intervals of one process."""

    report_interval_ms: int = 4
    """Reports and announcements are made at most this often; at once when the last is older."""
    retransmit_ms: int = 500
    """What no shard confirms for this long is sent again."""
    announced_report_ms: int = 200
    """Announcements are told to the other shards at the latest after this long."""
    evict_check_ms: int = 200
    """How often silent fronts are looked for, where a pipeline evicts them."""
    max_entries_per_frame: int = 512
    max_cells_per_frame: int = 262_144
    max_entries_in_flight: int = 16_384
    """Entries sent to a shard beyond what it has confirmed."""
    max_unconfirmed_entries: int = 200_000
    """Entries that some shard has not confirmed; above it the process is congested and the shell
    must not submit more ticks."""
    max_pipelines: int = 10_000


class LogLost(Exception):
    """This shard's home log is shorter than what another shard has confirmed of it."""


class Process:
    """The state machine of one shard's process. Times are nanoseconds of a monotonic clock."""

    def __init__(
        self,
        shard: int,
        routing: RoutingTable,
        epoch: int,
        config: ProcessConfig | None = None,
    ) -> None:
        if shard not in routing.shards:
            raise ValueError(f"shard {shard} is not among the routing table's {routing.shards}")
        self.shard = shard
        self.routing = routing
        self.epoch = epoch
        self.config = config or ProcessConfig()
        self.position = 0
        """Position of the last record appended."""
        self.committed = 0
        """Position of the last record that is durable and has taken effect."""
        self.links = {other: Link() for other in routing.shards if other != shard}
        self._vectors = Vectors(routing.shards)
        self._needed_cut = dict.fromkeys(routing.shards, 0)
        """Where M must have come to before anything is said: others have let go of runs by it."""
        self._pipelines: dict[str, Pipeline] = {}
        self._registering: dict[str, PipelineSpec] = {}
        """Appended registrations that are not durable yet."""
        self._unconfirmed_registrations: dict[str, tuple[int, list[Hashable]]] = {}
        self._sessions: dict[Hashable, tuple[str, NodeKey]] = {}
        self._next_incarnation = 1
        self._home_last = 0
        self._outbox: deque[OutboxEntry] = deque()
        self._closed_keys: deque[tuple[int, str, NodeKey]] = deque()
        """Closed keys that are not dropped, by the entry that closed them."""
        # Not durable, forgotten by a crash:
        self._home_appended = 0
        self._pending: deque[tuple[int, Record, Hashable | None]] = deque()
        self._dirty: dict[str, None] = {}
        self._holding: dict[str, None] = {}
        """Pipelines with runs outside M: they may have news whenever M moves."""
        self._last_refresh_ns: int | None = None
        self._last_report_ns = 0
        self._report_number = 0
        self._dropping = 0
        """How many closed keys have a dropping entry that is not durable yet: the first ones."""
        self._pins_position = 0
        """Reports wait until the records up to here are durable: a pin is told when it cannot be
        forgotten any more."""
        self._held_frames: deque[tuple[int, int, FrameBody]] = deque()
        self._announced_due_ns: int | None = None
        self._evict_check_ns: int | None = None
        self._wake_ns: int | None = None
        self._durable_ticks: dict[Hashable, int] = {}
        self._out: list[Effect] = []

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """Takes one event; returns its effects in the order in which to carry them out."""
        self._out = []
        match event:
            case SubmitTick():
                self._submit(event, now_ns)
            case Committed():
                self._commit(event.position, now_ns)
            case FrameArrived():
                self._take_frame(event.frame, now_ns)
            case Wake():
                self._wake_ns = None
                self._wake(now_ns)
            case AttachSession():
                self._attach(event)
            case DetachSession():
                self._detach(event.session)
            case PeerConnected():
                self._connect(event.shard, now_ns)
            case PeerDisconnected():
                self.links[event.shard].connected = False
            case RegisterPipeline() | JoinNode() | LeaveNode() | StageContributions():
                self._request(event)
        self._refresh_if_due(now_ns)
        self._schedule(now_ns)
        return self._out

    @property
    def congested(self) -> bool:
        """Whether so much is unconfirmed by other shards that no more ticks should be submitted."""
        return len(self._outbox) > self.config.max_unconfirmed_entries

    def _request(self, event: RegisterPipeline | JoinNode | LeaveNode | StageContributions) -> None:
        try:
            match event:
                case RegisterPipeline():
                    self._register(event)
                case JoinNode():
                    self._join(event)
                case LeaveNode():
                    self._leave(event)
                case StageContributions():
                    self._stage(event)
        except Refused as refused:
            self._out.append(Answer(event.request, refused.refusal))

    def _append(self, record: Record, request: Hashable | None = None) -> None:
        self.position += 1
        self._pending.append((self.position, record, request))
        self._out.append(Append(self.position, record))

    def _append_home(self, entry: Entry, request: Hashable | None = None) -> None:
        self._home_appended += 1
        self._append(HomeEntry(self._home_appended, entry), request)

    # --- registering pipelines --------------------------------------------------------------------

    def _register(self, event: RegisterPipeline) -> None:
        spec = event.spec
        home = self.routing.registrar(spec.name)
        if home != self.shard:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {spec.name!r} is registered with shard {home}",
                home=home,
            )
        check_spec(spec)
        known = self._registering.get(spec.name)
        if spec.name in self._pipelines:
            known = self._pipelines[spec.name].spec
        if known is None:
            if len(self._pipelines) + len(self._registering) >= self.config.max_pipelines:
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {spec.name!r}: {len(self._pipelines)} pipelines are registered, "
                    f"the limit max_pipelines is {self.config.max_pipelines}",
                )
            self._registering[spec.name] = spec
            self._unconfirmed_registrations[spec.name] = (
                self._home_appended + 1,
                [event.request],
            )
            self._append_home(PipelineRegistered(spec))
            return
        if known != spec:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {spec.name!r} is registered otherwise: {differences(known, spec)}; "
                "register it under another name",
            )
        if spec.name in self._unconfirmed_registrations:
            self._unconfirmed_registrations[spec.name][1].append(event.request)
        else:
            self._out.append(Answer(event.request, spec))

    def _answer_registrations(self) -> None:
        everywhere = self._confirmed_everywhere()
        for name, (number, requests) in list(self._unconfirmed_registrations.items()):
            if number <= everywhere and name in self._pipelines:
                del self._unconfirmed_registrations[name]
                spec = self._pipelines[name].spec
                self._out.extend(Answer(request, spec) for request in requests)

    def _confirmed_everywhere(self) -> int:
        """The last entry of this home's log that every shard holds durably."""
        return min([self._home_last, *(link.confirmed for link in self.links.values())])

    # --- joining and leaving of nodes (rule 9) ----------------------------------------------------

    def _pipeline(self, name: str) -> Pipeline:
        pipeline = self._pipelines.get(name)
        if pipeline is None:
            raise Refused(
                RefusalCode.UNKNOWN_PIPELINE,
                f"pipeline {name!r} is not registered (shard {self.shard} knows "
                f"{len(self._pipelines)} pipelines); register it first",
            )
        return pipeline

    def _at_home(self, pipeline: str, node_id: str) -> Pipeline:
        state = self._pipeline(pipeline)
        home = self.routing.home(pipeline, node_id)
        if home != self.shard:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {pipeline!r}: node {node_id!r} is at home at shard {home}",
                home=home,
            )
        return state

    def _join(self, event: JoinNode) -> None:
        pipeline = self._at_home(event.pipeline, event.node_id)
        home = pipeline.home
        if not 0 < len(event.node_id) <= 1024 or len(event.kind) > 100:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r}: a node id has 1 to 1024 characters and a kind at "
                f"most 100, got {len(event.node_id)} and {len(event.kind)}",
            )
        if event.node_id not in home.newest and len(home.newest) >= pipeline.spec.max_nodes:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot join, "
                f"{len(home.newest)} nodes have at shard {self.shard}, max_nodes is "
                f"{pipeline.spec.max_nodes}; let nodes that are gone leave",
            )
        key = NodeKey(event.node_id, self._next_incarnation)
        self._next_incarnation += 1
        home.newest[event.node_id] = key
        self._append_home(KeyOpened(event.pipeline, key, event.kind), event.request)

    def _close_key(self, pipeline: str, key: NodeKey, *, evicted: bool = False) -> None:
        """Fixes the key's last number; whatever else it sends is refused."""
        node = self._pipelines[pipeline].home.nodes.get(key.node_id)
        last = node.accepted if node is not None and node.key == key else 0
        self._append_home(KeyClosed(pipeline, key, last, evicted))

    def _leave(self, event: LeaveNode) -> None:
        pipeline = self._at_home(event.pipeline, event.key.node_id)
        node = self._current_node(pipeline, event.key)
        if node.fronts:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r}: node {event.key} cannot leave, its fronts "
                f"{sorted(node.fronts)} have not; commit a tick by which they leave",
            )
        del pipeline.home.newest[event.key.node_id]
        self._close_key(event.pipeline, event.key)
        self._append_request(event.request)

    def _append_request(self, request: Hashable) -> None:
        """Answers `request` with None when the record appended last is durable."""
        position, record, _ = self._pending.pop()
        self._pending.append((position, record, request))

    def _current_node(self, pipeline: Pipeline, key: NodeKey) -> HomeNode:
        """The node of a key that may commit; raises Refused if there is none or a newer one."""
        node = pipeline.home.nodes.get(key.node_id)
        newest = pipeline.home.newest.get(key.node_id)
        name = pipeline.spec.name
        if newest == key and node is not None and node.key == key:
            return node
        if newest is not None and newest.incarnation > key.incarnation:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {key} is closed, {newest} has taken its place; "
                "only one process may run under a node id",
            )
        if node is not None and node.key == key and node.evicted:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {key} was evicted after a silence of more than "
                f"{pipeline.spec.evict_after_ms} ms; join again",
            )
        raise Refused(
            RefusalCode.UNKNOWN_NODE,
            f"pipeline {name!r}: node {key} has not joined, or has left; join again",
        )

    # --- sessions and ticks (rules 1, 2, 3) -------------------------------------------------------

    def _attach(self, event: AttachSession) -> None:
        try:
            pipeline = self._at_home(event.pipeline, event.key.node_id)
            node = self._current_node(pipeline, event.key)
        except Refused as refused:
            self._out.append(SessionRefused(event.session, refused.refusal))
            return
        if node.session is not None and node.session != event.session:
            self._end_session(
                node,
                Refusal(
                    RefusalCode.FENCED,
                    f"pipeline {event.pipeline!r}: a newer stream of node {event.key} has begun",
                ),
            )
        node.session = event.session
        self._sessions[event.session] = (event.pipeline, event.key)
        self._out.append(SessionAttached(event.session, node.accepted))
        if node.durable:
            self._out.append(TicksDurable(event.session, node.durable))
        pipeline.grants_due.extend((event.key.node_id, front) for front in node.fronts)
        self._give_grants(pipeline)

    def _end_session(self, node: HomeNode, refusal: Refusal) -> None:
        self._out.append(SessionRefused(node.session, refusal))
        self._detach(node.session)

    def _detach(self, session: Hashable) -> None:
        attached = self._sessions.pop(session, None)
        if attached is None:
            return
        name, key = attached
        node = self._pipelines[name].home.nodes.get(key.node_id)
        if node is not None and node.session == session:
            node.session = None

    def _submit(self, event: SubmitTick, now_ns: int) -> None:
        attached = self._sessions.get(event.session)
        if attached is None:
            refusal = Refusal(RefusalCode.FENCED, "this stream of ticks is over; attach again")
            self._out.append(SessionRefused(event.session, refusal))
            return
        name, key = attached
        pipeline = self._pipelines[name]
        try:
            node = self._current_node(pipeline, key)
            node.last_heard_ns = now_ns
            if event.number <= node.accepted:
                if event.number <= node.durable:
                    self._out.append(TicksDurable(event.session, node.durable))
                return
            entry = self._judge(pipeline, node, event)
        except Refused as refused:
            self._out.append(TickRefused(event.session, event.number, refused.refusal))
            return
        self._append_home(entry)

    def _judge(self, pipeline: Pipeline, node: HomeNode, event: SubmitTick) -> KeyTick:
        """The entry that a tick becomes; raises Refused, changing nothing, if it cannot be."""
        if event.number != node.accepted + 1:
            raise Refused(
                RefusalCode.OUT_OF_ORDER,
                f"pipeline {pipeline.spec.name!r}: node {node.key} sent tick {event.number}, "
                f"tick {node.accepted + 1} is due",
                expected=node.accepted + 1,
            )
        content = event.content
        if pipeline.home.is_repeated_batch(node, content.batch):
            content = TickContent()
        else:
            pipeline.home.check(node, content, pipeline.announced)
            self._check_room(pipeline, content)
        late = Cells.empty()
        if len(content.consumed):
            is_late = content.consumed.below(pipeline.announced)
            if is_late.any():
                late = content.consumed.select(is_late)
                content = replace(content, consumed=content.consumed.select(~is_late))
        pipeline.home.accept(node, content)
        return KeyTick(Tick(pipeline.spec.name, node.key, event.number, content), late)

    def _check_room(self, pipeline: Pipeline, content: TickContent) -> None:
        spec = pipeline.spec
        if len(content.created):
            for shard in self.routing.shards:
                there = pipeline.combiner.open_slots(shard)
                if there + len(content.created) > spec.max_open_cells:
                    raise Refused(
                        RefusalCode.FULL,
                        f"pipeline {spec.name!r}: shard {shard} has {there} open cells and "
                        f"{len(content.created)} more could pass the limit max_open_cells of "
                        f"{spec.max_open_cells}; find out what holds min time back",
                    )
        if content.units_created:
            for segment in {unit.segment for unit in content.units_created}:
                known = len(pipeline.shard.units.get(segment, ()))
                if known + len(content.units_created) > spec.max_open_units:
                    raise Refused(
                        RefusalCode.FULL,
                        f"pipeline {spec.name!r}, segment {spec.segments[segment]!r}: {known} units "
                        f"are open and {len(content.units_created)} more would pass the limit "
                        f"max_open_units of {spec.max_open_units}; is its reader running?",
                    )

    def _stage(self, event: StageContributions) -> None:
        pipeline = self._at_home(event.pipeline, event.node_id)
        waiting = [
            record.contributions
            for _, record, _ in self._pending
            if isinstance(record, Staged)
            and (record.pipeline, record.node_id) == (event.pipeline, event.node_id)
        ]
        repeated = {c.key: c for contributions in waiting for c in contributions}
        fresh = tuple(
            c
            for c in pipeline.home.check_staged(event.node_id, event.contributions)
            if c.key not in repeated
        )
        self._append(Staged(event.pipeline, event.node_id, fresh), event.request)

    # --- durable records take effect --------------------------------------------------------------

    def _commit(self, position: int, now_ns: int) -> None:
        while self._pending and self._pending[0][0] <= position:
            self.committed, record, request = self._pending.popleft()
            self._apply(record, now_ns)
            if request is not None:
                self._answer(record, request)
        for session, number in self._durable_ticks.items():
            self._out.append(TicksDurable(session, number))
        self._durable_ticks.clear()
        self._after_progress(now_ns)
        while self._held_frames and self._held_frames[0][0] <= self.committed:
            _, shard, body = self._held_frames.popleft()
            self._send(shard, body)
        if self.committed >= self._pins_position:
            for pipeline in self._pipelines.values():
                if pipeline.grants_due:
                    self._give_grants(pipeline)

    def _after_progress(self, now_ns: int) -> None:
        """Something became durable here or was confirmed by another shard."""
        everywhere = self._confirmed_everywhere()
        while self._outbox and self._outbox[0].number <= everywhere:
            self._outbox.popleft()
        while self._dropping < len(self._closed_keys):
            number, name, key = self._closed_keys[self._dropping]
            if number > everywhere:
                break
            self._dropping += 1
            self._append_home(KeyDropped(name, key))
        if self._unconfirmed_registrations:
            self._answer_registrations()
        for shard in self.links:
            self._pump(shard, now_ns)

    def _answer(self, record: Record, request: Hashable) -> None:
        result: Joined | None = None
        if isinstance(record, HomeEntry) and isinstance(record.entry, KeyOpened):
            result = self._joined(self._pipelines[record.entry.pipeline], record.entry.key)
        self._out.append(Answer(request, result))

    def _joined(self, pipeline: Pipeline, key: NodeKey) -> Joined:
        node = pipeline.home.nodes[key.node_id]
        fronts = tuple(
            pipeline.grant(front) for front in pipeline.shard.fronts if front[0] == key.node_id
        )
        return Joined(key, pipeline.spec, node.last_batches(), node.previous_node_time, fronts)

    def _apply(self, record: Record, now_ns: int) -> None:
        """What a durable record changes; the same when it was just committed and in recovery."""
        match record:
            case HomeEntry():
                self._home_last = record.number
                part = OutboxEntry(record.number, record.entry, self.routing)
                if self.links:
                    self._outbox.append(part)
                self._apply_at_home(record.number, record.entry, now_ns)
                self._apply_entry(part.part(self.shard), self.shard, now_ns)
            case ReceivedEntries():
                for entry in record.entries:
                    self._apply_entry(entry, record.shard, now_ns)
                link = self.links[record.shard]
                link.received = record.first + len(record.entries) - 1
                self._send(record.shard, EntriesReceived(link.received))
            case Announcement():
                self._say(record)
            case Pinned():
                shard = self._pipelines[record.pipeline].shard
                for pin in record.pins:
                    shard.pin(pin)
            case Swept():
                self._pipelines[record.pipeline].shard.sweep(record.segment, record.below)
                self._dirty[record.pipeline] = None
            case Staged():
                self._pipelines[record.pipeline].home.stage(record.node_id, record.contributions)

    def _apply_at_home(self, number: int, entry: Entry, now_ns: int) -> None:
        """What an entry of this shard's own home log changes at the home."""
        match entry:
            case KeyOpened():
                home = self._pipelines[entry.pipeline].home
                self._next_incarnation = max(self._next_incarnation, entry.key.incarnation + 1)
                node = HomeNode(entry.key, entry.kind, last_heard_ns=now_ns)
                older = home.nodes.get(entry.key.node_id)
                if older is not None:
                    node.previous_node_time = older.durable
                    node.batches = older.batches
                    node.fronts = older.fronts
                    node.ungranted = older.ungranted
                    self._closed_keys.append((number, entry.pipeline, older.key))
                    if older.session is not None:
                        self._end_session(older, self._fenced(entry.pipeline, entry.key))
                home.nodes[entry.key.node_id] = node
            case KeyTick():
                self._tick_durable(entry)
            case KeyClosed():
                node_closed = self._pipelines[entry.pipeline].home.nodes.get(entry.key.node_id)
                if node_closed is not None and node_closed.key == entry.key and entry.evicted:
                    node_closed.evicted = True
                    node_closed.fronts, node_closed.ungranted = {}, {}
                    if node_closed.session is not None:
                        self._end_session(node_closed, self._fenced(entry.pipeline, entry.key))
                self._closed_keys.append((number, entry.pipeline, entry.key))
            case KeyDropped():
                _, _, dropped = self._closed_keys.popleft()
                assert dropped == entry.key, "keys are dropped in the order in which they closed"
                self._dropping = max(0, self._dropping - 1)
                home = self._pipelines[entry.pipeline].home
                node_left = home.nodes.get(entry.key.node_id)
                if node_left is not None and node_left.key == entry.key and not node_left.evicted:
                    del home.nodes[entry.key.node_id]
                    home.drop_staged(entry.key.node_id, unless=lambda _: False)

    def _fenced(self, pipeline: str, key: NodeKey) -> Refusal:
        return Refusal(
            RefusalCode.FENCED,
            f"pipeline {pipeline!r}: node {key.node_id!r} was evicted or has joined anew as {key}",
        )

    def _tick_durable(self, entry: KeyTick) -> None:
        tick = entry.tick
        home = self._pipelines[tick.pipeline].home
        node = home.nodes[tick.key.node_id]
        batch = tick.content.batch
        node.commit(tick.number, batch)
        if batch is not None:
            scope, newest = batch.scope, batch.id
            home.drop_staged(
                tick.key.node_id, unless=lambda c: c.query != scope or c.batch > newest
            )
        if node.session is not None:
            self._durable_ticks[node.session] = tick.number

    def _apply_entry(self, entry: Entry, home: int, now_ns: int) -> None:
        """What an entry of any home log, with this shard's parts, changes at the shard."""
        match entry:
            case KeyTick():
                shard = self._pipelines[entry.tick.pipeline].shard
                for segment in shard.apply_tick(entry, home):
                    self._out.append(UnitsArrived(entry.tick.pipeline, segment))
                self._dirty[entry.tick.pipeline] = None
            case KeyOpened():
                self._pipelines[entry.pipeline].shard.open_key(entry)
                self._dirty[entry.pipeline] = None
            case KeyClosed():
                self._pipelines[entry.pipeline].shard.close_key(entry, home)
                self._dirty[entry.pipeline] = None
            case KeyDropped():
                self._pipelines[entry.pipeline].shard.drop_key(entry)
                self._dirty[entry.pipeline] = None
            case PipelineRegistered():
                self._begin_pipeline(entry.spec, now_ns)

    def _begin_pipeline(self, spec: PipelineSpec, now_ns: int) -> None:
        self._registering.pop(spec.name, None)
        if spec.name in self._pipelines:
            return
        self._pipelines[spec.name] = Pipeline(spec, self._vectors, self.shard)
        self._dirty[spec.name] = None
        for shard, link in self.links.items():
            link.needs_whole = True  # what they have said of it so far was passed over
            link.wanted_ns = None
            self._want_report(shard, now_ns)

    def _say(self, record: Announcement) -> None:
        pipeline = self._pipelines[record.pipeline]
        for segment, slot in record.min_times:
            pipeline.announced[segment] = max(slot, pipeline.announced[segment])
            pipeline.said[segment] = slot
            pipeline.unreported[segment] = slot
        self._out.append(Announced(record.pipeline, record.min_times, min(pipeline.said)))

    # --- the home log on its way to the other shards (rule 3) -------------------------------------

    def _send(self, shard: int, body: FrameBody) -> None:
        if self.links[shard].connected:
            self._out.append(Send(shard, Frame(self.shard, self.epoch, body)))

    def _connect(self, shard: int, now_ns: int) -> None:
        link = self.links[shard]
        link.connected = True
        link.restart_sending(now_ns)
        self._send(shard, EntriesReceived(link.received))
        self._send_whole_report(shard)
        if link.needs_whole:
            self._want_report(shard, now_ns)
        self._pump(shard, now_ns)

    def _pump(self, shard: int, now_ns: int) -> None:
        """Sends the entries that a shard has not been sent, as far as its window allows."""
        link = self.links[shard]
        limit = link.confirmed + self.config.max_entries_in_flight
        while link.connected and link.sent < min(self._home_last, limit):
            first = link.sent + 1
            start = first - self._outbox[0].number
            entries: list[Entry] = []
            cells = 0
            for place in range(start, len(self._outbox)):
                if len(entries) >= self.config.max_entries_per_frame or (
                    cells > self.config.max_cells_per_frame
                ):
                    break
                item = self._outbox[place]
                entries.append(item.part(shard))
                cells += item.cell_count
            if link.sent == link.confirmed:
                link.progress_ns = now_ns
            link.sent += len(entries)
            self._send(shard, Entries(first, tuple(entries)))

    def _take_frame(self, frame: Frame, now_ns: int) -> None:
        link = self.links.get(frame.shard)
        if link is None or frame.epoch < link.epoch:
            return
        if frame.epoch > link.epoch:
            link.epoch = frame.epoch
            link.report_number = -1
            link.needs_whole = True
            link.wanted_ns = None
        match frame.body:
            case Entries():
                self._take_entries(frame.shard, link, frame.body)
            case EntriesReceived():
                self._take_confirmation(frame.shard, link, frame.body, now_ns)
            case ShardReport():
                self._take_report(frame.shard, link, frame.body, now_ns)
            case ReportWanted():
                self._send_whole_report(frame.shard)

    def _take_entries(self, shard: int, link: Link, body: Entries) -> None:
        due = link.accepted + 1
        last = body.first + len(body.entries) - 1
        if body.first > due or last < due:
            self._send(shard, EntriesReceived(link.received, again=body.first > due))
            return
        entries = body.entries[due - body.first :]
        for place, entry in enumerate(entries):
            if not self._knows_pipeline(entry):
                entries = entries[:place]  # its registration is still on the way: ask again later
                break
        if entries:
            link.accepted = due + len(entries) - 1
            self._append(ReceivedEntries(shard, due, tuple(entries)))

    def _knows_pipeline(self, entry: Entry) -> bool:
        match entry:
            case PipelineRegistered():
                if entry.spec.name not in self._pipelines:
                    self._registering[entry.spec.name] = entry.spec
                return True
            case KeyTick():
                name = entry.tick.pipeline
            case KeyOpened() | KeyClosed() | KeyDropped():
                name = entry.pipeline
        return name in self._pipelines or name in self._registering

    def _take_confirmation(
        self, shard: int, link: Link, body: EntriesReceived, now_ns: int
    ) -> None:
        if body.number > self._home_last:
            raise LogLost(
                f"shard {shard} holds the home log of shard {self.shard} up to entry "
                f"{body.number}, but it ends at {self._home_last}: acknowledged entries were lost "
                "from the store; restore it from a backup that has them"
            )
        news = link.confirm(body.number, now_ns)
        if body.again and link.sent > link.confirmed:
            link.restart_sending(now_ns)
            news = True
        if news:
            self._after_progress(now_ns)

    # --- reports and announcements (rules 5, 6, 8) ------------------------------------------------

    def _take_report(self, shard: int, link: Link, body: ShardReport, now_ns: int) -> None:
        known = all(report.pipeline in self._pipelines for report in body.pipelines)
        if body.number < link.report_number or (
            body.number == link.report_number and not link.needs_whole
        ):
            return  # older than what was taken
        follows = body.whole or (not link.needs_whole and body.number == link.report_number + 1)
        if not follows or not known:
            # A gap; or a pipeline whose registration is still on the way: nothing of the report may
            # be taken without the rest.
            link.needs_whole = True
            self._want_report(shard, now_ns)
            return
        link.report_number, link.needs_whole, link.wanted_ns = body.number, False, None
        for home, number in body.cut:
            self._needed_cut[home] = max(number, self._needed_cut[home])
        for report in body.pipelines:
            self._combine(self._pipelines[report.pipeline], shard, report, body.whole, now_ns)
        if body.whole:
            for name in self._pipelines.keys() - {report.pipeline for report in body.pipelines}:
                self._pipelines[name].combiner.forget(shard)
        self._move_cut(shard, body.applied)

    def _move_cut(self, shard: int, applied: Iterable[tuple[int, int]]) -> None:
        """A shard's vector has moved: where M follows, pipelines that hold runs may have news."""
        if self._vectors.take(shard, applied):
            self._dirty.update(self._holding)

    def _applied(self) -> dict[int, int]:
        """This shard's vector: by home the entries of its log that are applied here."""
        return {self.shard: self._home_last} | {
            shard: link.received for shard, link in self.links.items()
        }

    def _let_go_by(self) -> tuple[tuple[int, int], ...]:
        """M as far as it has ever come, also before a restart: runs inside it are not kept."""
        return tuple(
            (home, max(number, self._vectors.cut[home]))
            for home, number in self._needed_cut.items()
        )

    def _may_announce(self) -> bool:
        """Whether all that others have let go of runs by has been heard here too."""
        cut = self._vectors.cut
        return all(cut[home] >= number for home, number in self._needed_cut.items())

    def _combine(
        self,
        pipeline: Pipeline,
        shard: int,
        report: PipelineReport,
        whole: bool,
        now_ns: int,
    ) -> None:
        pipeline.combiner.take(shard, report, whole)
        for front in report.fronts:
            pipeline.front_heard_ns[(front.node_id, front.front)] = now_ns
        for left in report.left:
            pipeline.front_heard_ns.pop(left, None)
        self._dirty[report.pipeline] = None

    def _want_report(self, shard: int, now_ns: int) -> None:
        link = self.links[shard]
        interval_ns = self.config.retransmit_ms * _MS
        if link.wanted_ns is None or now_ns - link.wanted_ns >= interval_ns:
            link.wanted_ns = now_ns
            self._send(shard, ReportWanted())

    def _send_whole_report(self, shard: int) -> None:
        reports = tuple(
            pipeline.combiner.whole_report(name)
            for name, pipeline in self._pipelines.items()
            if pipeline.combiner.views[self.shard].heard
        )
        applied = self._vectors.of(self.shard)
        body = ShardReport(self._report_number, True, applied, reports, self._let_go_by())
        self._send_report(shard, body)

    def _send_report(self, shard: int, report: ShardReport) -> None:
        if self._held_frames or self.committed < self._pins_position:
            self._held_frames.append((self._pins_position, shard, report))
        else:
            self._send(shard, report)

    def _refresh_if_due(self, now_ns: int) -> None:
        if self._dirty and now_ns >= self._refresh_due(now_ns):
            self._refresh(now_ns)

    def _refresh_due(self, now_ns: int) -> int:
        if self._last_refresh_ns is None:
            return now_ns
        return self._last_refresh_ns + self.config.report_interval_ms * _MS

    def _refresh(self, now_ns: int) -> None:
        """Reports what has changed here, and announces what all reports together allow."""
        self._last_refresh_ns = now_ns
        dirty, self._dirty = self._dirty, {}
        news = [self._report(self._pipelines[name], now_ns) for name in dirty]
        self._tell([report for report in news if report is not None], now_ns)
        dirty.update(self._dirty)  # M has moved by the own vector
        self._dirty = {}
        for name in dirty:
            self._announce(self._pipelines[name], now_ns)

    def _tell(self, reports: list[PipelineReport], now_ns: int) -> None:
        """Sends a report of what has changed, if anything has, to the other shards. One is sent now
        and then in any case: a lost report is noticed by the next one."""
        applied = tuple(self._applied().items())
        overdue = now_ns - self._last_report_ns >= self.config.retransmit_ms * _MS
        if not (reports or overdue or applied != self._vectors.of(self.shard)):
            return
        self._move_cut(self.shard, applied)
        self._last_report_ns = now_ns
        if not self.links:
            return
        self._report_number += 1
        body = ShardReport(self._report_number, False, applied, tuple(reports))
        for shard, link in self.links.items():
            if link.connected:
                self._send_report(shard, body)

    def _report(self, pipeline: Pipeline, now_ns: int) -> PipelineReport | None:
        """Pins the fronts that are new, and takes the shard's changes into the own combiner: from
        here on the front is held in every min time that this process computes. None if nothing has
        changed; what was announced is told along with something else, or when it is due."""
        pins = pipeline.new_pins()
        if pins:
            for pin in pins:
                pipeline.shard.pin(pin)
            self._append(Pinned(pipeline.spec.name, pins))
            self._pins_position = self.position
        if pipeline.reported and not pipeline.shard.changes and not pipeline.announced_due:
            return None
        report = pipeline.shard.take_report(self._applied(), tuple(pipeline.unreported.items()))
        pipeline.reported, pipeline.announced_due = True, False
        pipeline.unreported.clear()
        self._combine(pipeline, self.shard, report, False, now_ns)
        del self._dirty[pipeline.spec.name]
        return report

    def _announce(self, pipeline: Pipeline, now_ns: int) -> None:
        changed = pipeline.new_announcements() if self._may_announce() else ()
        if pipeline.combiner.trim():
            self._holding[pipeline.spec.name] = None
        else:
            self._holding.pop(pipeline.spec.name, None)
        if changed:
            for segment, slot in changed:
                pipeline.announced[segment] = slot
            self._append(Announcement(pipeline.spec.name, changed))
            if self.links and self._announced_due_ns is None:
                self._announced_due_ns = now_ns + self.config.announced_report_ms * _MS
        for segment, below in pipeline.new_sweeps():
            pipeline.sweeping[segment] = below
            self._append(Swept(pipeline.spec.name, segment, below))
        if pipeline.combiner.newly_settled:
            pipeline.grants_due.extend(pipeline.combiner.newly_settled)
            pipeline.combiner.newly_settled.clear()
            self._give_grants(pipeline)

    def _give_grants(self, pipeline: Pipeline) -> None:
        """Tells nodes at home here of their fronts that every shard has pinned, durably."""
        if self.committed < self._pins_position:
            return
        due, pipeline.grants_due = pipeline.grants_due, []
        for front in due:
            node = pipeline.home.nodes.get(front[0])
            if node is None or front not in pipeline.combiner.settled_fronts:
                continue
            if front not in pipeline.shard.fronts:
                continue
            node.ungranted.pop(front[1], None)
            if node.session is not None:
                self._out.append(FrontGranted(node.session, pipeline.grant(front)))

    # --- time -------------------------------------------------------------------------------------

    def _wake(self, now_ns: int) -> None:
        retransmit_ns = self.config.retransmit_ms * _MS
        for shard, link in self.links.items():
            if link.sent > link.confirmed and now_ns - link.progress_ns >= retransmit_ns:
                link.restart_sending(now_ns)
                self._pump(shard, now_ns)
            if link.connected and link.needs_whole:
                self._want_report(shard, now_ns)
        if self.links and now_ns - self._last_report_ns >= retransmit_ns:
            self._refresh(now_ns)
        if self._announced_due_ns is not None and now_ns >= self._announced_due_ns:
            self._announced_due_ns = None
            for name, pipeline in self._pipelines.items():
                if pipeline.unreported:
                    pipeline.announced_due = True
                    self._dirty[name] = None
        if self._evict_check_ns is None or now_ns >= self._evict_check_ns:
            self._evict_silent(now_ns)

    def _evict_silent(self, now_ns: int) -> None:
        """Closes the keys of nodes whose fronts have been silent for too long, where the pipeline
        says so (rule 8)."""
        self._evict_check_ns = now_ns + self.config.evict_check_ms * _MS
        for name, pipeline in self._pipelines.items():
            if pipeline.spec.silent_front is not SilentFront.EVICT:
                continue
            limit_ns = pipeline.spec.evict_after_ms * _MS
            for node in list(pipeline.home.nodes.values()):
                silent = now_ns - node.last_heard_ns > limit_ns
                if (
                    silent
                    and node.fronts
                    and pipeline.home.newest.get(node.key.node_id) == node.key
                ):
                    del pipeline.home.newest[node.key.node_id]
                    self._close_key(name, node.key, evicted=True)

    def _schedule(self, now_ns: int) -> None:
        """Asks to be woken for what is due first."""
        due: list[int] = []
        if self._dirty:
            due.append(self._refresh_due(now_ns))
        if self._announced_due_ns is not None:
            due.append(self._announced_due_ns)
        retransmit_ns = self.config.retransmit_ms * _MS
        if self.links:
            due.append(self._last_report_ns + retransmit_ns)
        for link in self.links.values():
            if link.sent > link.confirmed:
                due.append(link.progress_ns + retransmit_ns)
            if link.connected and link.needs_whole:
                due.append((link.wanted_ns or now_ns) + retransmit_ns)
        if any(p.spec.silent_front is SilentFront.EVICT for p in self._pipelines.values()):
            due.append(self._evict_check_ns or now_ns + self.config.evict_check_ms * _MS)
        if due and (self._wake_ns is None or min(due) < self._wake_ns):
            self._wake_ns = min(due)
            self._out.append(WakeAt(self._wake_ns))

    # --- recovery ---------------------------------------------------------------------------------

    def snapshot(self) -> ProcessSnapshot:
        """Everything durable, as of the record at `committed`."""
        return ProcessSnapshot(
            position=self.committed,
            home_last=self._home_last,
            next_incarnation=self._next_incarnation,
            outbox=tuple(item.entry for item in self._outbox),
            confirmed=tuple((shard, link.confirmed) for shard, link in self.links.items()),
            received=tuple((shard, link.received) for shard, link in self.links.items()),
            closed=tuple(self._closed_keys),
            cut=self._let_go_by(),
            pipelines=tuple(
                snapshot_pipeline(pipeline, self._applied())
                for pipeline in self._pipelines.values()
            ),
        )

    def recover(
        self,
        snapshot: ProcessSnapshot | None,
        records: Iterable[tuple[int, Record]],
        now_ns: int,
    ) -> list[Effect]:
        """Becomes what the log says: a snapshot, then the records after it, by position. To be
        called once, before any event. Nothing is announced that was not announced before until the
        other shards have been heard."""
        if snapshot is not None:
            self._restore(snapshot)
        for position, record in records:
            if position <= self.committed:
                continue
            if position != self.committed + 1:
                raise LogLost(
                    f"the log of shard {self.shard} goes from record {self.committed} to "
                    f"{position}: records between them are missing from the store"
                )
            self._apply(record, now_ns)
            self._out.clear()
            self.committed = position
        self.position = self.committed
        self._home_appended = self._home_last
        for item in self._outbox:
            if isinstance(item.entry, PipelineRegistered):
                self._unconfirmed_registrations[item.entry.spec.name] = (item.number, [])
        for link in self.links.values():
            link.accepted = link.received
        for pipeline in self._pipelines.values():
            self._recover_home(pipeline, now_ns)
            pipeline.shard.mark_all_changed()
            pipeline.unreported.update(enumerate(pipeline.said))
            self._dirty[pipeline.spec.name] = None
        self._durable_ticks.clear()
        self._out = []
        self._refresh_if_due(now_ns)
        self._after_progress(now_ns)
        self._schedule(now_ns)
        return self._out

    def _recover_home(self, pipeline: Pipeline, now_ns: int) -> None:
        closed = {key for _, name, key in self._closed_keys if name == pipeline.spec.name}
        for node in pipeline.home.nodes.values():
            node.pending.clear()
            node.last_heard_ns = now_ns
            node.ungranted = {}
            node.fronts = {
                front: (
                    state.segment,
                    state.heartbeat if state.promised is not None else -(2**63),
                )
                for (node_id, front), state in pipeline.shard.fronts.items()
                if node_id == node.key.node_id
            }
            if node.key not in closed and not node.evicted:
                pipeline.home.newest[node.key.node_id] = node.key

    def _restore(self, snapshot: ProcessSnapshot) -> None:
        self.committed = snapshot.position
        self._home_last = snapshot.home_last
        self._next_incarnation = snapshot.next_incarnation
        first = snapshot.home_last - len(snapshot.outbox) + 1
        for place, entry in enumerate(snapshot.outbox):
            self._outbox.append(OutboxEntry(first + place, entry, self.routing))
        for shard, number in snapshot.confirmed:
            self.links[shard].confirmed = self.links[shard].sent = number
        for shard, number in snapshot.received:
            self.links[shard].received = number
        self._closed_keys.extend(snapshot.closed)
        self._needed_cut.update(snapshot.cut)
        for saved in snapshot.pipelines:
            pipeline = restore_pipeline(saved, self._vectors, self.shard)
            self._pipelines[saved.spec.name] = pipeline

    # --- reads ------------------------------------------------------------------------------------

    def pipelines(self) -> list[PipelineSpec]:
        """The registered pipelines, by name."""
        return [self._pipelines[name].spec for name in sorted(self._pipelines)]

    def spec(self, pipeline: str) -> PipelineSpec:
        return self._pipeline(pipeline).spec

    def min_times(self, pipeline: str) -> tuple[int, ...]:
        """What has been said, by segment number; exclusive."""
        return tuple(self._pipeline(pipeline).said)

    def pipeline_min_time(self, pipeline: str) -> int:
        """The least min time over the pipeline's segments."""
        return min(self._pipeline(pipeline).said)

    def describe(self, pipeline: str, now_ns: int) -> PipelineDescription:
        return self._pipeline(pipeline).describe(now_ns)

    def describe_shards(self) -> tuple[ShardDescription, ...]:
        own = ShardDescription(self.shard, True, 0)
        others = [
            ShardDescription(
                shard,
                link.connected and not link.needs_whole,
                self._home_last - link.confirmed,
            )
            for shard, link in self.links.items()
        ]
        return tuple(sorted([own, *others], key=lambda shard: shard.shard))

    def home_of(self, pipeline: str, node_id: str) -> int:
        """The shard that a node commits to."""
        self._pipeline(pipeline)
        return self.routing.home(pipeline, node_id)

    def resolve_units(self, pipeline: str, segment: int, names: Iterable[str]) -> list[int | None]:
        """The slots of a segment's open units by name; None for names that have not arrived.
        Raises Refused(NOT_HOME) where another shard keeps that segment's names."""
        state = self._pipeline(pipeline)
        if not 0 <= segment < len(state.spec.segments):
            raise Refused(
                RefusalCode.UNKNOWN_SEGMENT,
                f"pipeline {pipeline!r} has no segment number {segment}",
            )
        keeper = self.routing.names_keeper(pipeline, segment)
        if keeper != self.shard:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {pipeline!r}: shard {keeper} keeps the names of segment "
                f"{state.spec.segments[segment]!r}",
                home=keeper,
            )
        known = state.shard.units.get(segment, {})
        return [known.get(name) for name in names]

    def staged(
        self, pipeline: str, node_id: str, query: str, batch: int
    ) -> tuple[StagedContribution, ...]:
        """What is durably staged for one batch of a query. Raises Refused(NOT_HOME) elsewhere."""
        home = self._at_home(pipeline, node_id).home
        kept = home.staged.get(node_id, {})
        return tuple(c for c in kept.values() if c.query == query and c.batch == batch)

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the protocol does not hold."""
        assert self.committed <= self.position
        assert self._home_last <= self._home_appended
        numbers = [item.number for item in self._outbox]
        if numbers:
            assert numbers == list(range(numbers[0], self._home_last + 1)), "outbox has gaps"
        for shard, link in self.links.items():
            assert link.confirmed <= link.sent <= self._home_last, f"link to {shard} is ahead"
            assert link.received <= link.accepted
        for name, pipeline in self._pipelines.items():
            pipeline.shard.validate()
            pipeline.combiner.validate()
            for segment, (said, announced) in enumerate(
                zip(pipeline.said, pipeline.announced, strict=True)
            ):
                assert pipeline.spec.start_slot <= said <= announced, f"{name}: segment {segment}"
            table = pipeline.shard.cells
            if len(self.routing.shards) > 1 and any(table.open_slots):
                owners = self.routing.owners(table.open_cells().slots)
                assert (owners == self.shard).all(), f"{name}: a cell of another shard is kept"
            for node in pipeline.home.nodes.values():
                assert node.durable <= node.accepted
                at_shard: Any = pipeline.shard.node_times.get(node.key, node.durable)
                assert at_shard == node.durable, f"{name}: {node.key} is applied out of step"
