"""Turning a pipeline's state machines into a snapshot and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tracker.core.cut.vectors import Vectors
from tracker.core.home.home import HomeNode
from tracker.core.log import PipelineReport
from tracker.core.log.steps import LateSnapshot, NodeSnapshot
from tracker.core.model import Batch, Cells, NodeKey
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.snapshot import (
    FrontSnapshot,
    HistorySnapshot,
    KeySnapshot,
    PipelineSnapshot,
)
from tracker.core.shard.shard import FrontState, LateEntry, ShardPipeline


def snapshot_for_newcomer(pipeline: Pipeline, applied: Mapping[int, int]) -> PipelineSnapshot:
    """What a process knows of a pipeline that every shard has to know, and nothing that is its own."""
    shard = pipeline.shard
    return PipelineSnapshot(
        spec=pipeline.registered,
        published=tuple(pipeline.published),
        begun=shard.begun,
        joined=tuple(shard.joined),
        cells=Cells.empty(),
        keys=tuple(
            KeySnapshot(key, shard.kinds[key], number, key in shard.closed)
            for key, number in shard.node_times.items()
        ),
        fronts=tuple(
            FrontSnapshot(*front, s.segment, s.incarnation, s.number, s.pin, s.promised)
            for front, s in shard.fronts.items()
        ),
        units=(),
        late=(),
        runs=pipeline.combiner.own_runs() + shard.unreported_runs(applied),
        nodes=(),
        staged=(),
        restarts=tuple(pipeline.restarts),
        durable=tuple(pipeline.durable) if pipeline.restart is not None else (),
        history=tuple(_snapshot_history(pipeline)),
        departed_floors=tuple(pipeline.departed_floors),
        limits=pipeline.spec.limits if pipeline.limits_number else None,
        limits_number=pipeline.limits_number,
        vacancies=shard.vacancies.places,
        left=tuple(shard.vacancies.left.items()),
    )


def snapshot_pipeline(pipeline: Pipeline, applied: Mapping[int, int]) -> PipelineSnapshot:
    """The durable part of a pipeline at one process, as plain data; `applied`: by home how much of
    its log the process has applied."""
    shard = pipeline.shard
    return replace(
        snapshot_for_newcomer(pipeline, applied),
        cells=shard.cells.open_cells(),
        units=tuple(
            unit for segment, names in shard.units.items() for unit in names.units(segment)
        ),
        late=snapshot_late(shard),
        nodes=tuple(snapshot_node(node) for node in pipeline.home.nodes.values()),
        staged=tuple(
            (node_id, contribution)
            for node_id, kept in pipeline.home.staged.items()
            for contribution in kept.values()
        ),
        written_off=tuple(shard.written_off.cells.values()),
        written_off_items=tuple(shard.written_off.items.items()),
        early_units=tuple((s, name) for s, names in shard.units.items() for name in names.early),
    )


def _snapshot_history(pipeline: Pipeline) -> Iterator[HistorySnapshot]:
    for segment, history in enumerate(pipeline.history):
        for number, tier in enumerate(history.tiers):
            if tier.slots:
                steps = tuple(zip(tier.slots, tier.at_ms, strict=True))
                yield HistorySnapshot(segment, number, tier.since, steps)


def snapshot_late(shard: ShardPipeline) -> tuple[LateSnapshot, ...]:
    return tuple(
        LateSnapshot(segment, entry.items, entry.cells, entry.last_slot)
        for segment, entry in shard.late.items()
    )


def snapshot_node(node: HomeNode) -> NodeSnapshot:
    batches = tuple(
        Batch(scope, number, fingerprint)
        for scope, kept in node.batches.items()
        for number, fingerprint in kept.items()
    )
    return NodeSnapshot(
        node.key,
        node.kind,
        node.durable,
        node.previous_node_time,
        node.evicted,
        batches,
        node.retired,
        tuple(sorted(node.consumes)),
        tuple(sorted(node.creates)),
        node.owner,
        tuple(node.grants.values()),
    )


def restore_pipeline(saved: PipelineSnapshot, vectors: Vectors, own: int) -> Pipeline:
    """The pipeline that a snapshot was taken of."""
    pipeline = Pipeline(saved.spec, vectors, own)
    pipeline.published = list(saved.published)
    pipeline.resume(saved.restarts, saved.durable or saved.published)
    pipeline.departed_floors = list(saved.departed_floors) or pipeline.departed_floors
    shard = pipeline.shard
    shard.begun = saved.begun
    shard.joined = dict.fromkeys(saved.joined)
    shard.cells.apply(saved.cells, 1)
    for key in saved.keys:
        shard.node_times[key.key] = key.number
        shard.kinds[key.key] = key.kind
        if key.closed:
            shard.closed[key.key] = None
    for front in saved.fronts:
        name = (front.node_id, front.front)
        shard.fronts[name] = FrontState(
            front.segment, front.incarnation, front.number, front.pin, front.promised
        )
        if front.pin is None:
            shard.unpinned[name] = None
    for unit in saved.units:
        shard.names(unit.segment).add(unit.name, unit.slot)
    for segment, unit_name in saved.early_units:
        shard.names(segment).early[unit_name] = None
    for late in saved.late:
        shard.late[late.segment] = LateEntry(late.items, late.cells, late.last_slot)
    shard.written_off.items.update(saved.written_off_items)
    for cell in saved.written_off:
        shard.written_off.restore(cell)
    for place in saved.vacancies:
        shard.vacancies.evicted((place.node_id, place.front), place.segment)
    for segment, promised in saved.left:
        shard.vacancies.left_in_order(segment, promised)
    for node in saved.nodes:
        pipeline.home.nodes[node.key.node_id] = restore_node(node)
    for node_id, contribution in saved.staged:
        pipeline.home.stage(node_id, (contribution,))
    pipeline.combiner.take(own, PipelineReport(saved.spec.name, runs=saved.runs), whole=False)
    _restore_history(pipeline, saved)
    if saved.limits is not None:
        pipeline.change_limits(saved.limits_number, saved.limits)
    return pipeline


def _restore_history(pipeline: Pipeline, saved: PipelineSnapshot) -> None:
    for history, newest in zip(pipeline.history, saved.published, strict=True):
        history.newest = newest
    for kept in saved.history:
        pipeline.history[kept.segment].tiers[kept.tier].restore(kept.since, kept.steps)


def restore_node(saved: NodeSnapshot) -> HomeNode:
    node = HomeNode(
        NodeKey(saved.key.node_id, saved.key.incarnation),
        saved.kind,
        saved.durable,
        saved.previous_node_time,
        evicted=saved.evicted,
        retired=saved.retired,
        consumes=set(saved.consumes),
        creates=set(saved.creates),
        owner=saved.owner,
        grants={grant.front: grant for grant in saved.grants},
    )
    for batch in saved.batches:
        node.batches.setdefault(batch.scope, OrderedDict())[batch.id] = batch.fingerprint
    return node
