"""A query that is going to write a table, whose log is read: what is refused of it."""

from __future__ import annotations

from collections.abc import Iterable

from local_tracker.spark.formats.interface import TableFormat
from local_tracker.spark.formats.sinks import Sink, SinkPlan
from local_tracker.spark.query.plans import Routes
from tracker.errors import TrackingError


class TableSink(Sink):
    """A table's own sink."""

    leaves = True

    def __init__(self, plan: SinkPlan, fmt: TableFormat) -> None:
        super().__init__(plan)
        self._format = fmt

    def check(self) -> None:
        routes, mode = self.plan.routes, self.plan.planned.mode
        check_by_units(routes, routes.creates)
        if routes.creates and (refused := self._format.refused_mode(mode)):
            raise TrackingError(
                f"the query is to create in {self.plan.creates}, and {refused}; use append, or start the query with "
                f"creates=[]: min time of the segment that it reads says up to when the table has all"
            )
        super().check()


def check_by_units(routes: Routes, segments: Iterable[int]) -> None:
    """Raises TrackingError where a table's rows were to be items."""
    if by_rows := {*segments} & {*routes.rows}:
        raise TrackingError(
            f"the query is to create by rows in {routes.spec.segments[min(by_rows)]!r}, and writes a "
            f"table: tables are tracked by units alone; leave the segment out of rows"
        )
