"""A tracker process: home to some nodes, owner of some slots, announcer of min times (rules 1 to 10).

`handle(event, now_ns)` takes what happened and returns what to do. Whatever must survive goes through
the log: it is appended, and takes effect when the shell says that it is durable, or when recovery
replays it; both run `LogApplier.apply`. Nothing is sent to a node, another shard or a subscriber before
what it rests on is durable. Announcements never go back over a restart: they are durable, too, or sure to be
found again by recovery.

The process holds the components, in the order in which they build on one another, and none of the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tracker.core.admission.confirmations import Confirmations
from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.registrar import Registrar
from tracker.core.admission.sessions import Sessions
from tracker.core.admission.silence import Silence
from tracker.core.admission.ticks import TickJudge
from tracker.core.config import ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.insight.queries import Queries
from tracker.core.log import (
    Answer,
    AttachSession,
    Committed,
    DeclareLost,
    DeletePipeline,
    DetachSession,
    Effect,
    EndMove,
    Event,
    FinishUpgrade,
    Frame,
    FrameArrived,
    JoinNode,
    JoinShard,
    KeepPart,
    KnowGroup,
    LeaveNode,
    MovePipeline,
    NodeAlive,
    PeerConnected,
    PeerDisconnected,
    PlacePipeline,
    Record,
    RegisterPipeline,
    ReportWaits,
    RescaleShards,
    RestartPipeline,
    RetireNode,
    ShardReport,
    StageContributions,
    SubmitTick,
    SubmitTicks,
    Wake,
)
from tracker.core.log.journal import Journal
from tracker.core.membership.membership import Membership
from tracker.core.membership.shards import Shards
from tracker.core.model import Refused
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.placements import Group, Placement
from tracker.core.model.routing import RoutingTable
from tracker.core.moving.directory import Directory
from tracker.core.moving.moves import Moves
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.core.process.applier import LogApplier
from tracker.core.process.checking import FrameCheck
from tracker.core.process.progress import Progress
from tracker.core.process.receiver import Receiver
from tracker.core.process.recovery import Recovery
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.core.process.timers import Timers
from tracker.core.replication.links import Link
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter
from tracker.core.rescaling.hand_over import HandOver
from tracker.core.rescaling.losing import Losing
from tracker.core.rescaling.rescaling import Rescaling


class Process(Queries):
    """The state machine of one shard's process. Times are nanoseconds of a monotonic clock."""

    def __init__(
        self,
        shard: int,
        routing: RoutingTable,
        epoch: int,
        config: ProcessConfig | None = None,
        speaks: int = NEWEST_LEVEL,
    ) -> None:
        """`routing`: the table that the tracker began with; a log that knows of a later one goes by
        that. A shard that has come later finds it in its first snapshot. speaks: the highest feature level of the process's
        release, by which it begins where its log is empty."""
        self.config = config = config or ProcessConfig()
        self._effects = effects = list[Effect]()
        """What the event that is being handled asks for."""
        journal = Journal(effects)
        shards = Shards(shard, speaks, Membership.first(routing, speaks))
        pipelines = Pipelines(shard)
        cut = StableCut(routing.owning)
        replication = Replication(journal, shards, cut, config, effects, routing, epoch)
        homes = Homes(shards, pipelines, cut, replication)
        super().__init__(journal, shards, pipelines, cut, replication, homes)
        reporter = Reporter(journal, shards, pipelines, cut, replication, homes, config, effects)
        confirmations = Confirmations(journal, pipelines, replication, homes, effects)
        nodes = Nodes(journal, shards, pipelines, homes, confirmations, config, effects)
        ticks = TickJudge(shards, replication)
        sessions = Sessions(journal, pipelines, homes, nodes, ticks, effects)
        self._silence = silence = Silence(journal, shards, pipelines, homes, nodes, config)
        generations = Generations(
            journal, shards, pipelines, cut, reporter, nodes, confirmations, sessions, silence,
            effects,
        )  # fmt: skip
        hand_over = HandOver(
            journal, shards, pipelines, reporter, nodes, generations, config, effects
        )
        directory = Directory(journal, pipelines, homes, confirmations)
        losing = Losing(
            journal, shards, pipelines, cut, replication, reporter, nodes, sessions, generations,
            directory, config, effects,
        )  # fmt: skip
        moves = Moves(
            journal, shards, pipelines, cut, replication, reporter, nodes, sessions, generations,
            config, effects,
        )  # fmt: skip
        rescaling = Rescaling(
            journal, shards, pipelines, cut, replication, reporter, homes, confirmations, nodes,
            sessions, hand_over, losing, moves, directory, config, effects,
        )  # fmt: skip
        progress = Progress(replication, nodes)
        applier = LogApplier(
            journal, shards, pipelines, replication, reporter, nodes, sessions, generations,
            progress, rescaling, moves, directory, effects,
        )  # fmt: skip
        self._reporter, self._confirmations, self._nodes = reporter, confirmations, nodes
        self._sessions, self._rescaling, self._progress = sessions, rescaling, progress
        self._hand_over, self._applier = hand_over, applier
        self._moves, self._directory = moves, directory
        self._generations = generations
        self._registrar = Registrar(
            journal, shards, pipelines, homes, confirmations, config, effects
        )
        self._receiver = Receiver(journal, shards, pipelines, replication, reporter, progress)
        self._timers = Timers(pipelines, replication, reporter, silence, config, effects)
        self._frame_check = FrameCheck(shards, pipelines, replication)
        self._recovery = Recovery(
            journal, shards, pipelines, cut, replication, confirmations, nodes, sessions,
            rescaling, generations, moves, directory, applier, effects,
        )  # fmt: skip

    # --- what the shell goes by -------------------------------------------------------------------

    @property
    def shard(self) -> int:
        return self._shards.own

    @property
    def epoch(self) -> int:
        return self._replication.epoch

    @property
    def position(self) -> int:
        """Position of the last record appended."""
        return self._journal.position

    @property
    def committed(self) -> int:
        """Position of the last record that is durable and has taken effect."""
        return self._journal.committed

    @property
    def links(self) -> dict[int, Link]:
        return self._replication.links

    @property
    def membership(self) -> Membership:
        return self._shards.membership

    @property
    def routing(self) -> RoutingTable:
        """The newest table that this process has heard of."""
        return self._shards.routing

    @property
    def loss_waits_for(self) -> list[int]:
        """The shards that have not logged what they know, while others are being declared lost."""
        known = self._shards.membership
        loss = known.loss
        return [] if loss is None else sorted(known.members - {*loss.lost} - loss.heard.keys())

    @property
    def counts(self) -> bool:
        """Whether this shard has joined, and has not left."""
        return self._shards.counts

    def part(self, pipeline: str, version: int) -> tuple[PipelineSnapshot, int]:
        """This shard's part of a pipeline that goes to another group by this placement, and the incarnations that its home has given
        are below. Raises Refused while it is not at rest here."""
        return self._moves.part(pipeline, version)

    def need_at_rest(self, pipeline: str, version: int) -> None:
        """Raises Refused where `part` would."""
        self._moves.need_at_rest(pipeline, version)

    def placement(self, pipeline: str) -> Placement | None:
        """The directory: where a name belongs, as every shard has heard; None where it is free. Raises Refused where another shard
        decides on that, or not all have heard it."""
        return self._directory.placement(pipeline)

    @property
    def placements(self) -> Mapping[str, Placement]:
        """The directory: by name where it belongs, durably. None of those that have never moved out of the directory's group."""
        return self._directory.placements

    @property
    def groups(self) -> Mapping[int, Group]:
        """The directory: the groups that there are, by number."""
        return self._directory.groups

    @property
    def moved_cells(self) -> int:
        """Open cells that this process has handed over since it was started."""
        return self._hand_over.moved_cells

    @property
    def speaks(self) -> int:
        """The highest feature level that this process speaks."""
        return self._shards.speaks

    @property
    def takes_up_nodes(self) -> bool:
        """Whether nodes that are at home here may be taken up: not while some shard still goes by the
        table before."""
        return self._homes.takes_up_nodes

    @property
    def congested(self) -> bool:
        """Whether so much is unconfirmed by other shards that no more ticks should be submitted."""
        return self._replication.is_congested

    @property
    def is_behind(self) -> bool:
        """Whether so much is not durable yet that no more frames should be submitted."""
        config, waiting = self.config, self.position - self.committed
        is_large = self.backlog_bytes >= config.max_backlog_bytes
        return waiting >= config.max_backlog_records or is_large

    @property
    def backlog_bytes(self) -> int:
        """About how much all takes that is not durable yet."""
        return self._journal.pending_bytes

    @property
    def takes_ticks(self) -> bool:
        """Whether more ticks may be submitted."""
        return not self.is_behind and not self.congested

    def unknown_homes(self, report: ShardReport) -> list[int]:
        """The shards that a report names and that have not joined, as far as this process has heard."""
        return self._reporter.unknown_homes(report)

    def check_frame(self, frame: Frame) -> None:
        """Raises Refused(INVALID), naming the first thing that points nowhere, if a frame that the process
        would take cannot be taken whole."""
        self._frame_check.check(frame)

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int, unix_ms: int = 0) -> list[Effect]:
        """Takes one event; returns its effects in the order in which to carry them out. unix_ms: the
        wall clock, which is written down beside announcements and decides nothing."""
        self._effects.clear()
        self._journal.unix_ms = unix_ms
        if self._pipelines.evicting:
            self._silence.listen(now_ns, self.takes_ticks)
        match event:
            case SubmitTicks():
                self._sessions.submit(event.ticks, now_ns)
            case SubmitTick():
                self._sessions.submit((event,), now_ns)
            case ReportWaits():
                self._sessions.report_waits(event, now_ns)
            case Committed():
                self._applier.commit(event.position, now_ns)
            case FrameArrived():
                self._receiver.take_frame(event.frame, now_ns)
            case Wake():
                self._timers.wake(now_ns)
            case AttachSession():
                self._sessions.attach(event, now_ns)
            case NodeAlive():
                self._sessions.hear_alive(event, now_ns)
            case DetachSession():
                self._sessions.detach(event.session)
            case PeerConnected():
                self._receiver.connect(event.shard, now_ns)
            case PeerDisconnected():
                if event.shard in self.links:
                    self.links[event.shard].connected = False
            case (
                JoinShard()
                | RescaleShards()
                | FinishUpgrade()
                | DeclareLost()
                | MovePipeline()
                | EndMove()
                | KnowGroup()
            ):
                self._rescaling.request(event)
            case (
                RegisterPipeline()
                | JoinNode()
                | LeaveNode()
                | RetireNode()
                | RestartPipeline()
                | DeletePipeline()
                | StageContributions()
                | PlacePipeline()
                | KeepPart()
            ):
                self._request(event)
        if self._shards.changing:
            self._rescaling.go_on(now_ns)
        if self._shards.membership.moving:
            self._moves.go_on()
        if self._pipelines.unfinished:
            self._generations.say_over()
        due_ns = self._reporter.refresh_if_due(now_ns)
        if self._pipelines.unactivated:
            self._generations.activate_changes()
        self._confirmations.tell()
        self._timers.schedule(now_ns, due_ns)
        return [*self._effects]

    def _request(
        self,
        event: RegisterPipeline
        | JoinNode
        | LeaveNode
        | RetireNode
        | RestartPipeline
        | DeletePipeline
        | StageContributions
        | PlacePipeline
        | KeepPart,
    ) -> None:
        try:
            match event:
                case RegisterPipeline():
                    self._registrar.register(*self._directory.registering(event))
                case RestartPipeline():
                    self._registrar.restart(event)
                case DeletePipeline():
                    self._registrar.delete(event)
                case JoinNode():
                    self._nodes.join(event)
                case LeaveNode():
                    self._nodes.leave(event)
                case RetireNode():
                    self._nodes.retire(event)
                case StageContributions():
                    self._nodes.stage(event)
                case PlacePipeline():
                    self._directory.place(event)
                case KeepPart():
                    self._moves.keep(event)
        except Refused as refused:
            self._effects.append(Answer(event.request, refused.refusal))

    # --- snapshots and recovery -------------------------------------------------------------------

    def snapshot(self) -> ProcessSnapshot:
        """Everything durable, as of the record at `committed`."""
        return self._recovery.snapshot()

    def bootstrap_snapshot(self, shard: int) -> ProcessSnapshot:
        """What a shard that is joining begins with: all that this one knows of everyone, and nothing
        that is this one's own. Raises Refused while some home may let go of what comes after it."""
        return self._recovery.bootstrap_snapshot(shard)

    def recover(
        self,
        snapshot: ProcessSnapshot | None,
        records: Iterable[tuple[int, Record]],
        now_ns: int,
        level: int = 0,
    ) -> list[Effect]:
        """Becomes what the log says: a snapshot, then the records after it, by position. To be
        called once, before any event. Nothing is announced that was not announced before until the
        other shards have been heard; where there are none, what may have been said without a record is found
        again here, before anything is judged. level: the feature level that the store states; 0 where it is
        new, or a snapshot states it. Raises LogLost where a record is missing."""
        self._recovery.recover(snapshot, records, now_ns, level)
        self._resume(now_ns)
        return [*self._effects]

    def _resume(self, now_ns: int) -> None:
        """Does what is due, now that all is there again: what was told without a record first, before anything is appended."""
        if self._shards.membership.former or self._shards.membership.lost:
            # A process may wait to hear that its last entry is here; and who asks, until all have heard how all go on.
            self._reporter.record_step()
        self._reporter.refresh_if_due(now_ns)
        if self._shards.membership.moving:
            self._moves.go_on()
        if self._pipelines.unfinished:
            self._generations.say_over()
        self._progress.committed(now_ns)
        if self._pipelines.unactivated:
            self._generations.activate_changes()
        self._timers.schedule(now_ns, self._reporter.refresh_due())

    # --- invariants -------------------------------------------------------------------------------

    def _owns_what_it_has(self) -> bool:
        known = self._shards.membership
        version = known.table.version
        return not known.table_is_older and (
            not version or self._shards.own in known.done.get(version, ())
        )

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the protocol does not hold."""
        self._journal.validate()
        self._replication.validate()
        self._shards.membership.validate()
        assert self._shards.membership.level <= self._shards.speaks, (
            "it records what it cannot read"
        )
        self._cut.vectors.validate()
        assert self._shards.membership.members | {self._shards.own} == {*self._cut.vectors.shards}
        self._pipelines.validate()
        for name, pipeline in self._pipelines.items():
            assert pipeline.combiner.views.keys() == {*self._cut.vectors.shards}, name
            pipeline.shard.validate()
            pipeline.combiner.validate()
            before = pipeline.spec.start_slot
            assert min(pipeline.published) >= before, f"{name}: {pipeline.published} is published"
            for segment, slot in pipeline.told.items():
                assert pipeline.durable[segment] <= slot <= pipeline.announced[segment], name
            for segment, reached in enumerate(pipeline.durable):
                assert pipeline.floor <= reached <= pipeline.announced[segment], name
                assert reached == pipeline.floor or reached <= pipeline.published[segment], name
            table = pipeline.shard.cells
            is_owned = pipeline.held is None and self._owns_what_it_has()
            if self._replication.links and any(table.open_slots) and is_owned:
                owner = self._shards.routing.owner
                for slot in table.open_slot_numbers():
                    assert owner(slot, name) == self._shards.own, (
                        f"{name}: {slot} is another shard's"
                    )
            for node in pipeline.home.nodes.values():
                durable = node.durable
                assert durable <= node.accepted
                at_shard = pipeline.shard.keys.get(node.key)
                assert at_shard is None or at_shard.number == durable, (
                    f"{name}: {node.key} is applied out of step"
                )
                for grant in node.grants.values():
                    held = pipeline.shard.fronts.get((grant.node_id, grant.front))
                    joined = held and (held.incarnation, held.number)
                    assert joined == (grant.incarnation, grant.number), (
                        f"{name}: {grant} is of {joined}"
                    )
