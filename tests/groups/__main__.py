"""Three groups as real processes, and thirty pipelines whose nodes tick all the time, while pipelines move, groups are drained, a
fourth comes, processes are killed at any step of a move, the directory is away and a group is stopped.

    python -m tests.groups [--seconds 600] [--pipelines 30] [--seed 1] [--quick] [--sabotage early|lost|double|twice]

What nodes were acknowledged and by whom, what subscribers heard, and what each group said that it has is recorded, and judged by
`tests.check`, a history a pipeline. With --sabotage all processes have a planted fault, pipelines only move, and the whole must fail.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from scripts.summary import BUILD, finish
from tests.check.judging import Judged
from tests.groups.schedule import DEATHS, SOME_DEATHS, Events, Form
from tests.groups.system import Deployment
from tests.waits import HANG_S

NAME = "groups"
SECONDS, PIPELINES = 600.0, 30
WHOLE = Form(SECONDS, DEATHS, away_s=60.0, stopped_s=20.0, given_up=1)
QUICK = Form(60.0, SOME_DEATHS, away_s=15.0, stopped_s=15.0, given_up=0)
SABOTAGED_MOVES = 12
SABOTAGED_FINISH_S = 20.0
SABOTAGES = ("early", "lost", "double", "twice")
KINDS = {
    "false completion": "false", "regress": "back", "counted twice": "twice", "in two": "in_two", "stood still": "stood_still",
}  # fmt: skip
"""What the checker calls what it counts; everything else is lost."""
FOUND = ("false", "lost", "back", "twice", "in_two", "stood_still")
COUNTED = ("moves", "drains", "kills", "pauses", "groups_added")
_STILL = re.compile(r" still_ms=(\d+)")
SHOWN = 10


def run(form: Form, given: argparse.Namespace) -> dict[str, Any]:
    """Lets it all happen; returns what came of it."""
    directory = BUILD / NAME
    shutil.rmtree(directory, ignore_errors=True)
    finish_s = SABOTAGED_FINISH_S if given.sabotage else HANG_S
    deployment = Deployment(directory, given.pipelines, sabotage=given.sabotage, finish_s=finish_s)
    began_s, trouble = time.monotonic(), ""
    try:
        deployment.start()
        events = Events(deployment, given.seed)
        print(f"it goes on after {time.monotonic() - began_s:.1f} s", flush=True)
        try:
            if given.sabotage:
                events.only_moves(SABOTAGED_MOVES)
            else:
                events.run(form)
            deployment.finish()
        except AssertionError as error:
            trouble = str(error)
            print(f"{NAME}: {trouble}", flush=True)
        judged = deployment.judge()
        return {
            **{name: events.counts[name] for name in (*COUNTED, "given_up")}, **deployment.counted(), **found(judged),
            "worst_still_s": worst_still_s(judged), "seconds": round(time.monotonic() - began_s),
            "stayed": events.stayed, "trouble": trouble,
            "violations": [f"{name}: {line}" for name, each in judged.items() if not each.ok for line in each.said],
        }  # fmt: skip
    finally:
        deployment.close()


def found(judged: dict[str, Judged]) -> dict[str, int]:
    """What was found, by kind, of all pipelines together."""
    counts: Counter[str] = Counter()
    for each in judged.values():
        for kind, count in each.by_kind.items():
            counts[KINDS.get(kind, "lost")] += count
    return {name: counts[name] for name in FOUND}


def worst_still_s(judged: dict[str, Judged]) -> float:
    """For how long any pipeline stood still, where there was no reason."""
    told = [_STILL.search(each.said[-1]) for each in judged.values()]
    return max((int(each[1]) for each in told if each), default=0) / 1000


def why_wrong(came: dict[str, Any]) -> list[str]:
    """Why the run has failed."""
    wrong = [f"{came[name]} x {name}" for name in FOUND if came[name]]
    wrong += came["trouble"].splitlines()[:1]
    return wrong + [f"there were no {name}" for name in COUNTED if not came[name]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.groups")
    parser.add_argument("--seconds", type=float, help="how long things happen, at the least")
    parser.add_argument("--pipelines", type=int, default=PIPELINES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="some of all that happens")
    parser.add_argument("--sabotage", choices=SABOTAGES, default="")
    given = parser.parse_args(arguments)
    form = QUICK if given.quick else WHOLE
    if given.seconds is not None:
        form = replace(form, seconds=given.seconds)
    came = run(form, given)
    wrong = why_wrong(came)
    for line in [*came["violations"][:SHOWN], *(f"{NAME}: {reason}" for reason in wrong)]:
        print(line, flush=True)
    shown = {
        name: came.pop(name)
        for name in (
            *COUNTED,
            "given_up",
            "acknowledged",
            "announcements",
            *FOUND,
            "worst_still_s",
            "seconds",
        )
    }
    return finish(NAME, ok=not wrong, shown=shown, details={**came, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
