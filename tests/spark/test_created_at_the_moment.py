"""What a query writes in a batch that has read nothing, or all of it too late, is labelled by the moment, however fast min time
goes on meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracker
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session.attached import AttachedQuery
from tests.spark.written_logs import Logs, source_file
from tests.waits import HANG_S
from tracker.core.model import Edge, Heartbeat, PipelineSpec, TickContent


@pytest.mark.parametrize("read", [[], [source_file(0)]], ids=["nothing", "too late"])
def test_it_is_taken_though_min_time_has_moved_by_the_time_its_tick_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    """The windows of a query whose state nobody holds are written in batches without input, and its tracker is some hops away:
    between a look at min time and the judgement of the tick the front promises more, each time."""
    logs, promised = Logs(tmp_path), 1
    look = QueryTicks._min_times  # noqa: SLF001 - min time moves behind the look
    with tracker.embedded() as running:
        running.register(
            PipelineSpec("p", ("parse", "after"), (Edge("parse", "after"),), fronts=("front",))
        )
        front = running.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        front.commit(TickContent(heartbeats=(Heartbeat("front", 1),))).result(HANG_S)
        subscriber = running.subscriber("p")
        assert subscriber.wait_until(1, "after", timeout_s=HANG_S)

        def looked(ticks: QueryTicks) -> dict[int, int]:
            nonlocal promised
            found, promised = look(ticks), promised + 10
            front.commit(TickContent(heartbeats=(Heartbeat("front", promised),))).result(HANG_S)
            assert subscriber.wait_until(promised, "after", timeout_s=HANG_S)
            return found

        monkeypatch.setattr(QueryTicks, "_min_times", looked)
        logs.windowed(0, read, at_ms=0, next_ms=0)
        query = AttachedQuery(
            running.target, "p", "query", str(logs.checkpoint), reads="parse", creates=["after"],
            sink=str(logs.sink),
        ).start()  # fmt: skip
        try:
            assert query.wait_durable(HANG_S)
        finally:
            query.close()
