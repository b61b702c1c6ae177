"""6: a Spark Connect session, whose server runs the query."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from examples.children import ROOT
from tests.spark_matrix.registry import row
from tests.spark_matrix.world import World
from tests.waits import PROGRAM_S
from tracker.errors import TrackingError

REFUSED = (
    "tracked.writer", "acks of user code", "has no checkpointLocation", "by foreachBatch",
    "source 1, rate, is not accounted for", "continuous trigger",
)  # fmt: skip


def run(world: World, point: str) -> dict[str, Any]:
    """Runs the program to its end, or to its killing; returns what it says."""
    command = [
        sys.executable, "-m", "tests.spark_matrix.connected", world.target, world.name,
        str(world.directory), point,
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, capture_output=True, check=False)
    said = ended.stdout.decode().strip().splitlines()
    if said and said[-1].startswith('{"unsupported"'):
        return json.loads(said[-1])
    if ended.returncode != (-signal.SIGKILL if point == "kill" else 0):
        world.fail(f"it ended with {ended.returncode}: {ended.stderr.decode()[-3000:]}")
    return json.loads(said[-1]) if point == "end" else {}


@row(
    "6.20", "a Spark Connect session; program and server killed before the last ticks", since="4.0"
)
def connect_session(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.publish(3, 4)
    first = run(world, "kill")
    if refusal := first.get("unsupported"):
        world.refused(TrackingError(refusal))
        query = world.copy(world.tracked(), world.source(1), creates=["after"])
        query.processAllAvailable()  # what a classic session of this version does
        query.stop()
        frame = world.spark.read.parquet(world.path("out"))
        world.tracked().job(frame.write, world.path("report"), node_id="after", reads="after")
    else:
        world.publish(6, 7)
        refused = run(world, "end")["refused"]
        world.check(len(refused) == len(REFUSED), f"it refused {refused}")
        for wanted, said in zip(REFUSED, refused, strict=True):
            world.check(wanted in said, f"it said {said}, not {wanted}")
    world.job_done("report", 0, reads="after", creates=())
    world.sink_is_all("report", "parquet")
    world.finish()
