"""`lowmark query rescale`: another number of state partitions for a stateful Spark query."""

from __future__ import annotations

import subprocess
import time
from typing import Annotated, Any

import typer

from tracker.cli.common import fail, show
from tracker.errors import TrackingError


def query_rescale(
    context: typer.Context,
    checkpoint: Annotated[str, typer.Option(help="the query's checkpoint, a local directory")],
    partitions: Annotated[int, typer.Option(min=1, help="of the state, from now on")],
    stop: Annotated[
        str | None,
        typer.Option(help="a shell command that stops the query and returns when it has ended"),
    ] = None,
    finish: Annotated[
        str | None,
        typer.Option(
            help="one that runs the query with trigger availableNow to its end; needed if a batch was "
            "under way when it stopped"
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="one that starts the query again, and returns")
    ] = None,
) -> None:
    """Stop a stateful query, repartition its state with Spark's own means, and start it again. `lowmark wait` before
    it lets the query run up to a moment.

    Without --stop the query must not be running. Everything that Spark would refuse is checked before
    the query is stopped. Killed in the middle, it goes on by the same number of partitions. Exit status: 0 done; 1 it cannot
    be, and the checkpoint is as it was.
    """
    try:
        from local_tracker.spark.session import rescaling
    except ImportError as missing:
        fail(f"query rescale needs {missing.name}: pip install 'lowmark[spark]'")
    spark = _session()
    try:
        before = rescaling.check_rescale(spark, checkpoint, partitions)
        stopped_s = time.monotonic()
        _run(stop, "--stop")
        state = rescaling.checkpoint_state(checkpoint)
        if state.is_under_way:
            _run(finish, "--finish")
        batch = rescaling.repartition_state(spark, checkpoint, partitions)
        _run(start, "--start")
        pause_s = time.monotonic() - stopped_s
    except TrackingError as error:
        fail(str(error))
    finally:
        spark.stop()
    show(
        context,
        {"from": before.partitions, "to": partitions, "batch": batch, "pause_s": pause_s},
        f"{checkpoint}: {before.partitions} -> {partitions} state partitions, as batch {batch}; the query "
        f"was away for {pause_s:.1f} s",
    )


def _run(command: str | None, option: str) -> None:
    """Runs a command of the operator's by the shell, with its output."""
    if command is None:
        return
    status = subprocess.run(command, shell=True, check=False).returncode
    if status:
        fail(f"{option} {command!r} ended with status {status}; nothing more was done")


def _session() -> Any:
    """A small Spark of its own: repartitioning reads and writes files only."""
    from pyspark.sql import SparkSession

    from local_tracker.spark.session.rescaling import ROCKSDB

    provider = f"org.apache.spark.sql.execution.streaming.state.{ROCKSDB}"
    builder = SparkSession.builder.master("local[*]").appName("lowmark query rescale")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.streaming.stateStore.providerClass", provider)
    return builder.getOrCreate()
