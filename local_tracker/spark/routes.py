"""Where a query's input comes from and its output goes, checked against the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from local_tracker.spark.follower import TrackingError
from local_tracker.spark.ranges import OffsetRanges
from local_tracker.spark.sources import Source, Sources, UnaccountedError
from tracker.client.node import segment_number
from tracker.core.model import PipelineSpec


class Routes:
    """Where a query's input comes from and its output goes, by segment numbers."""

    def __init__(
        self,
        spec: PipelineSpec,
        reads: str | Mapping[str, str],
        creates: Sequence[str],
        node_id: str,
        rows: Mapping[str, str] | None = None,
        ranges: Mapping[str, OffsetRanges] | None = None,
        untracked: Sequence[str] = (),
        plan: Sequence[Source] | None = None,
    ) -> None:
        """Raises LowmarkError for an unknown segment, TrackingError where the pipeline has no edge for
        what the query does, or its plan has a source that is not accounted for."""
        self.spec = spec
        self.ranges = dict(ranges or {})
        if isinstance(reads, str):
            read: Mapping[str, int] | int = self.number(reads)
        else:
            read = {path: self.number(name) for path, name in reads.items()}
        self.sources = Sources(read, self.ranges, untracked, plan)
        if plan is not None:
            try:
                self.sources.check_plan()
            except UnaccountedError as error:
                raise TrackingError(f"query {node_id!r}: {error}") from None
        self.creates = tuple(self.number(name) for name in creates)
        self.rows = {self.number(name): column for name, column in (rows or {}).items()}
        self._check(creates, rows or {}, node_id)

    def number(self, segment: str) -> int:
        """The number of a segment; raises LowmarkError if the pipeline has none of that name."""
        return segment_number(self.spec, segment)

    def _check(self, creates: Sequence[str], rows: Mapping[str, str], node_id: str) -> None:
        spec = self.spec
        numbers = self.sources.numbers() | {self.number(r.segment) for r in self.ranges.values()}
        sources = {spec.segments[number] for number in numbers}
        for target in creates:
            if not any(edge.source in sources and edge.target == target for edge in spec.edges):
                raise TrackingError(
                    f"query {node_id!r} reads {sorted(sources)} and creates in {target!r}, but "
                    f"pipeline {spec.name!r} has no edge between them; register one"
                )
        for name, column in rows.items():
            if name not in sources and name not in creates:
                raise TrackingError(
                    f"query {node_id!r} neither reads nor creates in {name!r}, whose rows were to be "
                    f"tracked by column {column!r}"
                )
