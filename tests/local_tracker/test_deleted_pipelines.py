"""A local tracker ends where its node can commit no more, so that the next one serves what there is by then."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import tracker
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.spool import Spool
from local_tracker.agent.uplink import TrackerUplink
from local_tracker.core.window import Step
from local_tracker.worker.protocol import Deadline
from tests.local_tracker.fakes import one_cell
from tests.waits import HANG_S, until
from tracker.core.model import PipelineSpec
from tracker.errors import HandOverError

SPEC = PipelineSpec("p", ("a",), front_count=1)


def test_it_ends_when_its_pipeline_is_deleted_and_does_not_refuse_all_steps_of_the_next_of_that_name(
    tmp_path: Path,
) -> None:
    with tracker.embedded() as running, closing(Spool(f"{tmp_path}/spool")) as spool:
        running.register(SPEC)
        uplink = TrackerUplink(running.target, "p", "host-1", f"{tmp_path}/known")
        flusher = Flusher(uplink, spool, 1)
        flusher.submit(Step("w", 1, one_cell(0, 5, 1)), False, Deadline(HANG_S)).result(HANG_S)
        with running.admin() as admin:
            admin.delete("p", 0, drop_open=True)
        until(lambda: uplink._node.failure is not None)  # noqa: SLF001 - as its process has it
        running.register(SPEC)
        with pytest.raises(HandOverError):
            flusher.submit(Step("w", 2, one_cell(0, 5, 2)), False, Deadline(HANG_S)).result(HANG_S)
        assert flusher.failure is not None, "it goes on, and can commit nothing any more"
        flusher.close(HANG_S)
        uplink.close(leave=False)
