"""A batch that has read too late, some of it, and creates by an edge that has come, or become shorter, while the pipeline ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tracker
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.state.rules import HeldFor
from tests.spark.written_logs import Logs, source_file
from tests.waits import HANG_S
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value

BEFORE = PipelineSpec("p", ("parse", "after"), (Edge("parse", "after", 100),), fronts=("front",))
LATE, IN_TIME = 1, 2


@pytest.mark.parametrize(
    "state", [None, HeldFor(0, 10_000, 0)], ids=["without state", "with state"]
)
@pytest.mark.parametrize("read", [(IN_TIME,), (LATE, IN_TIME)], ids=["in time", "late and in time"])
def test_it_creates_from_where_it_may(
    tmp_path: Path, read: tuple[int, ...], state: HeldFor | None
) -> None:
    """What was announced behind the longer way rules out all that lies below: the query would be stopped, and so again after
    each restart."""
    logs = Logs(tmp_path)
    with tracker.embedded() as running:
        running.register(BEFORE)
        front = running.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        item = Cells.of([(0, IN_TIME, unit_value(source_file(IN_TIME)), 1)])
        front.commit(TickContent(created=item)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(HANG_S)
        subscriber = running.subscriber("p")
        assert subscriber.wait_until(IN_TIME + 100, "after", timeout_s=HANG_S)
        with running.admin() as admin:
            admin.apply(replace(BEFORE, edges=(Edge("parse", "after"),)))
        logs.windowed(0, [source_file(slot) for slot in read], at_ms=0, next_ms=0)
        query = AttachedQuery(
            running.target, "p", "query", str(logs.checkpoint), reads="parse", creates=["after"],
            sink=str(logs.sink), state=state,
        ).start()  # fmt: skip
        try:
            assert query.wait_durable(HANG_S)
        finally:
            query.close()
        with running.admin() as admin:
            explained = admin.explain("p", "after", max_cells=9)
        cells = [cell.slot for part in explained.parts for cell in part.cells]
        assert cells == [IN_TIME + 100]
