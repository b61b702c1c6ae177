"""12: what is asked of a tracker in Spark: tables, functions, and streams, whose driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from examples.children import ROOT
from local_tracker.spark.progress.frames import progress
from local_tracker.spark.progress.registered import register
from tests.spark_matrix.progress import Asking, all_keys
from tests.spark_matrix.registry import row
from tests.spark_matrix.world import World
from tests.waits import PROGRAM_S
from tracker.errors import TrackingError
from tracker.testing.moments import MISSED

POINTS = ("tasks", "sink", "commit")
TRIES = 4
STEP = 13
"""Slots between two files: more than a period, so that each completes one or two."""


def run(world: World, directory: Path, point: str, batch: int = 0) -> tuple[int, str]:
    """Runs the program to its end, or its killing; returns its status and what it printed."""
    command = [
        sys.executable, "-m", "tests.spark_matrix.progress", world.target, world.name,
        str(directory), point, str(batch),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, capture_output=True, check=False)
    if ended.returncode not in (0, MISSED, -signal.SIGKILL):
        said = ended.stderr.decode(errors="replace")
        world.fail(f"at {point} it ended with status {ended.returncode}: {said[-3000:]}")
    return ended.returncode, ended.stdout.decode()


class Moving:
    """A tracked query, by which min time moves."""

    def __init__(self, world: World) -> None:
        world.open("parse")
        world.follow("cp", "parse")
        self.world, self.slot = world, 0
        self.query = world.copy(world.tracked(), world.source(1))

    def on(self) -> int:
        """Another file is consumed; returns min time then."""
        self.slot += STEP
        self.world.publish(self.slot)
        self.query.processAllAvailable()
        self.world.wait(f"min time is beyond {self.slot}", lambda: self.min_time() > self.slot)
        return self.min_time()

    def min_time(self) -> int:
        return int(self.world.pipeline.describe().segments[0].min_time)


def without_sources(world: World) -> bool:
    """Whether this version has no data sources in Python: then the tables are DataFrames of a function."""
    try:
        register(world.spark, world.target)
        return False
    except TrackingError as error:
        world.refused(error)
    for table in ("min_times", "status", "nodes"):
        rows = progress(world.spark, world.target, table, world.name).collect()
        world.check(bool(rows) and {r.pipeline for r in rows} == {world.name}, f"{table}: {rows}")
    return True


@row("12.1", "periods as a stream: each once; driver killed in tasks, before and after the sink commits", since="4.0")  # fmt: skip
def each_period_once(world: World) -> None:
    moving, directory = Moving(world), world.directory / "periods"
    min_time = moving.on()
    if not without_sources(world):
        for point in POINTS:
            for _ in range(TRIES):
                min_time = moving.on()
                batch = len(list((directory / "cp/offsets").glob("[0-9]*")))
                status, _ = run(world, directory, point, batch)
                if status == -signal.SIGKILL:
                    break
            else:
                world.fail(f"the driver was never caught at {point!r}")
            world.check(
                os.path.exists(directory / f"cp/offsets/{batch}"), f"batch {batch} of {point}"
            )
        run(world, directory, "none")
        rows = world.spark.read.parquet(str(directory / "out")).collect()
        found = [each.key for each in sorted(rows, key=lambda each: each.from_slot)]
        wanted = all_keys(world.name, "parse", min_time)
        world.check(found == wanted, f"the sink has {found}, not {wanted}")
    world.finish()


@row("12.2", "progress in SQL: tables, functions, streams, a tracker that is away", since="4.0")
def asked(world: World) -> None:
    moving = Moving(world)
    moving.on()
    moving.on()
    if not without_sources(world):
        directory = world.directory / "asked"
        faults = list(Asking(world.spark, world.target, world.name, directory).faults())
        world.check(not faults, "; ".join(faults))
    world.finish()


@row("12.3", "progress in SQL in a Spark Connect session", since="4.0")
def asked_through_connect(world: World) -> None:
    moving = Moving(world)
    moving.on()
    moving.on()
    if not without_sources(world):
        _, said = run(world, world.directory / "connected", "connected")
        faults = json.loads(said.strip().splitlines()[-1])
        world.check(not faults, "; ".join(faults))
    world.finish()
