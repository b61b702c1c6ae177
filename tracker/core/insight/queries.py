"""What may be asked of a process without changing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tracker.core.cut.history import MAX_ENTRIES, Reached
from tracker.core.cut.stable import StableCut
from tracker.core.insight.describe import (
    FrontDescription,
    NodeDescription,
    PipelineDescription,
    RoutingDescription,
    SegmentDescription,
    ShardDescription,
    ShardRole,
)
from tracker.core.insight.explain import (
    ExplainQuery,
    PipelineExplanation,
    explain_cells,
    explain_nodes,
    explain_segment,
    explain_strip,
    missing_ticks,
)
from tracker.core.insight.measures import PipelineMeasures, measure
from tracker.core.log.journal import Journal
from tracker.core.log.losses import follows
from tracker.core.membership.shards import Shards
from tracker.core.model import FrontId, PipelineSpec, RefusalCode, Refused, StagedContribution
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines, ending, moving
from tracker.core.replication.replication import Replication
from tracker.core.shard.cells import shown_items


@dataclass(slots=True, eq=False)
class Queries:
    """Reads, for people and for subscribers."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _homes: Homes

    def pipelines(self) -> list[PipelineSpec]:
        """The registered pipelines, by name."""
        return [self._pipelines[name].spec for name in sorted(self._pipelines)]

    def spec(self, pipeline: str) -> PipelineSpec:
        """A pipeline as it is now; raises Refused(UNKNOWN_PIPELINE) if there is none."""
        return self._pipelines.named(pipeline).spec

    def changes(self, pipeline: str) -> int:
        """How often a pipeline was changed; raises Refused(UNKNOWN_PIPELINE) if there is none."""
        return self._pipelines.named(pipeline).changes

    def has_heard_of(self, pipeline: str) -> bool:
        """Whether a pipeline is registered, or about to be."""
        return pipeline in self._pipelines or pipeline in self._pipelines.registering

    def decides_on(self, pipeline: str) -> bool:
        """Whether this shard decides on a name, and has applied all that another one had decided on it before."""
        return self._homes.decides_on(pipeline)

    def check_claims(self, pipeline: str) -> None:
        """Raises Refused(NOT_READY) while a name may not be claimed. Its pipeline is on its way: who moves it goes by the placement
        that there is, which a claim would make void. Or it is being registered, by such a placement. Or one of the name that was
        deleted is not over everywhere, and a claim that comes to nothing would be given back before. To be asked after the
        directory, which turns when all shards know of the move."""
        self._homes.need_no_move(pipeline)
        if pipeline in self._pipelines.registering:
            raise Refused(
                RefusalCode.NOT_READY, f"pipeline {pipeline!r} is being registered; ask again"
            )
        if self._pipelines.is_ending(pipeline, self._shards.membership.with_newcomers):
            raise Refused.of(ending(pipeline))

    def placed(self, pipeline: str) -> int:
        """The version of the placement by which a pipeline is here; 0 where it needs none, or is not here."""
        known = self._pipelines.get(pipeline)
        return 0 if known is None else known.placed

    def placed_last(self, pipeline: str) -> int:
        """The same, of one that was deleted here, too: by that its name is given back."""
        ended = self._pipelines.ended.get(pipeline)
        return self.placed(pipeline) or (0 if ended is None or ended.moved else ended.placed)

    def last_generation(self, pipeline: str) -> int:
        """Up to which generation one of this name may have been here that has ended; 0 if none was."""
        return self._pipelines.last_generation(pipeline)

    @property
    def open_cells(self) -> int:
        """Open cells at this shard, of all pipelines."""
        return sum(sum(pipeline.shard.cells.open_slots) for pipeline in self._pipelines.values())

    def nodes_at_home(self) -> dict[str, int]:
        """By pipeline, how many nodes have their home here, or are about to."""
        return {name: len(pipeline.home.newest) for name, pipeline in self._pipelines.items()}

    def is_at_home(self, pipeline: str, node_id: str) -> bool:
        """Whether that node has its home here, or is about to."""
        return pipeline in self._pipelines and node_id in self._pipelines[pipeline].home.newest

    def min_times(self, pipeline: str) -> tuple[int, ...]:
        """What has been announced, by segment number; exclusive."""
        return self._pipelines.named(pipeline).min_times

    def has_told_ahead(self, pipeline: str) -> bool:
        """Whether a min time was told whose record is not durable yet; the history has only those that are."""
        return bool(self._pipelines.named(pipeline).told)

    def pipeline_min_time(self, pipeline: str) -> int:
        """The least min time over the pipeline's segments, in its present generation."""
        return self._pipelines.named(pipeline).min_time

    def generation(self, pipeline: str) -> int:
        """The one that it is in here. Raises Refused(NOT_READY) where a loss has begun one since nothing of the pipeline is decided
        here any more: the group that it goes to may never hear of that."""
        known, move = self._pipelines.named(pipeline), self._shards.membership.moving.get(pipeline)
        if known.rests and move is not None and move.lost:
            raise Refused.of(moving(pipeline, move.group))
        return known.generation

    def goes_on_since(self, pipeline: str, generation: int) -> bool:
        """Whether a pipeline is the one of its name that was in a generation, perhaps restarted since. One that is deleted uses
        the next generation up for its end, and what has its name later begins behind that. Of a pipeline that was
        restarted more than MAX_LISTED_RESTARTS times since it is not known."""
        known = self._pipelines.named(pipeline)
        later = [n for each in known.restarts if (n := each.restart.generation) > generation]
        return generation >= known.generation or (bool(later) and follows(min(later), generation))

    def newest_promise(self, pipeline: str) -> int:
        """The furthest slot up to which a front of the pipeline has labelled its items; LOWEST_SLOT if
        none has."""
        fronts = self._pipelines.named(pipeline).combiner.settled_fronts.values()
        return max((slot for slot, _ in fronts if slot != FOREVER), default=LOWEST_SLOT)

    def describe(self, pipeline: str, now_ns: int) -> PipelineDescription:
        """What people are shown of a pipeline."""
        return _describe(self._pipelines.named(pipeline), now_ns)

    def measure(self, pipeline: str, now_ns: int) -> PipelineMeasures:
        """This process's part of what is measured of a pipeline."""
        routing = self._shards.routing
        return measure(
            self._pipelines.named(pipeline),
            lambda node_id: routing.home(pipeline, node_id) == self._shards.own,
            now_ns,
        )

    def explain(self, pipeline: str, query: ExplainQuery, now_ns: int) -> PipelineExplanation:
        """Why min time is where it is: this process's part of the answer."""
        state = self._pipelines.named(pipeline)
        segments = range(len(state.spec.segments))
        if query.segment >= 0:
            segments = range(query.segment, query.segment + 1)
        cells, open_cells = explain_cells(state, query)
        return PipelineExplanation(
            self._shards.own,
            tuple(explain_segment(state, self._cut.vectors, s, now_ns, query.at) for s in segments),
            cells,
            open_cells,
            explain_nodes(state, now_ns),
            state.shard.written_off.shown(),
            tuple(state.restarts),
            self.describe_shards(),
            missing_ticks(
                pipeline,
                self._replication.outbox,
                {s: link.confirmed for s, link in self._replication.links.items()},
            ),
            state.generation,
            strip=explain_strip(state, query) if query.strip_bins else None,
        )

    @property
    def home_log_entries(self) -> int:
        """Durable entries of this shard's home log since the shard began."""
        return self._journal.home_last

    def describe_shards(self) -> tuple[ShardDescription, ...]:
        """This shard and those that it has links to, by number."""
        described = [
            ShardDescription(
                self._shards.own, True, 0, *self._describe_member(self._shards.own),
                self._shards.speaks,
            )
        ]  # fmt: skip
        described += [
            ShardDescription(
                shard,
                link.connected and not link.needs_whole,
                self._journal.home_last - link.confirmed,
                *self._describe_member(shard),
                link.speaks if link.connected else 0,
            )
            for shard, link in self._replication.links.items()
        ]
        return tuple(sorted(described, key=lambda shard: shard.shard))

    def _describe_member(self, shard: int) -> tuple[ShardRole, int]:
        """What a shard is for, and how many slots are open there."""
        known = self._shards.membership
        if known.leaving == shard or shard in known.former:
            role = ShardRole.LEAVING
        elif shard not in known.members:
            role = ShardRole.JOINING
        elif shard in known.draining:
            role = ShardRole.DRAINING
        else:
            role = ShardRole.OWNER if shard in known.table.shards else ShardRole.SPARE
        combiners = [pipeline.combiner for pipeline in self._pipelines.values()]
        return role, sum(c.open_slots(shard) for c in combiners if shard in c.views)

    def describe_routing(self) -> RoutingDescription:
        """By which table slots are dealt, and whether that changes."""
        known = self._shards.membership
        asked = () if known.asked is None else known.asked.shards
        changing = not known.is_settled
        return RoutingDescription(known.table.version, asked, changing, known.level)

    def history(self, pipeline: str, segment: int, slots: Sequence[int]) -> list[Reached]:
        """When this process announced that a segment (-1: every one) has reached each slot. slots: none are all
        of which an announcement is remembered, the last MAX_ENTRIES."""
        state = self._pipelines.named(pipeline)
        chosen = state.history if segment < 0 else [state.history[segment]]
        if not slots:
            slots = sorted(set().union(*(each.remembered for each in chosen)))[-MAX_ENTRIES:]
        answers = []
        for slot in slots:
            found = [history.when(slot) for history in chosen]
            # The pipeline is there when the last of its segments is; what one forgot, nobody knows.
            last = max(
                found, key=lambda each: (not each.reached, each.at_ms is None, each.at_ms or 0)
            )
            answers.append(replace(last, min_time=min(each.min_time for each in found)))
        return answers

    def resolve_units(self, pipeline: str, segment: int, names: Iterable[str]) -> list[int | None]:
        """The slots of a segment's open units by name; None for names that have not arrived.
        Raises Refused(NOT_HOME) where another shard keeps that segment's names."""
        state = self._pipelines.named(pipeline)
        if not 0 <= segment < len(state.spec.segments):
            raise Refused(
                RefusalCode.UNKNOWN_SEGMENT,
                f"pipeline {pipeline!r} has no segment number {segment}",
            )
        keeper = self._shards.routing.names_keeper(pipeline, segment)
        if keeper != self._shards.own:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"pipeline {pipeline!r}: shard {keeper} keeps the names of segment "
                f"{state.spec.segments[segment]!r}",
                home=keeper,
            )
        known = state.shard.names(segment)
        return [known.slot(name) for name in names]

    def staged(
        self, pipeline: str, node_id: str, query: str, batch: int
    ) -> tuple[StagedContribution, ...]:
        """What is durably staged for one batch of a query. Raises Refused(NOT_HOME) elsewhere."""
        home = self._homes.at_home(pipeline, node_id).home
        kept = home.staged.get(node_id, {})
        return tuple(c for c in kept.values() if c.query == query and c.batch == batch)


