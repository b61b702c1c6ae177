"""Flights run through Spark queries while a segment with a query is added in the middle, another is removed, and the
tracker's processes are ended and started again one by one: those of the release before as this one, back, and for good.

    python -m tests.change [--seconds 60] [--sabotage early|lost|halved|straggler]

Ends with `change: OK flights=336776 ...`, or with what was wrong and `change: FAILED ...`. With --sabotage something is planted,
and the run must fail: `early` and `lost` are those of `tests.sabotage`, `halved` has one process of the tracker reckon without new
edges, `straggler` lets the query of the removed segment run on.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from typing import Any

from examples import history as histories
from examples.flights.data import FLIGHTS
from examples.flights.expected import expected
from examples.flights.form import DemoFailed
from examples.flights.proof import Result, differences
from examples.flights.run import Outcome, one_at_a_time, replay_year
from scripts.summary import BUILD, finish
from tests.change.judging import longest_pause, read_tables, wrong_tables
from tests.change.pipeline import REMOVED, ChangePlaces
from tests.change.run import Changing, form
from tests.check.history import FOREVER
from tests.check.judging import judge
from tracker.core.model.levels import NEWEST_LEVEL

NAME = "change"
SECONDS = 60.0
SABOTAGES = ("early", "lost", "halved", "straggler")
MOST_PAUSE_S = 1.0
"""By how much longer nothing may be announced while something happens to the tracker, than while nothing does."""
SHOWN = 10


def run(seconds: float, sabotage: str) -> tuple[Changing, Outcome]:
    """Lets it all happen; returns what is left."""
    places = ChangePlaces(BUILD / NAME)
    shutil.rmtree(places.root, ignore_errors=True)
    places.make()
    outcome, what = Outcome(), form(sabotage)
    with what.around(places) as programs:
        changing = Changing(what, programs, places, seconds, sabotage or None)
        replay_year(changing, outcome)
    return changing, outcome


def prove(changing: Changing, outcome: Outcome) -> dict[str, Any]:
    """What came of a run, judged by what Spark and the subscribers have left."""
    places = changing.places
    assert isinstance(places, ChangePlaces)
    history = BUILD / f"{NAME}-history.jsonl"
    lines = histories.merge(places.histories.glob("*.jsonl"), history)
    judged, told = judge(history), histories.read(history)
    wrong: list[str] = []
    if len(changing.stopped_ns) == 2:
        complete_ns = min(
            (each["at_ns"] for each in told if each["kind"] == "heard"
             and each["segment"] == REMOVED and each["min_time"] == FOREVER),
            default=FOREVER,
        )  # fmt: skip
        tables, truth = read_tables(places), expected()
        stopped_ns = changing.stopped_ns[0], changing.stopped_ns[1]
        by_wall_ns = complete_ns + time.time_ns() - time.monotonic_ns()
        wrong += wrong_tables(tables, truth, stopped_ns, by_wall_ns)
        result = Result(changing.form.totals(places), tables.malformed)
        wrong += differences(result, truth)
        outcome.flights = result.flights
    pause = longest_pause(told, changing.happened, meanwhile=True)
    return {
        "false": judged.false, "lost": judged.lost, "wrong": len(wrong),
        "pause": pause, "otherwise": longest_pause(told, changing.happened, meanwhile=False),
        "problems": [*outcome.problems, *wrong, *([] if judged.ok else judged.said)],
        "check": judged.said[-1], "history_lines": lines,
    }  # fmt: skip


def summary(changing: Changing, outcome: Outcome, proof: dict[str, Any]) -> dict[str, Any]:
    """What the last line shows."""
    ends = [each.what for each in changing.happened if "stopped" in each.what]
    kills = [each.what for each in changing.happened if "killed" in each.what]
    return {
        "flights": outcome.flights,
        "changes": sum("segment is" in each.what for each in changing.happened),
        "stops": len(ends), "kills": len(kills),
        "upgraded": sum("this release" in each.what for each in changing.happened),
        "taken_back": sum("release before" in each.what for each in changing.happened),
        "level": changing.level,
        "announcements": outcome.announcements,
        **{key: proof[key] for key in ("false", "lost", "wrong")},
        "pause_ms": round(1000 * proof["pause"].seconds),
        "otherwise_ms": round(1000 * proof["otherwise"].seconds),
        "seconds": round(outcome.seconds),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.change", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the year lasts")
    parser.add_argument("--sabotage", choices=SABOTAGES, default="")
    options = parser.parse_args()
    # As Ctrl-C: every process that was started is ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began_s = time.monotonic()
    try:
        with one_at_a_time(BUILD, NAME):
            changing, outcome = run(options.seconds, options.sabotage)
            proof = prove(changing, outcome)
    except DemoFailed as error:
        print(f"{NAME}: FAILED {error}")
        return 1
    except KeyboardInterrupt:
        return finish(NAME, ok=False, shown={"interrupted": True}, details={})
    outcome.seconds = time.monotonic() - began_s
    pause, problems = proof.pop("pause"), proof.pop("problems")
    otherwise = proof.pop("otherwise")
    if changing.level != NEWEST_LEVEL:
        problems.append(f"all record by level {changing.level}, not {NEWEST_LEVEL}")
    if outcome.flights != FLIGHTS:
        problems.append(f"{outcome.flights} flights were counted, there are {FLIGHTS}")
    if pause.seconds - otherwise.seconds > MOST_PAUSE_S:
        problems.append(
            f"nothing was announced for {pause.seconds:.2f} s while {', '.join(pause.meanwhile)}, "
            f"and for {otherwise.seconds:.2f} s while nothing happened to the tracker"
        )
    for problem in problems[:SHOWN]:
        print(problem)
    proof |= {"pause": pause, "otherwise": otherwise}
    shown = summary(changing, outcome, proof)
    details = {
        "happened": [
            {"what": each.what, "seconds": round((each.to_ns - each.from_ns) / 1e9, 2)}
            for each in changing.happened
        ],
        "pause_meanwhile": list(pause.meanwhile), "check": proof["check"],
        "history_lines": proof["history_lines"], "problems": problems,
    }  # fmt: skip
    return finish(NAME, ok=not problems, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
