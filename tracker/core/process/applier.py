"""What a durable record changes: the same when it was just committed and in recovery."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.home.home import HomeNode
from tracker.core.log import (
    Announcement,
    Answer,
    Effect,
    Entry,
    FrontGranted,
    FrontsGranted,
    GroupKnown,
    HomeEntry,
    Joined,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    PartKept,
    Pinned,
    PipelineChanged,
    PipelineCompleted,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    PipelinesOver,
    Placed,
    ReceivedEntries,
    Record,
    Staged,
    Swept,
    TickRun,
    UnitsArrived,
    WrittenOff,
    numbered,
    pipeline_of,
)
from tracker.core.log.journal import Journal
from tracker.core.log.steps import MembershipStep
from tracker.core.membership.shards import Shards
from tracker.core.model import FrontPin, Refusal, RefusalCode
from tracker.core.model.slots import FOREVER
from tracker.core.moving.directory import Directory
from tracker.core.moving.moves import Moves
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.process.progress import Progress
from tracker.core.replication.parts import OutboxEntry
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter
from tracker.core.rescaling.rescaling import Rescaling


@dataclass(slots=True, eq=False)
class LogApplier:
    """Applies records, in order, to the components that they concern. It keeps nothing."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _replication: Replication
    _reporter: Reporter
    _nodes: Nodes
    _sessions: Sessions
    _generations: Generations
    _progress: Progress
    _rescaling: Rescaling
    _moves: Moves
    _directory: Directory
    _effects: list[Effect]

    def commit(self, position: int, now_ns: int) -> None:
        """Records up to this position are durable, and take effect."""
        ticks: list[OutboxEntry] = []
        for record, request in self._journal.commit(position):
            self._shards.settle_steps(self._journal.committed)
            own = self._plain_tick(record)
            if own is not None:
                ticks.append(own)
            else:
                self._apply_ticks(ticks)
                self.apply(record, now_ns)
            if request is not None:
                self._apply_ticks(ticks)
                self._answer(record, request)
        self._apply_ticks(ticks)
        self._sessions.report_durable_ticks()
        self._replication.confirm_received()
        self._progress.committed(now_ns)
        self._reporter.committed(now_ns)

    def _plain_tick(self, record: Record) -> OutboxEntry | None:
        """A record as an entry of this shard's own log, where that is a tick that a run may have."""
        if not isinstance(record, HomeEntry) or not isinstance(record.entry, KeyTick):
            return None
        entry = OutboxEntry(record.number, record.entry, self._replication.tables[-1][1])
        return entry if entry.is_plain else None

    def _apply_ticks(self, ticks: list[OutboxEntry]) -> None:
        """Ticks of this shard's own log that follow one another take effect, as a run of them does elsewhere; the
        list is empty then."""
        if not ticks:
            return
        for tick in ticks:
            assert isinstance(tick.entry, KeyTick)
            self._tick_durable(tick.entry)
            self._replication.record(tick)
        own = self._shards.own
        self._journal.apply_home(ticks[-1].number)
        self._apply_run(self._replication.run_of(ticks).told(own), own)
        ticks.clear()

    def _answer(self, record: Record, request: Hashable) -> None:
        result: Joined | Refusal | None = None
        if isinstance(record, HomeEntry) and isinstance(record.entry, KeyOpened):
            pipeline = self._pipelines.get(record.entry.pipeline)
            if pipeline is None:
                message = f"pipeline {record.entry.pipeline!r} was deleted meanwhile"
                result = Refusal(RefusalCode.UNKNOWN_PIPELINE, message)
            elif record.entry.generation == pipeline.generation:
                result = self._nodes.joined(pipeline, record.entry.key)
            else:
                message = self._nodes.restarted(pipeline, record.entry.key).message
                result = Refusal(RefusalCode.NOT_READY, message)
        self._effects.append(Answer(request, result))

    def apply(self, record: Record, now_ns: int) -> None:
        """What a durable record changes; the same when it was just committed and in recovery."""
        match record:
            case HomeEntry():
                self._apply_own(record.number, record.entry, now_ns)
            case ReceivedEntries():
                for number, entry in numbered(record.first, record.entries):
                    if self._shards.membership.passes_over(entry, record.shard, number):
                        continue
                    if isinstance(entry, MembershipStep):
                        self._rescaling.apply_step(entry, record.shard, number, now_ns)
                    elif isinstance(entry, TickRun):
                        self._apply_run(entry, record.shard)
                    else:
                        self._apply_entry(entry, record.shard, now_ns)
                self._received(record.shard, record.last)
            case Announcement():
                self._reporter.publish(record, now_ns)
            case PartKept():
                self._moves.take_piece(record)
            case _:
                pipeline = self._pipelines.get(record.pipeline)
                if pipeline is not None and record.generation == pipeline.generation:
                    self._apply_beside(record, pipeline)

    def _apply_beside(
        self, record: Pinned | FrontsGranted | Swept | Staged, pipeline: Pipeline
    ) -> None:
        """What this shard has logged of a pipeline, in its present generation, beside the entries of homes."""
        match record:
            case Pinned():
                for pin in record.pins:
                    pipeline.shard.pin(pin)
            case FrontsGranted():
                for grant in record.grants:
                    self._take_grant(pipeline, grant)
            case Swept():
                pipeline.shard.sweep(record.segment, record.below)
                if pipeline.sweeping.get(record.segment) == record.below:
                    # What comes late from now on is swept, too.
                    del pipeline.sweeping[record.segment]
                self._pipelines.mark(record.pipeline)
            case Staged():
                pipeline.home.stage(record.node_id, record.contributions)

    def _apply_own(self, number: int, entry: Entry, now_ns: int) -> None:
        """An entry of this shard's own home log takes effect."""
        self._journal.apply_home(number)
        own = self._shards.own
        if isinstance(entry, KeyTick):
            self._tick_durable(entry)
            if self._replication.is_alone:
                self._apply_entry(entry, own, now_ns)
                return
        part = OutboxEntry(number, entry, self._replication.tables[-1][1])
        self._replication.record(part)
        if isinstance(entry, MembershipStep):
            self._rescaling.apply_step(entry, own, number, now_ns)
            return
        if not isinstance(entry, KeyTick):
            self._apply_at_home(number, entry, now_ns)
        self._apply_entry(part.part(own), own, now_ns)

    def _take_grant(self, pipeline: Pipeline, grant: FrontPin) -> None:
        """A grant is durable: its front may label, unless it has left, or is about to."""
        node = pipeline.take_grant(grant)
        if node is not None and node.session is not None and node.granted(grant.front) is not None:
            self._effects.append(FrontGranted(node.session, pipeline.grant(node, grant.front)))

    def _received(self, shard: int, number: int) -> None:
        """Another home's log is durable here up to an entry: it is told so when all of the commit is applied."""
        link = self._replication.links.get(shard)
        if link is not None:
            link.received = number
        else:
            self._replication.confirm_last_of(shard)

    def _apply_at_home(self, number: int, entry: Entry, now_ns: int) -> None:
        """What an entry of this shard's own home log, which is no tick, changes at the home. Keys end also of a pipeline
        that was deleted."""
        if isinstance(entry, KeyOpened):
            self._nodes.reserve(entry.key.incarnation + 1)
        elif isinstance(entry, KeyClosed):
            self._nodes.closed(number, entry.pipeline, entry.key)
        elif isinstance(entry, KeyDropped):
            self._nodes.dropped(entry.key)
        pipeline = self._pipelines.get(pipeline_of(entry) or "")
        if pipeline is None:
            return
        home = pipeline.home
        match entry:
            case KeyOpened():
                if entry.generation != pipeline.generation:
                    return  # appended before this process had begun the present one
                node = HomeNode(entry.key, entry.kind, owner=entry.owner)
                node.heard(now_ns)
                older = home.nodes.get(entry.key.node_id)
                if older is not None:
                    node.previous_node_time = older.durable
                    node.batches = older.batches
                    node.consumes, node.creates = older.consumes, older.creates
                    node.fronts, node.grants = older.fronts, older.grants
                    node.holds, node.held = older.holds, older.held
                    self._nodes.closed(number, entry.pipeline, older.key)
                    if older.session is not None:
                        self._sessions.end(older, self._nodes.fenced(entry.pipeline, entry.key))
                home.take(node)
            case KeyClosed():
                if entry.evicted:
                    gone = home.gone(entry.key, pipeline.counts)
                    if gone is not None:
                        gone.retired = entry.retired
                        if gone.session is not None:
                            self._sessions.end(gone, self._nodes.fenced(entry.pipeline, entry.key))
            case WrittenOff():
                known = home.nodes.get(entry.node_id)
                if known is not None and known.evicted:
                    known.retired = True
                    known.holds_given_up = True
                    home.drop_staged(entry.node_id, unless=lambda _: False)
            case KeyDropped():
                node_left = home.nodes.get(entry.key.node_id)
                if node_left is not None and node_left.key == entry.key:
                    if not node_left.evicted:
                        home.let_go(entry.key.node_id)
                    if not node_left.evicted or node_left.retired:
                        home.drop_staged(entry.key.node_id, unless=lambda _: False)

    def _tick_durable(self, entry: KeyTick) -> None:
        tick = entry.tick
        pipeline = self._pipelines.get(tick.pipeline)
        if pipeline is None:
            return  # it was deleted
        home = pipeline.home
        node = home.nodes.get(tick.key.node_id)
        if node is None or (node.key is not tick.key and node.key != tick.key):
            return  # of a generation that is over
        batch = tick.content.batch
        node.commit(tick.number, batch, tick.content.holds)
        node.record_segments(tick.content, entry.late)
        for front in tick.content.leaves:
            node.grants.pop(front, None)
        if batch is not None:
            scope, newest = batch.scope, batch.id
            home.drop_staged(
                tick.key.node_id, unless=lambda c: c.query != scope or c.batch > newest
            )
        if node.session is not None:
            self._sessions.tick_durable(node.session, tick.number)

    def _apply_tick(self, entry: KeyTick, home: int) -> None:
        pipeline = self._pipelines.get(entry.tick.pipeline)
        if pipeline is None:
            return  # it was deleted
        for segment in pipeline.apply_tick(entry, home):
            self._effects.append(UnitsArrived(entry.tick.pipeline, segment))

    def _apply_run(self, run: TickRun, home: int) -> None:
        """What a run of ticks of a home's log changes: cells and names first, so that no promise and no
        number of a tick counts before them."""
        known = self._pipelines
        by_shard = [(known[c.pipeline].shard, c) for c in run.columns if c.pipeline in known]
        if all(shard.takes_at_once(run, columns) for shard, columns in by_shard):
            for shard, columns in by_shard:
                shard.apply_at_once(columns, home)
            parts: Iterable[tuple[int, KeyTick]] = run.parts
        else:
            parts = run.ticks()
        for _, part in parts:
            self._apply_tick(part, home)
        for progress in run.keys:
            if progress.pipeline in known:
                known[progress.pipeline].shard.advance(progress)
        self._pipelines.mark(*run.pipelines)

    def _apply_entry(self, entry: Entry, home: int, now_ns: int) -> None:
        """What an entry of any home log, with this shard's parts, changes at the shard. One of a pipeline that was
        deleted changes nothing."""
        name = pipeline_of(entry)
        if name is not None and name not in self._pipelines:
            return
        match entry:
            case KeyTick():
                self._apply_tick(entry, home)
                self._pipelines.mark(entry.tick.pipeline)
            case KeyOpened():
                if entry.restart is not None:
                    self._generations.begin_generation(entry.pipeline, entry.restart, now_ns)
                pipeline = self._pipelines[entry.pipeline]
                if entry.generation == pipeline.generation:
                    pipeline.shard.open_key(entry)
                self._pipelines.mark(entry.pipeline)
            case PipelineRestarted():
                self._generations.begin_generation(entry.pipeline, entry.restart, now_ns)
            case PipelineChanged():
                self._generations.change_pipeline(entry, home, now_ns)
            case PipelineCompleted():
                segments = range(self._pipelines[entry.pipeline].graph.size)
                everything = tuple((segment, FOREVER) for segment in segments)
                self._reporter.publish(
                    Announcement(entry.pipeline, everything, entry.generation, entry.at_ms), now_ns
                )
                self._pipelines.mark(entry.pipeline)
            case KeyClosed():
                self._pipelines[entry.pipeline].shard.close_key(entry, home)
                self._pipelines.mark(entry.pipeline)
            case KeyDropped():
                self._pipelines[entry.pipeline].shard.drop_key(entry)
                self._pipelines.mark(entry.pipeline)
            case WrittenOff():
                pipeline = self._pipelines[entry.pipeline]
                if entry.generation == pipeline.generation:
                    pipeline.shard.write_off(entry, home)
                self._pipelines.mark(entry.pipeline)
            case PipelineRegistered():
                self._generations.begin_pipeline(entry, now_ns)
            case PipelineDeleted():
                self._generations.end_pipeline(entry.pipeline, entry.restart, entry.next_shard)
            case Placed() | GroupKnown():
                self._directory.apply(entry)
            case PipelinesOver():
                for pipeline_name, generation in entry.pipelines:
                    self._pipelines.over(pipeline_name, generation, home)