def _describe(state: Pipeline, now_ns: int) -> PipelineDescription:
    views = state.combiner.views.values()
    segments = []
    for segment, name in enumerate(state.spec.segments):
        lows = [view.lows[segment] for view in views if segment in view.lows]
        segments.append(
            SegmentDescription(
                name,
                state.min_times[segment],
                min((low.slot for low in lows), default=FOREVER),
                shown_items(sum(low.open_slots for low in lows)),
                shown_items(sum(low.open_items for low in lows)),
            )
        )
    min_time = state.min_time
    return PipelineDescription(
        min_time=min_time,
        complete=min_time == FOREVER,
        begun=state.shard.begun,
        segments=tuple(segments),
        fronts=tuple(
            _describe_front(state, front, now_ns) for front in state.combiner.known_fronts()
        ),
        nodes=tuple(
            NodeDescription(key, known.number)
            for key, known in sorted(state.shard.keys.items())
            if not known.closed
        ),
        generation=state.generation,
        is_changing=state.graph_change.is_under_way,
        change_awaits=state.change_awaits,
        held_for=() if state.held is None else state.held.lost,
        late_items=shown_items(sum(low.late_items for view in views for low in view.lows.values())),
        written_off_items=shown_items(
            sum(low.written_off_items for view in views for low in view.lows.values())
        ),
    )


def _describe_front(state: Pipeline, front: FrontId, now_ns: int) -> FrontDescription:
    views = state.combiner.views.values()
    segment = next(view.fronts[front].segment for view in views if front in view.fronts)
    silent_ns = now_ns - state.front_heard_ns.get(front, now_ns)
    return FrontDescription(
        front[0],
        front[1],
        state.spec.segments[segment],
        state.combiner.least_promise(front),
        silent_ns // 1_000_000,
        front in state.combiner.settled_fronts,
    )
