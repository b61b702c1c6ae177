"""A pipeline goes to another group, or comes from one (rule 13; docs/groups.md).

The sequencer of each of both groups decides, by entries that every shard applies. In the group that the pipeline leaves,
its homes take nothing more of it, and each says so by its last entry of it. A shard that has applied all of these is
at rest: nothing of the pipeline changes there any more, and its part can be asked for. In the other group every shard keeps a
part, and says when it has all of it. In between, the directory decides where the pipeline is; both groups follow its word,
and neither goes by anything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.config import ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.log import (
    Answer,
    Effect,
    EndMove,
    HomeEntry,
    KeepPart,
    MovePipeline,
    PartKept,
    ReceivedEntries,
    Record,
    Restart,
    pipeline_of,
)
from tracker.core.log.journal import Journal
from tracker.core.log.losses import LossStep, Move, ShardLost, base_of
from tracker.core.log.steps import MembershipStep, MoveBegun, MoveEnded, MoveReady
from tracker.core.membership.shards import Shards
from tracker.core.model import Held, RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.levels import MOVES
from tracker.core.model.placements import MAX_GROUPS
from tracker.core.model.slots import FOREVER
from tracker.core.moving.parts import MAX_PIECES, of_pieces
from tracker.core.pipeline.homes import held
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines, moving
from tracker.core.pipeline.snapshot import PipelineSnapshot, restore_pipeline, snapshot_pipeline
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter


@dataclass(slots=True)
class Coming:
    """The part of a pipeline that comes, as far as this shard keeps it: its pieces, by number."""

    pipeline: str
    version: int
    pieces: int
    kept: dict[int, d.Snapshot] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return len(self.kept) == self.pieces


def _keep(coming: dict[str, Coming], kept: PartKept) -> None:
    known = coming.get(kept.pipeline)
    if known is None or known.version != kept.version:
        known = coming[kept.pipeline] = Coming(kept.pipeline, kept.version, kept.pieces)
    known.kept[kept.number] = kept.part


_COMING = d.each(
    PartKept,
    lambda coming: (
        PartKept(each.pipeline, each.version, number, each.pieces, piece)
        for each in coming.values()
        for number, piece in each.kept.items()
    ),
    _keep,
)


@dataclass(eq=False)
class Moves:
    """What this shard does of moves. Which are under way, the membership says."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _reporter: Reporter
    _nodes: Nodes
    _sessions: Sessions
    _generations: Generations
    _config: ProcessConfig
    _effects: list[Effect]
    coming: dict[str, Coming] = d.survives({"coming": _COMING}, dict, own=True, init=False)

    def __post_init__(self) -> None:
        self.coming = {}

    # --- what is asked of the sequencer -----------------------------------------------------------

    def move(self, event: MovePipeline) -> MoveBegun | None:
        """The step by which a move begins, or None where it is under way already; raises Refused, changing nothing."""
        name, known = event.pipeline, self._shards.expected()
        under_way = known.moving.get(name)
        if under_way is not None:
            self._check_same(event, under_way)
            return None
        if known.level < (needed := max(MOVES, event.level)):
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} cannot {'come' if event.arrives else 'move'}: all record by feature level {known.level} here, and "
                f"this needs level {needed}; finish the upgrade of this group first (lowmark shards --finish-upgrade)",
            )
        if not 0 <= event.group < MAX_GROUPS or event.version < 0:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r} is to move by placement {event.version}, of group {event.group}; groups are 0 to "
                f"{MAX_GROUPS - 1}",
            )
        if not known.table_is_settled:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} has to wait: the shards are changing; ask again",
            )
        if known.joining:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} has to wait: shards {sorted(known.joining)} are joining; ask again",
            )
        if event.arrives:
            self._check_room(event)
        else:
            self._check_goes(event)
        number = known.moved + 1
        return MoveBegun(
            number, name, event.version, event.group, event.arrives, event.next_incarnation
        )

    @staticmethod
    def _check_same(event: MovePipeline, known: Move) -> None:
        asked = event.version, event.group, event.arrives
        if asked != (known.version, known.group, known.arrives):
            way = "comes from" if known.arrives else "goes to"
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {event.pipeline!r} {way} group {known.group} by placement {known.version}; ask again when that is over",
            )
        if known.arrives:
            _check_whole(known)

    def _check_goes(self, event: MovePipeline) -> None:
        pipeline = self._pipelines.named(event.pipeline)
        if pipeline.placed != event.version:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r} is here by placement {pipeline.placed}, not by {event.version}; look again where it is",
            )
        if pipeline.held is not None:
            raise Refused.of(held(event.pipeline, pipeline.held))

    def _check_room(self, event: MovePipeline) -> None:
        name, known = event.pipeline, self._pipelines
        there = known.get(name)
        if there is not None or name in known.registering:
            placed = 0 if there is None else there.placed
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} is here, by placement {placed}; one of this name cannot come by placement {event.version}",
            )
        ended = known.ended.get(name)
        if ended is not None and not ended.moved and event.generation < ended.generation:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} cannot come in generation {event.generation}: one of this name was deleted here by generation "
                f"{ended.generation}, and that one does not come back",
            )
        if not known.may_begin(name, self._shards.membership.with_newcomers):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} was here before, and not every shard has let go of that one; ask again",
            )
        others = known.there(self._shards.expected().moving.values())
        if others >= self._config.max_pipelines:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {name!r} cannot come: {others} pipelines are registered, or about to come; the limit max_pipelines is "
                f"{self._config.max_pipelines}",
            )
        if known.segments + event.segments > self._config.max_segments:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {name!r} cannot come: {known.segments} segments are registered and {event.segments} more would pass the "
                f"limit max_segments of {self._config.max_segments}",
            )

    def end(self, event: EndMove) -> MoveEnded | None:
        """The step by which a move ends, or None where it has; raises Refused, changing nothing."""
        name = event.pipeline
        known = self._shards.expected().moving.get(name)
        if known is None:
            there = self._pipelines.get(name)
            if event.here and (there is None or there.placed != event.version):
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"pipeline {name!r} does not move, and is not here by placement {event.version}",
                )
            return None
        if event.number != known.number:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} moves here by move {known.number}, which is not over with move {event.number}; look again where "
                "it is",
            )
        if event.version <= known.version:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} moves by placement {known.version}, which {event.version} does not end",
            )
        if known.arrives and event.here and not self._shards.membership.is_ready(name):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} is not here yet: of the shards {sorted(self._shards.membership.members)} only "
                f"{sorted(known.ready)} have their parts",
            )
        return MoveEnded(known.number, name, event.version, event.here)

    # --- what is asked of every shard -------------------------------------------------------------

    def part(self, name: str, version: int) -> tuple[PipelineSnapshot, int]:
        """This shard's part of a pipeline that goes, and the incarnations that its home has given are below; raises Refused
        as `need_at_rest`."""
        pipeline = self.need_at_rest(name, version)
        return (
            snapshot_pipeline(pipeline, self._replication.applied()),
            self._nodes.next_incarnation,
        )

    def need_at_rest(self, name: str, version: int) -> Pipeline:
        """A pipeline that goes by this placement, and of which nothing changes here any more; raises Refused otherwise."""
        pipeline = self._pipelines.named(name)
        known = self._shards.membership.moving.get(name)
        if known is None or known.arrives or known.version != version:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} does not go by placement {version}, as far as shard {self._shards.own} has heard; ask again",
            )
        if known.lost:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r} has lost shards {[*known.lost]} since it began to move, and what was sent of it before may be there "
                "already; move it again",
            )
        if not self._is_at_rest(name):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} is not at rest yet at shard {self._shards.own}; ask again",
            )
        if pipeline.held is not None:
            raise Refused.of(held(name, pipeline.held))
        return pipeline

    def _is_at_rest(self, name: str) -> bool:
        pipeline = self._pipelines[name]
        return (
            pipeline.rests
            and self._shards.membership.loss is None
            and not pipeline.graph_change.is_under_way
            and not any(_concerns(record, name) for _, record, _ in self._journal.pending)
        )

    def keep(self, event: KeepPart) -> None:
        """Keeps a piece of a part, once; raises Refused, changing nothing."""
        name = event.pipeline
        known = self._shards.membership.moving.get(name)
        if known is None or not known.arrives or known.version != event.version:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {name!r} does not come by placement {event.version}, as far as shard {self._shards.own} has heard; ask "
                "again",
            )
        _check_whole(known)
        coming = self.coming.get(name)
        pieces = (
            event.pieces if coming is None or coming.version != event.version else coming.pieces
        )
        if not 0 <= event.number < event.pieces <= MAX_PIECES or pieces != event.pieces:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {name!r}: piece {event.number} of {event.pieces}, where there are {pieces}, of at most {MAX_PIECES}",
            )
        if coming is not None and coming.version == event.version and event.number in coming.kept:
            self._effects.append(Answer(event.request, None))
            return
        if any(_is_piece(record, event) for _, record, _ in self._journal.pending):
            return  # whoever repeats that asks once more when it is durable
        kept = PartKept(name, event.version, event.number, event.pieces, event.part)
        self._journal.append(kept, event.request)

    # --- going on ---------------------------------------------------------------------------------

    def go_on(self) -> None:
        """This home says that it has done its part of moves, where it has. Not where records are applied."""
        if not self._shards.counts or self._shards.membership.loss is not None:
            return
        for name, move in [*self._shards.membership.moving.items()]:
            if self._shards.own in move.ready or not self._has_done(name, move):
                continue
            ready = MoveReady(move.number)
            if ready not in self._journal.pending_entries():
                self._journal.append_home(ready)
                position, number = self._journal.position, self._journal.home_appended
                self._shards.record_step(position, ready, self._shards.own, number)

    def _has_done(self, name: str, move: Move) -> bool:
        if move.arrives:
            coming = self.coming.get(name)
            return coming is not None and coming.version == move.version and coming.is_whole
        return not self._nodes.has_closed_keys(name) and not any(
            pipeline_of(entry) == name for entry in self._journal.pending_entries()
        )

    # --- applying ---------------------------------------------------------------------------------

    def take_piece(self, record: PartKept) -> None:
        """A piece is durable."""
        move = self._shards.membership.moving.get(record.pipeline)
        if move is not None and move.arrives and move.version == record.version:
            _keep(self.coming, record)

    def before(self, entry: MoveEnded, home: int, number: int, now_ns: int) -> None:
        """What the end of a move changes here, before the membership forgets the move. number: of the entry in the home's log."""
        name = entry.pipeline
        move = self._shards.membership.moving.get(name)
        if move is None:
            return
        coming, pipeline = self.coming.pop(name, None), self._pipelines.get(name)
        if not move.arrives:
            if pipeline is not None and pipeline.placed == move.version:
                self._end_going(name, entry, now_ns)
            elif pipeline is None and entry.here:
                # It was deleted, and the sequencer may not have heard of that, and let it go once more.
                self._pipelines.ended_by(name, move.version, entry.version)
        elif entry.here and pipeline is not None:  # it began by a loss
            pipeline.placed = max(pipeline.placed, entry.version)
        elif entry.here and coming is not None and coming.version == move.version:
            pipeline = self._put_together(coming)
            pipeline.placed = entry.version
            pipeline.arrived_home, pipeline.arrived_number = home, number
            self._begin_here(pipeline, move, now_ns)

    def before_loss(self, entry: LossStep, now_ns: int) -> None:
        """A pipeline has come to those of which others are left, and the log that says so is lost: this shard goes on with its part,
        as they do with theirs. In a later generation there may be another one of its name."""
        if not isinstance(entry, ShardLost) or not self._shards.membership.settles(entry):
            return
        for known in entry.pipelines:
            name = known.spec.name
            coming, move = self.coming.get(name), self._shards.membership.moving.get(name)
            if name in self._pipelines or coming is None or move is None or not coming.is_whole:
                continue
            pipeline = self._put_together(coming)
            if coming.version < known.placed and pipeline.generation == known.generation:
                pipeline.placed = known.placed
                pipeline.arrived_home = pipeline.arrived_number = 0  # by no entry of a log here
                self._begin_here(pipeline, move, now_ns)

    def _end_going(self, name: str, entry: MoveEnded, now_ns: int) -> None:
        pipeline = self._pipelines[name]
        pipeline.placed = entry.version
        if not entry.here:
            gone = Restart(pipeline.generation + 1, pipeline.floor, 0)
            next_shard = self._shards.membership.next_shard
            self._generations.end_pipeline(name, gone, next_shard, moved=True)
            return
        for node in pipeline.home.nodes.values():
            node.heard(now_ns)
        self._pipelines.mark(name)

    def _put_together(self, coming: Coming) -> Pipeline:
        assert coming.is_whole, "whoever ends a move asks first whether every shard has its part"
        part = of_pieces([coming.kept[number] for number in range(coming.pieces)])
        return restore_pipeline(part, self._cut.vectors, self._shards.own)

    def _begin_here(self, pipeline: Pipeline, move: Move, now_ns: int) -> None:
        """A pipeline that has come goes on at this shard. Where a shard was lost with its part, it stands, as any does that is not
        complete: nothing begins anew of one that is."""
        known = self._shards.membership
        pipeline.base = base_of(pipeline.generation)
        pipeline.change_everywhere(known.members)
        self._pipelines.add(pipeline)
        self._generations.take_up(pipeline, now_ns)
        pipeline.shard.expect_names(known.hands_over)
        if move.lost and pipeline.min_time < FOREVER:
            pipeline.hold(Held(move.lost, None, known.lost.get(move.lost[0], 0)))
        self._reporter.want_whole_reports(now_ns)

    def after(self, entry: MembershipStep) -> None:
        """What a step changes here, when the membership has taken it."""
        match entry:
            case ShardLost():
                arriving = {
                    m.pipeline for m in self._shards.membership.moving.values() if m.arrives
                }
                for name in arriving:
                    self._pipelines.forget_ended(name)
                for name in self.coming.keys() - arriving:  # the log that ended its move is lost
                    del self.coming[name]
            case MoveBegun() if entry.arrives:
                self._nodes.reserve(entry.next_incarnation)
                if not self._pipelines.is_ending(entry.pipeline, self._shards.membership.members):
                    self._pipelines.forget_ended(entry.pipeline)
            case MoveBegun() if entry.pipeline in self._pipelines:
                self._sessions.end_all(entry.pipeline, moving(entry.pipeline, entry.group))
        self.settle()

    def settle(self) -> None:
        """Pipelines of which every home has logged its last are at rest here."""
        known = self._shards.membership
        self._pipelines.coming = frozenset(
            move.pipeline for move in known.moving.values() if move.arrives
        )
        for name, pipeline in self._pipelines.items():
            move = known.moving.get(name)
            goes = move is not None and not move.arrives and pipeline.placed == move.version
            pipeline.rests = goes and known.is_ready(name)


def _check_whole(known: Move) -> None:
    """Raises Refused(CONFLICT) where a shard is lost with its part of a pipeline that comes: unless the directory has turned, all of
    it is where it was, and stays there."""
    if known.lost:
        raise Refused(
            RefusalCode.CONFLICT,
            f"pipeline {known.pipeline!r} cannot come: shards {[*known.lost]} are lost since it began to, and what they had of it; "
            "move it again",
        )


def _is_piece(record: Record, event: KeepPart) -> bool:
    return isinstance(record, PartKept) and (record.pipeline, record.version, record.number) == (
        event.pipeline, event.version, event.number,
    )  # fmt: skip


def _concerns(record: Record, name: str) -> bool:
    """Whether a record is of a pipeline, or may be."""
    match record:
        case HomeEntry():
            return pipeline_of(record.entry) == name
        case ReceivedEntries():
            return False  # every home has logged its last of it before
        case _:
            return record.pipeline == name
