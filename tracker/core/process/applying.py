"""What a durable record changes: the same when it was just committed and in recovery."""

from __future__ import annotations

from collections.abc import Hashable

from tracker.core.home.home import HomeNode
from tracker.core.log import (
    Announced,
    Announcement,
    Answer,
    EntriesReceived,
    Entry,
    FrontGranted,
    FrontsGranted,
    HomeEntry,
    Joined,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    LimitsChanged,
    Pinned,
    PipelineCompleted,
    PipelineRegistered,
    PipelineRestarted,
    ReceivedEntries,
    Record,
    Restart,
    SessionRefused,
    ShardNumber,
    Staged,
    Swept,
    TicksDurable,
    UnitsArrived,
    WrittenOff,
)
from tracker.core.log.steps import ROUTING_ENTRIES, RoutingEntry, ShardJoining
from tracker.core.model import FrontPin, PipelineSpec, Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process.nodes import Nodes
from tracker.core.replication.parts import OutboxEntry


class Applying(Nodes):
    """What a durable record changes."""

    def _commit(self, position: int, now_ns: int) -> None:
        while self._pending and self._pending[0][0] <= position:
            self.committed, record, request = self._pending.popleft()
            while self._accepted_steps and self._accepted_steps[0][0] <= self.committed:
                self._accepted_steps.popleft()
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

    def _answer(self, record: Record, request: Hashable) -> None:
        result: Joined | ShardNumber | Refusal | None = None
        if isinstance(record, HomeEntry) and isinstance(record.entry, ShardJoining):
            result = ShardNumber(record.entry.shard)
        elif isinstance(record, HomeEntry) and isinstance(record.entry, KeyOpened):
            pipeline = self._pipelines[record.entry.pipeline]
            if record.entry.generation == pipeline.generation:
                result = self._joined(pipeline, record.entry.key)
            else:
                message = self._restarted(pipeline, record.entry.key).message
                result = Refusal(RefusalCode.NOT_READY, message)
        self._out.append(Answer(request, result))

    def _apply(self, record: Record, now_ns: int) -> None:
        """What a durable record changes; the same when it was just committed and in recovery."""
        match record:
            case HomeEntry():
                self._home_last = record.number
                part = OutboxEntry(record.number, record.entry, self._tables[-1][1])
                if self.links or self._outbox or isinstance(record.entry, ShardJoining):
                    self._outbox.append(part)
                if isinstance(record.entry, ROUTING_ENTRIES):
                    self._apply_step(record.entry, self.shard, record.number, now_ns)
                    return
                self._apply_at_home(record.number, record.entry, now_ns)
                self._apply_entry(part.part(self.shard), self.shard, now_ns)
            case ReceivedEntries():
                for place, entry in enumerate(record.entries):
                    if isinstance(entry, ROUTING_ENTRIES):
                        self._apply_step(entry, record.shard, record.first + place, now_ns)
                    else:
                        self._apply_entry(entry, record.shard, now_ns)
                self._received(record.shard, record.first + len(record.entries) - 1)
            case Announcement():
                self._say(record, now_ns)
            case Pinned():
                pipeline = self._pipelines[record.pipeline]
                if record.generation == pipeline.generation:
                    for pin in record.pins:
                        pipeline.shard.pin(pin)
            case FrontsGranted():
                pipeline = self._pipelines[record.pipeline]
                if record.generation == pipeline.generation:
                    for grant in record.grants:
                        self._take_grant(pipeline, grant)
            case Swept():
                pipeline = self._pipelines[record.pipeline]
                if record.generation != pipeline.generation:
                    return
                pipeline.shard.sweep(record.segment, record.below)
                if pipeline.sweeping.get(record.segment) == record.below:
                    del pipeline.sweeping[
                        record.segment
                    ]  # what comes late from now on, is swept too
                self._dirty[record.pipeline] = None
            case Staged():
                pipeline = self._pipelines[record.pipeline]
                if record.generation == pipeline.generation:
                    pipeline.home.stage(record.node_id, record.contributions)

    def _take_grant(self, pipeline: Pipeline, grant: FrontPin) -> None:
        """A grant is durable: its front may label, unless it has left, or is about to."""
        node = pipeline.take_grant(grant)
        if node is not None and node.session is not None and node.granted(grant.front) is not None:
            self._out.append(FrontGranted(node.session, pipeline.grant(node, grant.front)))

    def _apply_step(self, entry: RoutingEntry, home: int, number: int, now_ns: int) -> None:
        """What entry `number` of a home's log changes, if it is a step by which shards come or go."""
        raise NotImplementedError

    def _received(self, shard: int, number: int) -> None:
        """Another home's log is durable here up to an entry."""
        link = self.links.get(shard)
        if link is not None:
            link.received = number
            self._send(shard, EntriesReceived(number))
        else:
            self._confirm_last_of(shard)

    def _apply_at_home(self, number: int, entry: Entry, now_ns: int) -> None:
        """What an entry of this shard's own home log changes at the home."""
        match entry:
            case KeyOpened():
                home = self._pipelines[entry.pipeline].home
                self._next_incarnation = max(self._next_incarnation, entry.key.incarnation + 1)
                if entry.generation != self._pipelines[entry.pipeline].generation:
                    return  # appended before this process had begun the present one
                node = HomeNode(entry.key, entry.kind, owner=entry.owner)
                node.heard(now_ns)
                older = home.nodes.get(entry.key.node_id)
                if older is not None:
                    node.previous_node_time = older.durable
                    node.batches = older.batches
                    node.consumes, node.creates = older.consumes, older.creates
                    node.fronts, node.grants = older.fronts, older.grants
                    self._closed_keys.append((number, entry.pipeline, older.key))
                    if older.session is not None:
                        self._end_session(older, self._fenced(entry.pipeline, entry.key))
                home.nodes[entry.key.node_id] = node
            case KeyTick():
                self._tick_durable(entry)
            case KeyClosed():
                if entry.evicted:
                    gone = self._pipelines[entry.pipeline].home.gone(entry.key)
                    if gone is not None:
                        gone.retired = entry.retired
                        if gone.session is not None:
                            self._end_session(gone, self._fenced(entry.pipeline, entry.key))
                self._closed_keys.append((number, entry.pipeline, entry.key))
            case WrittenOff():
                home = self._pipelines[entry.pipeline].home
                known = home.nodes.get(entry.node_id)
                if known is not None and known.evicted:
                    known.retired = True
                    home.drop_staged(entry.node_id, unless=lambda _: False)
            case KeyDropped():
                _, _, dropped = self._closed_keys.popleft()
                assert dropped == entry.key, "keys are dropped in the order in which they closed"
                self._dropping = max(0, self._dropping - 1)
                home = self._pipelines[entry.pipeline].home
                node_left = home.nodes.get(entry.key.node_id)
                if node_left is not None and node_left.key == entry.key:
                    if not node_left.evicted:
                        del home.nodes[entry.key.node_id]
                    if not node_left.evicted or node_left.retired:
                        home.drop_staged(entry.key.node_id, unless=lambda _: False)

    def _tick_durable(self, entry: KeyTick) -> None:
        tick = entry.tick
        home = self._pipelines[tick.pipeline].home
        node = home.nodes.get(tick.key.node_id)
        if node is None or node.key != tick.key:
            return  # of a generation that is over
        batch = tick.content.batch
        node.commit(tick.number, batch)
        node.note_segments(tick.content, entry.late)
        for front in tick.content.leaves:
            node.grants.pop(front, None)
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
                if entry.restart is not None:
                    self._begin_generation(entry.pipeline, entry.restart, now_ns)
                pipeline = self._pipelines[entry.pipeline]
                if entry.generation == pipeline.generation:
                    pipeline.shard.open_key(entry)
                self._dirty[entry.pipeline] = None
            case PipelineRestarted():
                self._begin_generation(entry.pipeline, entry.restart, now_ns)
            case LimitsChanged():
                self._pipelines[entry.pipeline].change_limits(entry.number, entry.limits)
            case PipelineCompleted():
                segments = range(self._pipelines[entry.pipeline].graph.size)
                everything = tuple((segment, FOREVER) for segment in segments)
                self._say(
                    Announcement(entry.pipeline, everything, entry.generation, entry.at_ms), now_ns
                )
                self._tell_announced(now_ns)
                self._dirty[entry.pipeline] = None
            case KeyClosed():
                self._pipelines[entry.pipeline].shard.close_key(entry, home)
                self._dirty[entry.pipeline] = None
            case KeyDropped():
                self._pipelines[entry.pipeline].shard.drop_key(entry)
                self._dirty[entry.pipeline] = None
            case WrittenOff():
                pipeline = self._pipelines[entry.pipeline]
                if entry.generation == pipeline.generation:
                    pipeline.shard.write_off(entry, home)
                self._dirty[entry.pipeline] = None
            case PipelineRegistered():
                self._begin_pipeline(entry.spec, now_ns)

    def _begin_pipeline(self, spec: PipelineSpec, now_ns: int) -> None:
        self._registering.pop(spec.name, None)
        if spec.name in self._pipelines:
            return
        pipeline = Pipeline(spec, self._vectors, self.shard)
        self._add_pipeline(pipeline)
        pipeline.moved_ns = [now_ns] * len(spec.segments)
        self._dirty[spec.name] = None
        for shard, link in self.links.items():
            link.needs_whole = True  # what they have said of it so far was passed over
            link.wanted_ns = None
            self._want_report(shard, now_ns)

    def _begin_generation(self, name: str, restart: Restart, now_ns: int) -> None:
        """A pipeline begins anew at this process, at the first entry that is of a newer generation.
        Whatever is of an older one, and comes or becomes durable later, is passed over."""
        pipeline = self._pipelines[name]
        if restart.generation <= pipeline.generation:
            return
        attached = [node for node in pipeline.home.nodes.values() if node.session is not None]
        pipeline.begin_generation(restart)
        for node in attached:
            self._out.append(SessionRefused(node.session, self._restarted(pipeline, node.key)))
            self._detach(node.session)
        pipeline.moved_ns = [now_ns] * len(pipeline.said)
        self._holding.pop(name, None)
        self._dirty[name] = None
        for shard, link in self.links.items():
            link.needs_whole = True  # what they have said of the new one so far was passed over
            link.wanted_ns = None
            self._want_report(shard, now_ns)

    def _say(self, record: Announcement, now_ns: int) -> None:
        pipeline = self._pipelines[record.pipeline]
        if record.generation != pipeline.generation:
            return
        before = pipeline.min_time
        told = tuple((s, slot) for s, slot in record.min_times if slot > pipeline.said[s])
        for segment, slot in record.min_times:
            pipeline.announced[segment] = max(slot, pipeline.announced[segment])
            pipeline.reached[segment] = max(slot, pipeline.reached[segment])
            pipeline.unsaid.discard(segment)
            if slot > pipeline.said[segment]:
                pipeline.history[segment].note(slot, record.at_ms)
            pipeline.said[segment] = max(slot, pipeline.said[segment])
            pipeline.moved_ns[segment] = now_ns
            pipeline.shard.names(segment).forget_below(slot)
            pipeline.shard.written_off.forget_below(segment, slot)
            pipeline.unreported[segment] = slot
        if told or pipeline.min_time > before:
            self._out.append(Announced(record.pipeline, told, pipeline.min_time))
