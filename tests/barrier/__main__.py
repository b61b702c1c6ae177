"""Sixty seconds of load into each sink of a barrier, with kills of barrier, driver and tracker; then counts.

    python -m tests.barrier [--sinks postgres,kafka,delta] [--seconds 60] [--kills 20] [--seed 19]
                            [--sabotage early|lost|double|order]

With --sabotage the barrier has a planted fault, the runs are shorter, and the whole must fail.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections import Counter
from typing import Any

from scripts.summary import BUILD, finish
from tests.barrier.barrier_process import FAULTS
from tests.barrier.places import PLACES
from tests.barrier.run import BarrierRun, judged
from tests.waits import HANG_S

SECONDS, KILLS = 60.0, 20
SABOTAGED_SECONDS, SABOTAGED_KILLS, SABOTAGED_DRAIN_S = 15.0, 3, 90.0
COUNTED = ("lost", "twice", "misplaced", "early", "changed", "invented")
SHOWN = 10


def run_sink(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """One sink; what came of it."""
    directory = BUILD / "barrier" / kind
    make, missing = PLACES[kind]
    if why := missing():
        print(f"{kind}: skipped: {why}", flush=True)
        return {"skipped": why}
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    place = make(directory / "sink")
    try:
        run = BarrierRun(directory / "run", place, f"{options.seed} {kind}", options.sabotage)
        drain_s = SABOTAGED_DRAIN_S if options.sabotage else HANG_S
        outcome = run.run(options.seconds, options.kills, drain_s)
    finally:
        place.close()
    well, said = judged(outcome.history)
    found = _counted(said)
    result = {
        "rows_in": outcome.rows_in, "rows_out": outcome.rows_out, "kills": dict(outcome.kills),
        "seconds": outcome.seconds, "trouble": outcome.trouble, "judged": well,
        "violations": {kind: found[kind] for kind in COUNTED}, "said": said[-SHOWN:],
    }  # fmt: skip
    for line in [*outcome.trouble.splitlines()[:SHOWN], *said[-SHOWN:]]:
        print(f"{kind}: {line}", flush=True)
    return result


def _counted(said: list[str]) -> Counter[str]:
    """Violations by their kinds, of which the judge shows a few and says how many more there are."""
    found: Counter[str] = Counter()
    for line in said[:-1]:
        kind, _, what = line.partition(": ")
        more = re.fullmatch(r"(\d+) more", what)
        found[kind] += int(more[1]) if more else 1
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.barrier")
    parser.add_argument("--sinks", default=",".join(PLACES))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--sabotage", choices=["", *FAULTS], default="")
    options = parser.parse_args(arguments)
    quick = bool(options.sabotage)
    options.seconds = options.seconds or (SABOTAGED_SECONDS if quick else SECONDS)
    options.kills = options.kills or (SABOTAGED_KILLS if quick else KILLS)
    results = {kind: run_sink(kind, options) for kind in options.sinks.split(",")}
    made = {kind: result for kind, result in results.items() if "skipped" not in result}
    skipped = [kind for kind in results if kind not in made]
    kills = sum((Counter(result["kills"]) for result in made.values()), Counter[str]())
    violations = sum((Counter(result["violations"]) for result in made.values()), Counter[str]())
    shown: dict[str, object] = {
        "sinks": len(made),
        "rows_in": sum(result["rows_in"] for result in made.values()),
        "rows_out": sum(result["rows_out"] for result in made.values()),
        "twice": violations["twice"], "misplaced": violations["misplaced"],
        "lost": violations["lost"], "early": violations["early"], "kills": sum(kills.values()),
        **{f"{victim}_kills": count for victim, count in sorted(kills.items())},
    }  # fmt: skip
    if skipped:
        shown["skipped"] = ",".join(skipped)
    ok = bool(made) and all(
        result["judged"] and not result["trouble"] and result["rows_in"] == result["rows_out"]
        and sum(result["kills"].values()) >= options.kills
        for result in made.values()
    )  # fmt: skip
    details = {"seed": options.seed, "machine_load": os.getloadavg()[0], "runs": results}
    missing = (
        "" if made else "; ".join(f"{kind}: {each['skipped']}" for kind, each in results.items())
    )
    return finish("barrier", ok=ok, shown=shown, details=details, skipped=missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
