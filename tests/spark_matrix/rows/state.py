"""11: what a stateful query has taken and not emitted holds time; by rows, windows and what was committed.

After each step the readers of what is emitted have it all, so that nothing but the queries' holds keeps min time
back. The last rows stay in state: min time must come to them, and not pass them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from examples.children import ROOT
from tests.spark_matrix import operators as of
from tests.spark_matrix.operators import Operator
from tests.spark_matrix.registry import row
from tests.spark_matrix.stateful import FAR_KEY, FAR_MS, Events, Stateful, after, setting
from tests.spark_matrix.world import World
from tests.waits import PROGRAM_S
from tracker.errors import TrackingError
from tracker.testing.moments import MISSED

TRIES = 4
"""To kill a driver in a place that may be missed."""

Rows = Sequence[Events]
Sides = Sequence[Mapping[str, Events]]

STEPS: Rows = (
    [(1_000, 0), (3_000, 1)],
    [(7_000, 0), (12_000, 2)],
    [(16_000, 3)],
    [(14_000, 6), (24_000, 4)],
    [(33_000, 5)],
)
"""The watermark goes 0, 7, 11, 19, 28 s; a row comes out of order, and within its delay."""

SESSIONS: Rows = (
    [(1_000, 0)],
    [(5_000, 0), (12_000, 1)],
    [(9_000, 0), (16_000, 1)],
    [(20_000, 1)],
    [(24_000, 1)],
    [(40_000, 2)],
)
"""When the watermark passes 17 s, where the session of 12 s would end by itself, rows have moved its end to 29 s."""

KEYS: Sides = ({"rows": [(1_000, 0), (3_000, 1)]}, {"rows": [(2_000, 2)]}, {"rows": [(9_000, 3)]})
"""No key comes twice."""

TWICE: Rows = (
    [(1_000, 0), (3_000, 1)],
    [(1_000, 0), (7_000, 2)],
    [(16_000, 3)],
    [(33_000, 5), (33_000, 5)],
)

SIDES: Sides = (
    {"left": [(1_000, 0), (3_000, 1)], "right": [(4_000, 0)]},
    {"left": [(8_000, 2)], "right": [(12_000, 1)]},
    {"left": [(14_000, 3)], "right": [(16_000, 9)]},
    {"left": [(26_000, 4)], "right": [(20_000, 3), (28_000, 8)]},
    {"left": [(40_000, 5)], "right": [(45_000, 5)]},
)
"""Matches at once, later, and never."""


def ordinary(world: World, operator: Operator, steps: Rows | Sides) -> None:
    run = Stateful(world, operator)
    run.start(world.tracked())
    for step in steps:
        run.step(step)
    run.finish()


@row("11.1", "a tumbling window holds what it has not emitted")
def tumbling(world: World) -> None:
    ordinary(world, of.TUMBLING, STEPS)


@row("11.2", "a sliding window")
def sliding(world: World) -> None:
    ordinary(world, of.SLIDING, STEPS)


@row("11.3", "groups by event time")
def by_time(world: World) -> None:
    ordinary(world, of.AT, STEPS)


@row("11.4", "a window of the windows' own times")
def chain(world: World) -> None:
    ordinary(world, of.CHAIN, STEPS)


@row("11.5", "session windows, whose ends move")
def sessions(world: World) -> None:
    ordinary(world, of.SESSION, SESSIONS)


@row("11.6", "an inner join of two streams with watermarks, policy min")
def inner(world: World) -> None:
    ordinary(world, of.INNER, SIDES)


@row("11.7", "a left outer join")
def outer(world: World) -> None:
    ordinary(world, of.OUTER, SIDES)


@row("11.8", "a window of a join")
def join_window(world: World) -> None:
    ordinary(world, of.JOIN_WINDOW, SIDES)


@row("11.9", "state of Python code, whose span its user gives")
def python_state(world: World) -> None:
    ordinary(world, of.PYTHON, STEPS)


@row("11.10", "deduplication, update and complete mode hold nothing")
def at_once(world: World) -> None:
    run = Stateful(world, of.DISTINCT, of.DISTINCT_WITHIN, of.UPDATE, of.COMPLETE)
    run.start(world.tracked())
    for step in TWICE:
        run.step(step)
    run.finish()


# --- late rows ------------------------------------------------------------------------------------


@row("11.11", "late rows: in time for their window, and too late")
def late(world: World) -> None:
    run = Stateful(world, of.TUMBLING)
    run.start(world.tracked())
    for step in STEPS[:3]:
        run.step(step)
    run.step([(4_000, 7), (13_000, 6), (24_000, 4)], late=[0])
    run.step([(2_000, 7)], late=[0])
    run.step([(33_000, 5)])
    run.finish()


@row("11.12", "from 1970 on, no batches without data: a late row comes out with its window")
def late_at_once(world: World) -> None:
    with setting(world.spark, "spark.sql.streaming.noDataMicroBatches.enabled", "false"):
        run = Stateful(world, of.TUMBLING, base_ms=0)
        run.start(world.tracked())
        for step in ([(1_000, 0)], [(15_000, 1)], [(3_000, 2), (16_000, 3)], [(4_000, 4)]):
            run.step(step, late=[0] if step == [(4_000, 4)] else ())
        run.publish_far()
        run.step([(FAR_MS + 1, FAR_KEY + 3)])
        run.end()


@row("11.13", "a late row of a join")
def late_join(world: World) -> None:
    run = Stateful(world, of.OUTER)
    run.start(world.tracked())
    for step in SIDES[:4]:
        run.step(step)
    run.step({"left": [(5_000, 7), (23_000, 6)], "right": [(27_000, 6)]}, late=[0])
    run.step(SIDES[4])
    run.finish()


# --- several watermarks ---------------------------------------------------------------------------


POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


@row("11.14", "two watermarks, policy min: one stream is far ahead, and not in the log")
def union_min(world: World) -> None:
    with setting(world.spark, POLICY, "min"):
        ordinary(world, of.UNION, (
            {"left": [(1_000, 0), (22_000, 1)], "right": [(3_000, 2)]},
            {"left": [(35_000, 3)], "right": [(9_000, 4)]},
            {"right": [(18_000, 5)]},
            {"left": [(38_000, 6)], "right": [(41_000, 7)]},
        ))  # fmt: skip


@row("11.15", "two watermarks, policy max: rows of the stream that lags are dropped")
def union_max(world: World) -> None:
    with setting(world.spark, POLICY, "max"):
        run = Stateful(world, of.UNION)
        run.start(world.tracked())
        run.step({"left": [(1_000, 0), (12_000, 1)], "right": [(3_000, 2)]})
        run.step({"left": [(24_000, 3)], "right": [(9_000, 4)]})
        run.step({"left": [(31_000, 5)], "right": [(8_000, 6), (25_000, 7)]}, late=[1])
        run.finish()


@row("11.16", "a join, policy min: one stream is far ahead")
def join_min(world: World) -> None:
    with setting(world.spark, POLICY, "min"):
        ordinary(world, of.OUTER, (
            {"left": [(1_000, 0), (40_000, 1)], "right": [(3_000, 2)]},
            {"left": [(55_000, 3)], "right": [(9_000, 0)]},
            {"right": [(18_000, 5)]},
            {"left": [(57_000, 6)], "right": [(45_000, 1)]},
            {"right": [(62_000, 3)]},
        ))  # fmt: skip


@row("11.17", "a join, policy max: rows of the stream that lags are dropped")
def join_max(world: World) -> None:
    with setting(world.spark, POLICY, "max"):
        run = Stateful(world, of.INNER)
        run.start(world.tracked())
        run.step({"left": [(1_000, 0), (3_000, 1)], "right": [(4_000, 0)]})
        run.step({"left": [(8_000, 2)], "right": [(12_000, 1)]})
        run.step({"left": [(14_000, 3)], "right": [(21_000, 3)]})
        run.step({"left": [(9_000, 4)], "right": [(24_000, 9)]}, late=[0])
        run.step({"left": [(40_000, 5)], "right": [(45_000, 5)]})
        run.finish()


# --- availableNow ---------------------------------------------------------------------------------


@row("11.18", "availableNow leaves windows and rows of a join in state; a later run emits them")
def available_now(world: World) -> None:
    run = Stateful(world, of.TUMBLING, of.OUTER)
    steps = [{"rows": rows, **sides} for rows, sides in zip(STEPS, SIDES, strict=True)]
    for first, last in ((0, 2), (2, 4), (4, 5)):
        for step in steps[first:last]:
            run.publish(step)
        run.run_now(world.tracked())
        left_in_state(run)
    run.publish_far()
    run.run_now(world.tracked())
    run.end()


def left_in_state(run: Stateful) -> None:
    """Min time waits for what a query that has ended left in state, however long the fronts go on."""
    state = run.fronts.describe()
    for operator in run.operators:
        segment = run.fronts.segments.index(after(operator))
        stands = state.segments[segment].min_time
        run.world.check(
            stands <= run.slot,
            f"min time {stands} of {operator.name} has passed what it left in state",
        )


# --- the driver killed ----------------------------------------------------------------------------


def run_driver(
    world: World, run: Stateful, point: str, batch: int = 0, how: str = "classic"
) -> bool:
    """Runs a driver until it kills itself with all queries at one place, or to its end at `none` and `refused`. False
    where it missed the place, which is some milliseconds wide for `commit`."""
    (world.directory / "inputs.json").write_text(json.dumps(run.inputs))
    command = [
        sys.executable, "-m", "tests.spark_matrix.state_driver", world.target, world.name,
        str(world.directory), point, str(batch), "unheld" if world.unheld else "held",
        how, *(operator.name for operator in run.operators),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, capture_output=True, check=False)
    is_missed = point == "commit" and ended.returncode == MISSED
    wanted = 0 if point in ("none", "refused") else -signal.SIGKILL
    if ended.returncode != wanted and not is_missed:
        lines = ended.stderr.decode(errors="replace").splitlines()
        said = "\n".join(
            line for line in lines if not line.lstrip().startswith(("at ", "org.apache."))
        )
        world.fail(f"the driver ended with status {ended.returncode}: {said[-3000:]}")
    return not is_missed


def killed(world: World, steps: Sides, *operators: Operator) -> None:
    """Killed with `commits/1` there and its tick not told; then in the middle of the batch after; then it goes on in
    this session."""
    run = Stateful(world, *operators)
    for step in steps[:2]:
        run.publish(step)
    run_driver(world, run, "tick", 1)
    run.start_readers()
    run.publish(steps[2])
    run_driver(world, run, "tasks", 2)
    run.start(world.tracked())
    run.settle()
    for step in steps[3:]:
        run.step(step)
    run.finish()


@row(
    "11.19",
    "driver killed before the ticks of windows and Python state, and in the middle of their next batches",
)
def windows_killed(world: World) -> None:
    steps = [{"rows": step} for step in STEPS]
    killed(world, steps, of.TUMBLING, of.SLIDING, of.AT, of.CHAIN, of.SESSION, of.PYTHON)


@row("11.20", "driver killed before the ticks of joins, and in the middle of their next batches")
def joins_killed(world: World) -> None:
    killed(world, SIDES, of.INNER, of.OUTER, of.JOIN_WINDOW)


@row("11.21", "a right outer join")
def right(world: World) -> None:
    ordinary(world, of.RIGHT, SIDES)


@row("11.22", "a full outer join: both sides wait for the watermark")
def full(world: World) -> None:
    ordinary(world, of.FULL, SIDES)


@row("11.23", "transformWithState, timers of event time, whose span its user gives")
def timers(world: World) -> None:
    ordinary(world, of.TIMERS, STEPS)


@row("11.24", "driver killed before the ticks of right and full outer joins, and in the middle")
def outer_joins_killed(world: World) -> None:
    killed(world, SIDES, of.RIGHT, of.FULL)


@row("11.25", "driver killed before the tick of transformWithState, and in the middle")
def timers_killed(world: World) -> None:
    killed(world, [{"rows": step} for step in STEPS], of.TIMERS)


def by_clock(world: World, *operators: Operator) -> Stateful:
    """What a clock lets go of comes without any further row."""
    run = Stateful(world, *operators)
    run.start(world.tracked())
    for step in KEYS:
        run.publish(step)
        run.settle_by_clock()
    return run


@row("11.26", "applyInPandasWithState, timeouts of processing time, held until its state is empty")
def python_clock(world: World) -> None:
    by_clock(world, of.PYTHON_CLOCK).end_by_clock()


@row("11.27", "transformWithState, timers of processing time alone; at its end it comes to rest")
def timers_clock(world: World) -> None:
    by_clock(world, of.TIMERS_CLOCK).rest_by_clock()


@row("11.28", "transformWithState, state that only its time to live ends")
def ttl(world: World) -> None:
    by_clock(world, of.TTL).end_by_clock()


@row("11.29", "driver killed before the ticks of processing time and TTL, and in the middle")
def clocks_killed(world: World) -> None:
    run = Stateful(world, of.PYTHON_CLOCK, of.TIMERS_CLOCK, of.TTL)
    run.publish(KEYS[0])
    run_driver(world, run, "tick", 0)
    run.start_readers()
    run.publish(KEYS[1])
    run_driver(world, run, "tasks", 1)
    run.start(world.tracked())
    run.publish(KEYS[2])
    run.settle_by_clock()
    run.end_by_clock()


def outside(world: World, *operators: Operator) -> Stateful:
    """Queries whose plans nobody sees. Their event times are near the clock, which bounds what no watermark tells."""
    said = map(of.outside, operators)
    return Stateful(world, *said, base_ms=time.time_ns() // 10**6)


def follow_plain(run: Stateful, first: Mapping[str, Events]) -> None:
    """Starts queries that know nothing of Lowmark, lets them take in the first rows, and follows them."""
    run.publish(first)
    run.start(None)
    for query in run.queries.values():
        query.processAllAvailable()
    run.attach()


@row(
    "11.30",
    "a window followed from outside, its driver killed between its sink's and Spark's commits",
)
def attached_killed_between(world: World) -> None:
    """Spark does not evaluate the batch again, so that no watermark ever knows of its rows, and no log says so. Rows
    after it move the watermark beyond all that it says of the batch, and not to the end of the batch's window."""
    run = outside(world, of.TUMBLING)
    (operator,) = run.operators
    run.operators = (replace(operator, span_ms=of.WINDOW_MS, delay_ms=of.DELAY_MS),)
    follow_plain(run, {"rows": [(1_000, 0), (3_000, 1)]})
    run.step([(7_000, 0), (12_000, 2)])
    offsets = world.directory / f"cp-{operator.name}" / "offsets"
    for later_ms in range(0, TRIES * 40_000, 40_000):
        run.queries[operator.name].stop()
        run.publish({"rows": [(later_ms + 33_000, 5)]})
        planned = [int(path.name) for path in offsets.glob("[0-9]*")]
        if run_driver(world, run, "commit", max(planned) + 1, "plain"):
            break
        run.start(None)
        run.settle()
    else:
        world.fail("the driver was never caught between the two commits")
    run.start(None)
    run.settle()
    run.step([(later_ms + 29_000, 6)])
    run.step([(later_ms + 29_500, 7)])
    run.finish()


