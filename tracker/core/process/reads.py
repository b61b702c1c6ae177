"""What may be asked of a process without changing it, and the invariants that it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tracker.core.cut.history import Reached
from tracker.core.insight.describe import (
    PipelineDescription,
    RoutingDescription,
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
from tracker.core.model import PipelineSpec, RefusalCode, Refused, StagedContribution
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.process.state import ProcessState


class Reads(ProcessState):
    """What may be asked of a process without changing it."""

    def pipelines(self) -> list[PipelineSpec]:
        """The registered pipelines, by name."""
        return [self._pipelines[name].spec for name in sorted(self._pipelines)]

    def spec(self, pipeline: str) -> PipelineSpec:
        return self._pipeline(pipeline).spec

    def min_times(self, pipeline: str) -> tuple[int, ...]:
        """What has been said, by segment number; exclusive."""
        return tuple(self._pipeline(pipeline).said)

    def pipeline_min_time(self, pipeline: str) -> int:
        """The least min time over the pipeline's segments, in its present generation."""
        return self._pipeline(pipeline).min_time

    def newest_promise(self, pipeline: str) -> int:
        """The furthest slot up to which a front of the pipeline has labelled its items; LOWEST_SLOT if
        none has."""
        fronts = self._pipeline(pipeline).combiner.settled_fronts.values()
        return max((slot for slot, _ in fronts if slot != FOREVER), default=LOWEST_SLOT)

    def describe(self, pipeline: str, now_ns: int) -> PipelineDescription:
        return self._pipeline(pipeline).describe(now_ns)

    def measure(self, pipeline: str, now_ns: int) -> PipelineMeasures:
        """This process's part of what is measured of a pipeline."""
        routing = self.routing
        return measure(
            self._pipeline(pipeline),
            lambda node_id: routing.home(pipeline, node_id) == self.shard,
            now_ns,
        )

    def explain(self, pipeline: str, query: ExplainQuery, now_ns: int) -> PipelineExplanation:
        """Why min time is where it is: this process's part of the answer."""
        state = self._pipeline(pipeline)
        segments = range(len(state.spec.segments))
        if query.segment >= 0:
            segments = range(query.segment, query.segment + 1)
        cells, open_cells = explain_cells(state, query)
        return PipelineExplanation(
            self.shard,
            tuple(explain_segment(state, self._vectors, s, now_ns, query.at) for s in segments),
            cells,
            open_cells,
            explain_nodes(state, now_ns),
            state.shard.written_off.shown(),
            tuple(state.restarts),
            self.describe_shards(),
            missing_ticks(
                pipeline, self._outbox, {s: link.confirmed for s, link in self.links.items()}
            ),
            state.generation,
            strip=explain_strip(state, query) if query.strip_bins else None,
        )

    @property
    def takes_up_nodes(self) -> bool:
        """Whether nodes that are at home here may be taken up: not while some shard still goes by the
        table before."""
        return self.membership.previous is None or self._all_adopted()

    @property
    def home_log_entries(self) -> int:
        """Durable entries of this shard's home log since the shard began."""
        return self._home_last

    def describe_shards(self) -> tuple[ShardDescription, ...]:
        """This shard and those that it has links to, by number."""
        described = [ShardDescription(self.shard, True, 0, *self._describe_member(self.shard))]
        described += [
            ShardDescription(
                shard,
                link.connected and not link.needs_whole,
                self._home_last - link.confirmed,
                *self._describe_member(shard),
            )
            for shard, link in self.links.items()
        ]
        return tuple(sorted(described, key=lambda shard: shard.shard))

    def _describe_member(self, shard: int) -> tuple[ShardRole, int]:
        """What a shard is for, and how many slots are open there."""
        known = self.membership
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
        known = self.membership
        asked = () if known.asked is None else known.asked.shards
        return RoutingDescription(known.table.version, asked, not known.is_settled)

    def home_of(self, pipeline: str, node_id: str) -> int:
        """The shard that a node commits to."""
        self._pipeline(pipeline)
        return self.routing.home(pipeline, node_id)

    def history(self, pipeline: str, segment: int, slots: Iterable[int]) -> list[Reached]:
        """When this process announced that a segment (-1: every one) has reached each slot."""
        state = self._pipeline(pipeline)
        chosen = state.history if segment < 0 else [state.history[segment]]
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
        known = state.shard.names(segment)
        return [known.slot(name) for name in names]

    def staged(
        self, pipeline: str, node_id: str, query: str, batch: int
    ) -> tuple[StagedContribution, ...]:
        """What is durably staged for one batch of a query. Raises Refused(NOT_HOME) elsewhere."""
        home = self._at_home(pipeline, node_id).home
        kept = home.staged.get(node_id, {})
        return tuple(c for c in kept.values() if c.query == query and c.batch == batch)

    def _owns_what_it_has(self) -> bool:
        known = self.membership
        version = known.table.version
        return not known.table_is_older and (
            not version or self.shard in known.done.get(version, ())
        )

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the protocol does not hold."""
        assert self.committed <= self.position
        assert self._home_last <= self._home_appended
        waiting = range(self._home_last - len(self._outbox) + 1, self._home_last + 1)
        assert [item.number for item in self._outbox] == [*waiting], "outbox has gaps"
        for shard, link in self.links.items():
            assert link.confirmed <= link.sent <= self._home_last, f"link to {shard} is ahead"
            assert link.received <= link.accepted
        self.membership.validate()
        assert self.membership.members | {self.shard} == {*self._vectors.shards}
        for name, pipeline in self._pipelines.items():
            assert pipeline.combiner.views.keys() == {*self._vectors.shards}, name
            pipeline.shard.validate()
            pipeline.combiner.validate()
            before = pipeline.spec.start_slot
            assert min(pipeline.said) >= before, f"{name}: {pipeline.said} is said"
            for segment, reached in enumerate(pipeline.reached):
                assert pipeline.floor <= reached <= pipeline.announced[segment], name
                assert reached == pipeline.floor or reached <= pipeline.said[segment], name
            table = pipeline.shard.cells
            if self.links and any(table.open_slots) and self._owns_what_it_has():
                owner = self.routing.owner
                for slot in table.open_slot_numbers():
                    assert owner(slot, name) == self.shard, f"{name}: {slot} is another shard's"
            node_times = pipeline.shard.node_times
            for node in pipeline.home.nodes.values():
                durable = node.durable
                assert durable <= node.accepted
                at_shard = node_times.get(node.key, durable)
                assert at_shard == durable, f"{name}: {node.key} is applied out of step"
                for grant in node.grants.values():
                    held = pipeline.shard.fronts.get((grant.node_id, grant.front))
                    joined = held and (held.incarnation, held.number)
                    assert joined == (grant.incarnation, grant.number), (
                        f"{name}: {grant} is of {joined}"
                    )
