"""What became of pipelines when shards were declared lost: segments by name in the contract, by number in the core."""

from __future__ import annotations

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.log.losses import LossReport, PipelineKnown
from tracker.core.model.slots import FOREVER


def report_to_pb(report: LossReport) -> pipeline_pb.DeclareLostResponse:
    """The answer that a declaration is over."""
    return pipeline_pb.DeclareLostResponse(
        done=True,
        lost=report.lost,
        write_off=report.write_off,
        pipelines=map(_pipeline_to_pb, report.pipelines),
    )


def _pipeline_to_pb(known: PipelineKnown) -> pipeline_pb.LostPipeline:
    spec = known.changed or known.spec
    return pipeline_pb.LostPipeline(
        pipeline=spec.name,
        generation=known.generation,
        complete=known.least == FOREVER,
        from_slot=known.bound,
        open=[
            pipeline_pb.DroppedCells(
                segment=spec.segments[each.segment],
                cells=each.cells,
                items=each.items,
                lowest=each.lowest,
                highest=each.highest,
            )
            for each in known.open
        ],
    )