def attached_killed(world: World, steps: Sides, *operators: Operator) -> None:
    """Followed from outside; their driver is killed in the middle of a batch, and they go on elsewhere."""
    run = outside(world, *operators)
    follow_plain(run, steps[0])
    run.step(steps[1])
    for query in run.queries.values():
        query.stop()
    run.publish(steps[2])
    run_driver(world, run, "tasks", how="plain")
    run.start(None)
    run.settle()
    for step in steps[3:]:
        run.step(step)
    run.finish()


@row("11.31", "windows and Python state followed from outside, their driver killed in a batch")
def attached_windows(world: World) -> None:
    steps = [{"rows": step} for step in STEPS]
    attached_killed(world, steps, of.TUMBLING, of.SLIDING, of.AT, of.CHAIN, of.SESSION, of.PYTHON)


@row("11.32", "joins followed from outside, their driver killed in a batch")
def attached_joins(world: World) -> None:
    attached_killed(world, SIDES, of.INNER, of.OUTER, of.RIGHT, of.FULL, of.JOIN_WINDOW)


@row("11.33", "transformWithState, timers of event time, followed from outside, killed in a batch")
def attached_timers(world: World) -> None:
    attached_killed(world, [{"rows": step} for step in STEPS], of.TIMERS)


def connect_killed(world: World, steps: Sides, *operators: Operator) -> None:
    """In Spark Connect sessions: program and server are killed before the ticks of a batch, and in the middle of the
    next."""
    run = outside(world, *operators)
    for step in steps[:2]:
        run.publish(step)
    run_driver(world, run, "tick", 1, "connect")
    run.start_readers()
    run.publish(steps[2])
    run_driver(world, run, "tasks", 2, "connect")
    for step in steps[3:]:
        run.publish(step)
    run.publish_far()
    run_driver(world, run, "none", how="connect")
    run.read_on()
    run.end()


