"""Holds runs of the core that ships to the proof: `python -m tests.proof.bridge --schedules N`.

Every step that a run takes has to be one that the system allows, has to lead to just the state in which the core is, and every invariant has to
hold there. Prints what is not so, and how often each step was taken. Writes build/bridge.json, ends with one line. With
`--fault` a fault is in the core, and the first schedule that shows it ends the search.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from scripts.summary import finish
from tests.proof.bridge.planted import planted
from tests.proof.bridge.runs import Outcome, hold
from tests.proof.bridge.wider import OUTSIDE, WIDER
from tests.proof.protocol import STEPS


def outcomes(first: int, schedules: int, fault: str | None) -> list[Outcome]:
    """Of so many schedules; of a core with a fault, up to the one that shows it."""
    held = []
    with planted(fault) if fault else nullcontext():
        for schedule in range(first, first + schedules):
            held.append(hold(schedule))
            if held[-1].problem:
                print(f"schedule {schedule}: {held[-1].problem}", flush=True)
                if fault:
                    break
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.bridge", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--fault", help="a mutation, or a fault that the simulator's tests plant")
    given = parser.parse_args()
    began = time.monotonic()
    held = outcomes(given.first, given.schedules, given.fault)
    taken = sum((each.taken for each in held), Counter[str]())
    wider = {step.name: "wider than what protocol.py has, and proven" for step in WIDER.values()}
    outside = {step.name: "OUTSIDE OF THE PROOF" for step in OUTSIDE.values()}
    steps = [*STEPS, *wider, *outside]
    for step in steps:
        print(f"{step:<24} {taken[step]:>9,} {(wider | outside).get(step, '')}".rstrip())
    problems = [each for each in held if each.problem]
    shown: dict[str, object] = {
        "schedules": len(held),
        "events": sum(each.moments for each in held),
        "steps": taken.total(),
        "kinds": len([step for step in steps if taken[step]]),
        "of": len(steps),
        "outside": sum(taken[step] for step in outside),
        "states": sum(each.states for each in held),
        "announcing": sum(each.announced for each in held),
        "problems": len(problems),
        "seconds": round(time.monotonic() - began, 1),
    }
    details = {
        "taken": {step: taken[step] for step in steps},
        "found": [{"schedule": each.schedule, "says": each.problem} for each in problems],
    }
    return finish("bridge", ok=not problems, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
