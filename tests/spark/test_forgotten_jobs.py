"""A job that comes back to a tracker that has forgotten its node tells no run of it a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracker
from local_tracker.spark.session.jobs import JobNode
from tests.spark.written_logs import source_file
from tests.waits import HANG_S
from tracker.core.home import home
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.errors import LowmarkError


def write(directory: str) -> None:
    Path(directory).mkdir(parents=True)
    (Path(directory) / "part-0.json").write_text("{}")


def test_what_a_retired_job_has_published_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has retired what seemed to be gone, and then many others. What the run created would cancel what is open of it,
    and pass for consumed."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    with tracker.embedded() as running:
        edges = (Edge("read", "after"),)
        running.register(PipelineSpec("p", ("read", "after"), edges, fronts=("front",)))
        front = running.node("p", "front")
        front.join()
        front.join_front("front", "read")
        cells = Cells.of((0, slot, unit_value(source_file(slot)), 1) for slot in (1, 2))
        front.commit(TickContent(created=cells)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 3),))).result(HANG_S)
        subscriber = running.subscriber("p")

        def job() -> JobNode:
            return JobNode(
                running.target, "p", "job", str(tmp_path), reads="read", creates=["after"]
            )

        first = job()
        assert first.run([source_file(1)], write) == 0
        first.close()
        assert subscriber.wait_until(2, "read", timeout_s=HANG_S)
        with running.admin() as admin:
            admin.retire("p", "job")
            for number in range(8):
                with running.node("p", f"other-{number}") as other:
                    other.join()
                admin.retire("p", f"other-{number}")
        told = ""
        try:
            job().close()
        except LowmarkError as error:
            told = str(error)
        assert not subscriber.wait_until(
            2, "after", timeout_s=0.5
        )  # expires: nobody has consumed it
        assert "is forgotten with its batches" in told
