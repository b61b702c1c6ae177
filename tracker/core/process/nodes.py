"""What pipelines and nodes ask of their home: registering, joining, leaving, ticks (rules 1, 2, 9)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from tracker.core.home.home import HomeNode
from tracker.core.home.registration import check_delays, check_spec, differences
from tracker.core.log import (
    Answer,
    AttachSession,
    FrontGranted,
    HomeEntry,
    Joined,
    JoinNode,
    KeyClosed,
    KeyOpened,
    KeyTick,
    LeaveNode,
    LimitsChanged,
    NodeAlive,
    PipelineRegistered,
    PipelineRestarted,
    RegisterPipeline,
    ReportWaits,
    Restart,
    RestartPipeline,
    RetireNode,
    SegmentLow,
    SessionAttached,
    SessionRefused,
    StageContributions,
    Staged,
    SubmitTick,
    TickRefused,
    TicksDurable,
    WrittenOff,
)
from tracker.core.model import (
    Cells,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    Tick,
    TickContent,
    Unit,
)
from tracker.core.model.slots import FOREVER, LOWEST_SLOT, add_delay
from tracker.core.model.waits import check_waits
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process.exchange import Exchange
from tracker.core.shard.cells import new_cells

_RAISE_LIMIT = "raise the limit (lowmark pipelines apply)"


def _registered_otherwise(known: PipelineSpec, asked: PipelineSpec) -> Refused:
    advice = "register it under another name"
    if known.with_limits(asked.limits) == asked:
        advice = "to change its limits while it runs: lowmark pipelines apply"
    elif replace(known.with_limits(asked.limits), start_slot=asked.start_slot) == asked:
        advice = (
            f"its start is for good: with `start: slot:{known.start_slot}` it is this one, whose limits may be "
            "changed (`now` is another moment each time); or register another, under another name"
        )
    return Refused(
        RefusalCode.CONFLICT,
        f"pipeline {asked.name!r} is registered otherwise: {differences(known, asked)}; {advice}",
    )


def _begins_lowest(cells: Cells, lows: Iterable[SegmentLow]) -> bool:
    """Whether one of some cells is, or lies below, the lowest that is reported open of its segment; or lies
    below all that is open, of whatever segment."""
    open_lows = [low for low in lows if low.open_slots]
    if open_lows and int(cells.slots.min()) < min(low.slot for low in open_lows):
        return True
    return any(
        bool(((cells.segments == low.segment) & (cells.slots <= low.slot)).any())
        for low in open_lows
    )


class Nodes(Exchange):
    """What pipelines and nodes ask of their home."""

    def _request(
        self,
        event: RegisterPipeline
        | JoinNode
        | LeaveNode
        | RetireNode
        | RestartPipeline
        | StageContributions,
    ) -> None:
        try:
            match event:
                case RegisterPipeline():
                    self._register(event)
                case JoinNode():
                    self._join(event)
                case LeaveNode():
                    self._leave(event)
                case RetireNode():
                    self._retire(event)
                case RestartPipeline():
                    self._restart(event)
                case StageContributions():
                    self._stage(event)
        except Refused as refused:
            self._out.append(Answer(event.request, refused.refusal))

    def _register(self, event: RegisterPipeline) -> None:
        spec = event.spec
        self._need_registrar(spec.name, "registered with")
        check_spec(spec)
        pipeline = self._pipelines.get(spec.name)
        if pipeline is not None:
            self._register_again(pipeline, event)
            return
        known = self._registering.get(spec.name)
        if known is None:
            check_delays(spec)
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
            raise _registered_otherwise(known, spec)
        if spec.name in self._unconfirmed_registrations:
            self._unconfirmed_registrations[spec.name][1].append(event.request)
        else:
            self._out.append(Answer(event.request, spec))

    def _register_again(self, pipeline: Pipeline, event: RegisterPipeline) -> None:
        """A pipeline that is there is registered as it is, or as it was at first; or given other limits."""
        spec = event.spec
        number, known = self._newest_limits(pipeline)
        _, requests = self._unconfirmed_registrations.get(spec.name, (0, []))
        if known == spec or (spec == pipeline.registered and not event.change_limits):
            if spec.name in self._unconfirmed_registrations:
                requests.append(event.request)
            else:
                self._out.append(Answer(event.request, known))
            return
        if not event.change_limits or known.with_limits(spec.limits) != spec:
            raise _registered_otherwise(known, spec)
        check_delays(spec)
        requests.append(event.request)
        self._unconfirmed_registrations[spec.name] = self._home_appended + 1, requests
        self._append_home(LimitsChanged(spec.name, number + 1, spec.limits))

    def _newest_limits(self, pipeline: Pipeline) -> tuple[int, PipelineSpec]:
        """How often a pipeline's limits were changed, durably or not, and the pipeline under the last."""
        for _, record, _ in reversed(self._pending):
            entry = record.entry if isinstance(record, HomeEntry) else None
            if isinstance(entry, LimitsChanged) and entry.pipeline == pipeline.spec.name:
                return entry.number, pipeline.spec.with_limits(entry.limits)
        return pipeline.limits_number, pipeline.spec

    def _join(self, event: JoinNode) -> None:
        pipeline = self._at_home(event.pipeline, event.node_id)
        home = pipeline.home
        lengths = len(event.node_id), len(event.kind), len(event.owner)
        if not 0 < lengths[0] <= 1024 or lengths[1] > 100 or lengths[2] > 1024:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r}: a node id has 1 to 1024 characters, a kind at most 100 "
                f"and an owner at most 1024, got {lengths[0]}, {lengths[1]} and {lengths[2]}",
            )
        home.check_known(
            event.node_id, event.known_incarnation, event.known_ticks, self._next_incarnation - 1
        )
        home.check_owner(event.node_id, event.owner, event.take_over)
        if event.node_id not in home.newest and len(home.newest) >= pipeline.spec.max_nodes:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot join, "
                f"{len(home.newest)} nodes have at shard {self.shard}, max_nodes is "
                f"{pipeline.spec.max_nodes}; let nodes that are gone leave, or {_RAISE_LIMIT}",
            )
        if event.check_only:
            known = home.nodes.get(event.node_id)
            newest = NodeKey(event.node_id, 0) if known is None else known.key
            self._out.append(Answer(event.request, self._joined(pipeline, newest)))
            return
        key = NodeKey(event.node_id, self._next_incarnation)
        self._next_incarnation += 1
        home.newest[event.node_id] = key
        opened = KeyOpened(event.pipeline, key, event.kind, pipeline.restart, event.owner)
        self._append_home(opened, event.request)

    def _joined(self, pipeline: Pipeline, key: NodeKey) -> Joined:
        """What a node is told that joins, or asks whether it could, as far as it is durable."""
        node = pipeline.home.nodes.get(key.node_id) or HomeNode(key, "")
        fronts = tuple(
            pipeline.grant(node, front)
            for node_id, front in pipeline.shard.fronts
            if node_id == key.node_id
        )
        return Joined(
            key,
            pipeline.spec,
            node.last_batches(),
            node.previous_node_time,
            fronts,
            pipeline.generation,
            LOWEST_SLOT if pipeline.restart is None else pipeline.floor,
        )

    def _close_key(
        self, pipeline: str, key: NodeKey, *, evicted: bool = False, retired: bool = False
    ) -> None:
        """Fixes the key's last number; whatever else it sends is refused."""
        node = self._pipelines[pipeline].home.nodes.get(key.node_id)
        last = node.accepted if node is not None and node.key == key else 0
        self._append_home(KeyClosed(pipeline, key, last, evicted, retired))

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

    def _retire(self, event: RetireNode) -> None:
        """Closes a node's key for an operator, and passes on what is to be written off because of it.
        Of a node that is gone already, which was evicted, say, its fronts have left by this."""
        pipeline = self._at_home(event.pipeline, event.node_id)
        home = pipeline.home
        key = home.newest.get(event.node_id)
        vacant = pipeline.shard.vacancies.knows(event.node_id)
        if key is None and event.node_id not in home.nodes and not vacant:
            raise Refused(
                RefusalCode.UNKNOWN_NODE,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot be retired: none of this "
                "id has joined, or it has left by itself; lowmark explain lists the nodes",
            )
        home.check_write_off(event.write_off)
        if key is not None:
            del home.newest[event.node_id]
            self._close_key(event.pipeline, key, evicted=True, retired=True)
        if len(event.write_off) or key is None:
            self._append_home(
                WrittenOff(
                    event.pipeline,
                    event.node_id,
                    event.write_off,
                    event.at_ms,
                    pipeline.generation,
                )
            )
        self._answer_when_confirmed(event.request, None)

    def _answer_when_confirmed(self, request: Hashable, result: Restart | None) -> None:
        """Answers when every shard has applied all that this home has said so far."""
        if self._confirmed_everywhere() >= self._home_appended:
            self._out.append(Answer(request, result))
        else:
            self._unconfirmed_requests.append((self._home_appended, request, result))

    def _restart(self, event: RestartPipeline) -> None:
        """Begins a new generation, once, however often it is asked for."""
        pipeline = self._pipeline(event.pipeline)
        self._need_registrar(event.pipeline, "restarted at")
        newest = self._newest_restart(pipeline)
        generation = 0 if newest is None else newest.generation
        if (
            newest is not None
            and generation == event.generation + 1
            and event.from_slot in (None, newest.from_slot)
        ):
            self._answer_when_confirmed(event.request, newest)
            return
        if generation != event.generation:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r} is in generation {generation}, not in "
                f"{event.generation}: it was restarted meanwhile; look at it again",
            )
        from_slot = self._check_restart(pipeline, event.from_slot)
        restart = Restart(generation + 1, from_slot, event.at_ms)
        self._append_home(PipelineRestarted(event.pipeline, restart))
        self._answer_when_confirmed(event.request, restart)

    def _newest_restart(self, pipeline: Pipeline) -> Restart | None:
        """How the newest generation began, durable or not."""
        for _, record, _ in reversed(self._pending):
            entry = record.entry if isinstance(record, HomeEntry) else None
            if isinstance(entry, PipelineRestarted) and entry.pipeline == pipeline.spec.name:
                return entry.restart
        return pipeline.restart

    def _check_restart(self, pipeline: Pipeline, asked: int | None) -> int:
        """The slot from which a generation begins; raises Refused where it cannot."""
        name, horizon = pipeline.spec.name, pipeline.spec.horizon_slots
        known = (pipeline.combiner.announced_anywhere(s) for s in range(pipeline.graph.size))
        anywhere = min(LOWEST_SLOT if slot is None else slot for slot in known)
        least = max(pipeline.min_time, anywhere)
        if least == FOREVER or all(slot == FOREVER for slot in pipeline.announced):
            raise Refused(
                RefusalCode.COMPLETE,
                f"pipeline {name!r} is complete, which stays true; register it under another name to "
                "process its input again",
            )
        from_slot = least if asked is None else asked
        if from_slot < least:
            raise Refused(
                RefusalCode.BELOW_MIN_TIME,
                f"pipeline {name!r} cannot begin again from slot {from_slot}: min time {least} is "
                "announced, everything below it is complete; begin there or later",
            )
        if from_slot > least and from_slot >= add_delay(least, horizon):
            raise Refused(
                RefusalCode.BEYOND_HORIZON,
                f"pipeline {name!r} cannot begin again from slot {from_slot}: the limit is its min time "
                f"{least} + horizon_slots {horizon}",
            )
        return from_slot

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
        last = newest or (node.key if node is not None else None)
        given = self._next_incarnation - 1
        if last is not None and not pipeline.home.has_left(key.node_id):
            given = last.incarnation
        if given < key.incarnation:
            raise Refused(
                RefusalCode.LOST,
                f"pipeline {name!r}: node {key} has joined, and this tracker knows of no such joining: "
                "acknowledged records are gone from the store; restore a copy that has them",
            )
        if last is not None and last.incarnation > key.incarnation:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {key} is closed, {last} has taken its place; "
                "only one process may run under a node id",
            )
        if last == key:
            self._check_ended(pipeline, key.node_id)
        if pipeline.restart is not None:
            raise Refused(RefusalCode.FENCED, self._restarted(pipeline, key).message)
        raise Refused(
            RefusalCode.UNKNOWN_NODE,
            f"pipeline {name!r}: node {key} has not joined, or has left; join again",
        )

    def _check_ended(self, pipeline: Pipeline, node_id: str) -> None:
        """Raises Refused(FENCED) if the last key of an id, which is not the newest any more, was closed
        by others than the node: it was evicted or retired, durable or not."""
        node = pipeline.home.nodes.get(node_id)
        if node is None:
            return
        name, evicted, retired = pipeline.spec.name, node.evicted, node.retired
        for _, record, _ in self._pending:
            entry = record.entry if isinstance(record, HomeEntry) else None
            if isinstance(entry, KeyClosed) and (entry.pipeline, entry.key) == (name, node.key):
                evicted, retired = evicted or entry.evicted, retired or entry.retired
        if retired:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {node.key} was retired by an operator: its key is closed for "
                "good; if it is not gone after all, join again",
            )
        if evicted:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {node.key} was evicted after a silence that the "
                "pipeline does not allow its fronts; join again",
            )

    def _restarted(self, pipeline: Pipeline, key: NodeKey) -> Refusal:
        return Refusal(
            RefusalCode.FENCED,
            f"pipeline {pipeline.spec.name!r} was restarted: generation {pipeline.generation} begins at "
            f"slot {pipeline.floor}, and node {key} has not joined it; join again, and commit anew what "
            "was published or read from that slot on",
        )

    def _fenced(self, pipeline: str, key: NodeKey) -> Refusal:
        return Refusal(
            RefusalCode.FENCED,
            f"pipeline {pipeline!r}: node {key.node_id!r} was evicted or retired, or has joined anew "
            f"as {key}",
        )

    def _attach(self, event: AttachSession, now_ns: int) -> None:
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
        node.lives(now_ns)
        self._sessions[event.session] = (event.pipeline, event.key)
        self._out.append(SessionAttached(event.session, node.accepted))
        if node.durable:
            self._out.append(TicksDurable(event.session, node.durable))
        for front in node.fronts:
            if node.granted(front) is not None:
                self._out.append(FrontGranted(event.session, pipeline.grant(node, front)))

    def _end_session(self, node: HomeNode, refusal: Refusal) -> None:
        self._out.append(SessionRefused(node.session, refusal))
        self._detach(node.session)

    def _detach(self, session: Hashable) -> None:
        attached = self._sessions.pop(session, None)
        self._durable_ticks.pop(session, None)
        if attached is None:
            return
        name, key = attached
        node = self._pipelines[name].home.nodes.get(key.node_id)
        if node is not None and node.session == session:
            node.session, node.waits = None, ()

    def _hear_alive(self, event: NodeAlive, now_ns: int) -> None:
        """A node says that it lives. Of a session that is over it says so too late, which is no harm."""
        attached = self._sessions.get(event.session)
        if attached is None:
            return
        name, key = attached
        node = self._pipelines[name].home.nodes.get(key.node_id)
        if node is not None and node.key == key:
            node.lives(now_ns)

    def _submit(self, event: SubmitTick, now_ns: int) -> None:
        attached = self._sessions.get(event.session)
        if attached is None:
            refusal = Refusal(RefusalCode.FENCED, "this stream of ticks is over; attach again")
            self._out.append(SessionRefused(event.session, refusal))
            return
        name, key = attached
        pipeline = self._pipelines[name]
        node: HomeNode | None = None
        try:
            node = self._current_node(pipeline, key)
            node.heard(now_ns)
            if event.number <= node.accepted:
                if event.number <= node.durable:
                    self._out.append(TicksDurable(event.session, node.durable))
                return
            entry = self._judge(pipeline, node, event)
        except Refused as refused:
            if node is not None and refused.refusal.code is not RefusalCode.OUT_OF_ORDER:
                node.note_refused(refused.refusal.message, event.content)
            self._out.append(TickRefused(event.session, event.number, refused.refusal))
            return
        node.note_accepted()
        self._append_home(entry)

    def _report_waits(self, event: ReportWaits, now_ns: int) -> None:
        attached = self._sessions.get(event.session)
        if attached is None:
            return  # a newer session speaks for the node, or it has left
        name, key = attached
        pipeline = self._pipelines[name]
        try:
            node = self._current_node(pipeline, key)
            check_waits(name, len(pipeline.spec.segments), event.waits)
        except Refused as refused:
            self._out.append(SessionRefused(event.session, refused.refusal))
            self._detach(event.session)
            return
        node.lives(now_ns)
        node.note_waits(event.waits, now_ns)

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
            if len(content.created) and not len(content.consumed):
                self._check_labels(pipeline, node, content.created)
            self._check_room(pipeline, content)
        late = Cells.empty()
        if len(content.consumed):
            is_late = content.consumed.below(pipeline.announced)
            if is_late is not None:
                late = content.consumed.select(is_late)
                content = replace(content, consumed=content.consumed.select(~is_late))
        pipeline.home.accept(node, content)
        return KeyTick(Tick(pipeline.spec.name, node.key, event.number, content), late)

    def _check_labels(self, pipeline: Pipeline, node: HomeNode, created: Cells) -> None:
        """Items that come of nothing are a front's: none may lie below what it was granted or has
        promised, also where another front holds min time. This is what an evicted front meets that
        goes on with what it labelled before."""
        floors: dict[int, tuple[int, str]] = {}
        for front, claim in node.fronts.items():
            granted = node.granted(front)
            if granted is not None:
                bound = (max(granted, claim.promise), front)
                floors[claim.segment] = min(bound, floors.get(claim.segment, bound))
        for segment, (floor, front) in floors.items():
            lowest = created.lowest_slots().get(segment, floor)
            if lowest < floor:
                raise Refused(
                    RefusalCode.BELOW_MIN_TIME,
                    f"pipeline {pipeline.spec.name!r}, segment {pipeline.spec.segments[segment]!r}: "
                    f"front {front!r} of node {node.key} created an item at slot {lowest}, but "
                    f"it may label from slot {floor} on: it has promised that much, or was granted "
                    "it when it joined; label the item with a later slot",
                )

    def _check_room(self, pipeline: Pipeline, content: TickContent) -> None:
        """Raises Refused where a table has no room for what comes in. A tick that consumes anything is
        how tables empty themselves: it is never refused for space (rule 4). An empty table takes a tick of
        any size, which would never be taken otherwise."""
        if len(content.consumed) or content.units_consumed:
            return
        if len(content.created):
            for shard in pipeline.combiner.views:
                self._check_room_for_cells(pipeline, shard, content.created)
        if content.units_created:
            self._check_room_for_units(pipeline, content.units_created)

    def _check_room_for_cells(self, pipeline: Pipeline, shard: int, created: Cells) -> None:
        """Creating in a cell that is open takes no room; of another shard it is not known which are. But a
        tick that creates anything at or below the lowest open cell is taken whole: readers may have filled
        the table with what they consumed ahead of its creation, and ticks of the lowest slots alone empty it
        then. All of the tick counts, wherever it is kept: else, of two full shards, each tick could be the
        lowest of one and wait for the other. So the tick of the lowest slot of all is never refused."""
        spec = pipeline.spec
        there = pipeline.combiner.open_slots(shard)
        if shard == self.shard:
            there = sum(pipeline.shard.cells.open_slots)
        if there + len(created) <= spec.max_open_cells:
            return
        if _begins_lowest(created, pipeline.combiner.views[shard].lows.values()):
            return
        created = created.select(self._tables[-1][1].owners(created.slots, spec.name) == shard)
        more = new_cells(created, pipeline.shard.cells if shard == self.shard else None)
        if there and more and there + more > spec.max_open_cells:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {spec.name!r}: shard {shard} has {there} open cells and {more} more "
                f"could pass the limit max_open_cells of {spec.max_open_cells}; find out what holds "
                f"min time back (lowmark explain), or {_RAISE_LIMIT}",
            )

    def _check_room_for_units(self, pipeline: Pipeline, units: tuple[Unit, ...]) -> None:
        spec = pipeline.spec
        for segment in {unit.segment for unit in units}:
            known = pipeline.shard.names(segment)
            more = sum(
                known.slot(name) is None
                for name in {unit.name for unit in units if unit.segment == segment}
            )
            if len(known) and more and len(known) + more > spec.max_open_units:
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {spec.name!r}, segment {spec.segments[segment]!r}: {len(known)} units "
                    f"are open and {more} more would pass the limit max_open_units of "
                    f"{spec.max_open_units}; is its reader running? If so, {_RAISE_LIMIT}",
                )

    def _stage(self, event: StageContributions) -> None:
        pipeline = self._at_home(event.pipeline, event.node_id)
        if event.node_id not in pipeline.home.newest:
            self._check_ended(pipeline, event.node_id)
        waiting = [
            record.contributions
            for _, record, _ in self._pending
            if isinstance(record, Staged)
            and (record.pipeline, record.node_id) == (event.pipeline, event.node_id)
            and record.generation == pipeline.generation
        ]
        repeated = {c.key: c for contributions in waiting for c in contributions}
        try:
            new = pipeline.home.check_staged(event.node_id, event.contributions)
        except Refused as refused:
            node = pipeline.home.nodes.get(event.node_id)
            if node is not None and refused.refusal.code is RefusalCode.FULL:
                node.refused = refused.refusal.message  # its batch fails by it, and commits no tick
            raise
        fresh = tuple(c for c in new if c.key not in repeated)
        staged = Staged(event.pipeline, event.node_id, fresh, pipeline.generation)
        self._append(staged, event.request)
