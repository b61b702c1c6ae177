"""The driver killed by SIGKILL between a batch's sink commit and `commits/N`, then restarted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.logs import CheckpointLog, SinkLog, local_path
from tests.spark import driver
from tests.spark.conftest import ONLY_LOCAL, Pipelines
from tests.spark.support import WAIT_S, Witness, sink_rows, take_out_of_side
from tracker.client import NodeClient
from tracker.core.model import Cells, Edge, TickContent
from tracker.core.model.ack_values import unit_value

SLOTS = (10, 20, 30, 40, 50, 60)
TRIES = 3


@ONLY_LOCAL
def test_a_driver_killed_between_sink_and_commit(spark: SparkSession, pipelines: Pipelines) -> None:
    pipeline = pipelines("parse", driver.DOWNSTREAM, edges=(Edge("parse", "side"),))
    directory = pipeline.directory
    out, checkpoint = str(directory / "out"), str(directory / "cp")
    with Witness(pipeline, {"parse": sink_rows(checkpoint, out)}):
        for slot in SLOTS:
            pipeline.publish(slot)
        killed_at = kill_in_the_gap(pipeline.target, pipeline.name, directory)
        state = pipeline.describe().segments[0]
        assert state.min_time <= SLOTS[killed_at]  # done means committed
        query = driver.start(spark, pipeline.target, pipeline.name, directory)
        query.processAllAvailable()
        query.stop()
        log = CheckpointLog(checkpoint)
        assert log.committed() == list(range(len(SLOTS)))
        take_out_of_side(pipeline)
        consume_downstream(pipeline.target, pipeline.name, out, log)
        pipeline.leave()
        pipeline.assert_finished()
    # The batch was not evaluated again: its acks are those that the killed driver's tasks handed over.
    assert sorted(pq.read_table(out)["slot"].to_pylist()) == sorted(pipeline.slots)


def kill_in_the_gap(target: str, pipeline: str, directory: Path) -> int:
    """Run the driver until it dies with a batch in the sink and not in commits; returns the batch."""
    for batch in range(1, 1 + TRIES):
        command = [sys.executable, "-m", "tests.spark.driver", target, pipeline, directory, batch]
        ended = subprocess.run(
            list(map(str, command)), timeout=120, capture_output=True, check=False
        )
        if ended.returncode == -signal.SIGKILL and not (directory / f"cp/commits/{batch}").exists():
            return batch
        assert ended.returncode in (3, -signal.SIGKILL), ended.stderr.decode()[-2000:]
    pytest.fail(f"the gap between sink and commit was missed {TRIES} times")


def consume_downstream(target: str, pipeline: str, out: str, log: CheckpointLog) -> None:
    """A plain reader of the sink takes out what the query must have put in, each file once."""
    node = NodeClient(target, pipeline, "reader")
    node.join(WAIT_S)
    segment = node.segment(driver.DOWNSTREAM)
    names = [name for batch in log.committed() for name in SinkLog(out).created(batch)]
    slots = node.resolve_units(driver.DOWNSTREAM, names, 1_000)
    rows = {name: pq.read_table(local_path(name))["slot"].to_pylist() for name in names}
    assert all(set(rows[name]) <= {slots[name]} for name in names)
    consumed = Cells.of((segment, slots[name], unit_value(name), 1) for name in names)
    node.commit(TickContent(consumed=consumed)).result(WAIT_S)
    node.close()