@row(
    "11.34",
    "windows and Python state of a Spark Connect session, killed with its server",
    since="4.0",
)
def connect_windows(world: World) -> None:
    steps = [{"rows": step} for step in STEPS]
    connect_killed(world, steps, of.TUMBLING, of.SLIDING, of.AT, of.CHAIN, of.SESSION, of.PYTHON)


@row("11.35", "joins of a Spark Connect session, killed with its server", since="4.0")
def connect_joins(world: World) -> None:
    connect_killed(world, SIDES, of.INNER, of.OUTER, of.RIGHT, of.FULL, of.JOIN_WINDOW)


@row(
    "11.36",
    "timeouts by the clock followed from outside, killed in a batch: held as its user says",
)
def attached_clock(world: World) -> None:
    """No log tells what a timeout by the clock lets go of, nor that it is by one. What its user says holds it until
    later rows have moved the watermark beyond all that may be in state."""
    run = outside(world, of.PYTHON_CLOCK)
    run.publish(KEYS[0])
    run.start(None)
    run.attach()
    run.settle_by_clock()
    for query in run.queries.values():
        query.stop()
    run.publish(KEYS[1])
    run_driver(world, run, "tasks", how="plain")
    run.start(None)
    run.publish(KEYS[2])
    run.settle_by_clock()
    left_in_state(run)
    run.publish_far()
    run.settle_by_clock()
    run.stop_between_batches(None)
    run.read_on()
    run.end()


