"""Everything durable of one pipeline at one process, as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tracker.core.cut.vectors import Vectors
from tracker.core.log import TouchedRun
from tracker.core.model import Cells
from tracker.core.model import durable as d
from tracker.core.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True, eq=False)
@d.snapshot_of(Pipeline)
class PipelineSnapshot(d.Snapshot):
    """One pipeline at a process. `runs`: entries of which it is not known that every shard has applied them.
    In the first generation, `durable` is empty: it is what is published."""

    runs: tuple[TouchedRun, ...]


def snapshot_pipeline(
    pipeline: Pipeline, applied: Mapping[int, int], *, for_newcomer: bool = False
) -> PipelineSnapshot:
    """The durable part of a pipeline at one process; `applied`: by home how much of its log the process has
    applied. for_newcomer: what every shard has to know, and nothing that is this one's own."""
    durable = d.saved(pipeline, for_newcomer=for_newcomer)
    if pipeline.restart is None:
        durable["durable"] = ()
    if for_newcomer:
        durable["cells"] = Cells.empty()
        durable["restarts"] = tuple(replace(each, cells=()) for each in durable["restarts"])
        held = durable["held"]
        durable["held"] = None if held is None else replace(held, open=())
    runs = pipeline.combiner.own_runs() + pipeline.shard.unreported_runs(applied)
    return PipelineSnapshot(runs=runs, **durable)


def restore_pipeline(snapshot: PipelineSnapshot, vectors: Vectors, own: int) -> Pipeline:
    """The pipeline that a snapshot was taken of."""
    pipeline = Pipeline(snapshot.changed or snapshot.spec, vectors, own)
    d.restore(pipeline, snapshot)
    return pipeline
