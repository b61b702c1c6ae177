"""6, continued: fronts by event time. A result is final and visible once min time is above its slot.

When each result was committed is read from what Spark leaves on disk, and its time from the result itself;
every announcement is held against them. And min time gets to where the watermark has come, less what the
operator needs, and not beyond: what is still in the state is not said to be there.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from examples.children import ROOT
from examples.history import read
from tests.spark_matrix import visible
from tests.spark_matrix.registry import row
from tests.spark_matrix.truth import Followed, _moment_of, listed_by_sink, path_of
from tests.spark_matrix.visible import DELAY_MS, SHAPES, SHOWN, SLOT_MS, is_late, time_ms
from tests.spark_matrix.world import World
from tests.waits import PROGRAM_S
from tracker.core.model import TimeKind
from tracker.core.model.slots import FOREVER
from tracker.testing.moments import MISSED

FIRST = 100_000
START = FIRST - 100
"""Below the time of every row."""
SLOTS = tuple(FIRST + step for step in (20, 25, 31, 44, 52, 58, 70, 83))
MORE = (FIRST + 95, FIRST + 120)


def run_killed(world: World, shape: str, point: str, batch: int) -> None:
    """Runs a driver until it kills itself there."""
    command = [
        sys.executable, "-m", "tests.spark_matrix.visible", world.target, world.name,
        str(world.directory), shape, point, str(batch),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, capture_output=True, check=False)
    if ended.returncode != -signal.SIGKILL:
        said = ended.stderr.decode(errors="replace")[-3000:]
        missed = "missed its point" if ended.returncode == MISSED else "failed"
        world.fail(f"the driver {missed} (status {ended.returncode}): {said}")


def final_and_visible(world: World, shape: str, *kills: tuple[str, int]) -> None:
    """The whole row. kills: points in batches at which drivers die, one after the other."""
    world.open(
        "parse", SHOWN, elsewhere=[visible.FRONT], time=TimeKind.EVENT, start_slot=START
    )  # fmt: skip
    world.follow("cp", "parse")
    world.open_and_close_side(SHOWN, START)
    world.publish(*SLOTS)
    for point, batch in kills:
        run_killed(world, shape, point, batch)
    tracked = world.tracked()
    query = visible.start(world.spark, tracked, world.directory, shape)
    query.processAllAvailable()
    assert_reached(world, shape)
    world.publish(*MORE)
    query.processAllAvailable()
    watermark_ms = assert_reached(world, shape)
    assert_all_is_out(world, shape, watermark_ms)
    assert_nothing_was_early(world)
    query.stop(leave=True)
    world.finish()


def assert_reached(world: World, shape: str) -> int:
    """Min time comes to where the watermark of the last batch allows, and stays there; returns that, in
    milliseconds."""
    newest = world.batches("cp")[-1]
    header = (world.directory / "cp/offsets" / str(newest)).read_text().splitlines()[1]
    watermark_ms = int(json.loads(header)["batchWatermarkMs"])
    world.check(watermark_ms > FIRST * SLOT_MS, f"the watermark stands at {watermark_ms} ms")
    allowed = max(START, (watermark_ms - (SHAPES[shape].span_ms or 0)) // SLOT_MS)
    number = world.pipeline.segments.index(SHOWN)

    def min_time() -> int:
        return world.pipeline.describe().segments[number].min_time

    world.wait(f"min time of {SHOWN} is {allowed}", lambda: min_time() >= allowed)
    world.check(min_time() == allowed, f"min time is {min_time()}, the watermark allows {allowed}")
    return watermark_ms


def results(world: World) -> list[tuple[int, int]]:
    """When each result was committed, and its last instant, in microseconds."""
    out, seen = world.directory / "out", Followed(world.directory / "cp", "parse")
    found: list[tuple[int, int]] = []
    for batch in world.batches("cp"):
        names = listed_by_sink(seen, out, batch)
        seen.listed.update(names)
        done_ns = _moment_of(world.directory / "cp/commits" / str(batch))
        for name in names:
            with open(path_of(name), encoding="utf-8") as file:
                found += [(done_ns, int(json.loads(line)["last_us"])) for line in file]
    return found


def assert_nothing_was_early(world: World) -> None:
    found = results(world)
    world.check(len(found) > 3, f"only {len(found)} results were emitted")
    heard = [
        (line["at_ns"], line["min_time"])
        for line in read(world.recorder.path)
        if line["kind"] == "heard" and line["segment"] == SHOWN and line["min_time"] < FOREVER
    ]
    world.check(len({slot for _, slot in heard}) > 2, f"heard was {heard}")
    for done_ns, last_us in found:
        slot = last_us // (SLOT_MS * 1000)
        early = [(at, t) for at, t in heard if t > slot and at < done_ns]
        world.check(not early, f"a result of slot {slot}, done at {done_ns}, and heard {early}")


def assert_all_is_out(world: World, shape: str, watermark_ms: int) -> None:
    """Every row that was not late has its part in what was emitted, as far as the watermark has come."""
    lasts = SHAPES[shape].lasts
    if lasts is None:
        return
    emitted = [last for _, last in results(world)]
    world.check(len(set(emitted)) == len(emitted), "a result was emitted twice")
    times = [time_ms(slot, number) for slot, number in world.rows() if not is_late(number)]
    due = {last for at_ms in times for last in lasts(at_ms) if last < watermark_ms * 1000}
    missing = due - set(emitted)
    world.check(len(due) > 5 and not missing, f"of {len(due)} results {len(missing)} are missing")
    newest = max(times)
    world.check(watermark_ms == newest - DELAY_MS, f"{watermark_ms}, and the newest is {newest}")


@row("6.21", "event time: a window is final and visible; kill -9 before tick and promise")
def killed(world: World) -> None:
    final_and_visible(world, "tumbling", ("tick", 2), ("sent", 4), ("durable", 6))


@row("6.22", "event time: sliding windows are final and visible")
def sliding(world: World) -> None:
    final_and_visible(world, "sliding")


@row("6.23", "event time: groups of one time are final and visible")
def groups(world: World) -> None:
    final_and_visible(world, "groups")


@row("6.24", "event time: windows of windows are final and visible")
def chained(world: World) -> None:
    final_and_visible(world, "chained")


@row("6.25", "event time: sessions are final and visible")
def sessions(world: World) -> None:
    final_and_visible(world, "sessions")


@row("6.26", "event time: outer rows of a join are final and visible, by their span")
def outer(world: World) -> None:
    final_and_visible(world, "outer")