@row(
    "11.37",
    "transformWithState by the clock and TTL, followed from outside: refused, and held in a session",
)
def attached_clocks_refused(world: World) -> None:
    """The checkpoint tells it since the first batch. A driver of its own then takes the queries over, and is killed; at
    last they go on here."""
    run = outside(world, of.TIMERS_CLOCK, of.TTL)
    run.publish(KEYS[0])
    run.start(None)
    for operator in run.operators:
        first = world.directory / f"cp-{operator.name}" / "commits" / "0"
        world.wait(f"{operator.name} has committed a batch", first.exists)
        refusal = ""
        try:
            run.attached(operator).start()
        except TrackingError as error:
            refusal = str(error)
        world.check(operator.name in refusal and "by the clock" in refusal, f"said: {refusal!r}")
    for query in run.queries.values():
        query.stop()
    run.operators = (of.TIMERS_CLOCK, of.TTL)
    run.publish(KEYS[1])
    run_driver(world, run, "tasks")
    run.start(world.tracked())
    run.settle_by_clock()
    run.end_by_clock()


@row(
    "11.38",
    "transformWithState, timers of event time, of a Spark Connect session, killed with its server",
    since="4.0",
)
def connect_timers(world: World) -> None:
    connect_killed(world, [{"rows": step} for step in STEPS], of.TIMERS)


@row(
    "11.39",
    "state by the clock and TTL of a Spark Connect session: refused, and held in a classic one",
    since="4.0",
)
def connect_clocks_refused(world: World) -> None:
    operators = of.PYTHON_CLOCK, of.TIMERS_CLOCK, of.TTL
    run = outside(world, *operators)
    run.publish(KEYS[0])
    run_driver(world, run, "refused", how="connect")
    run.operators = operators
    run_driver(world, run, "tasks")
    run.start(world.tracked())
    run.settle_by_clock()
    run.end_by_clock()
