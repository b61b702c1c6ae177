"""Where a query's input comes from and its output goes, checked against the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from local_tracker.spark.follower import TrackingError
from local_tracker.spark.query_ticks import Reads
from local_tracker.spark.ranges import OffsetRanges
from tracker.client import NodeClient
from tracker.core.model import PipelineSpec


class Routes:
    """Where a query's input comes from and its output goes, by segment numbers."""

    def __init__(
        self,
        node: NodeClient,
        spec: PipelineSpec,
        reads: str | Mapping[str, str],
        creates: Sequence[str],
        node_id: str,
        rows: Mapping[str, str] | None = None,
        ranges: Mapping[str, OffsetRanges] | None = None,
    ) -> None:
        """`node` has joined. Raises LowmarkError for an unknown segment, TrackingError where the
        pipeline has no edge for what the query does."""
        self.spec = spec
        self.ranges = dict(ranges or {})
        if isinstance(reads, str):
            self.reads = Reads(node.segment(reads))
        else:
            self.reads = Reads({path: node.segment(name) for path, name in reads.items()})
        self.creates = tuple(node.segment(name) for name in creates)
        self.rows = {node.segment(name): column for name, column in (rows or {}).items()}
        numbers = self.reads.numbers() | {node.segment(r.segment) for r in self.ranges.values()}
        sources = {spec.segments[number] for number in numbers}
        for target in creates:
            if not any(edge.source in sources and edge.target == target for edge in spec.edges):
                raise TrackingError(
                    f"query {node_id!r} reads {sorted(sources)} and creates in {target!r}, but "
                    f"pipeline {spec.name!r} has no edge between them; register one"
                )
        for name, column in (rows or {}).items():
            if name not in sources and name not in creates:
                raise TrackingError(
                    f"query {node_id!r} neither reads nor creates in {name!r}, whose rows were to be "
                    f"tracked by column {column!r}"
                )
