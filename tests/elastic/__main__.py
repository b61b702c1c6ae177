"""Rescales a real tracker under a steady load, lets fronts and nodes come and go, and judges what was
said meanwhile.

    python -m tests.elastic [--sabotage early|lost|double] [--only PART ...] [--directory DIRECTORY]

Parts: rescaling (1, 2, 4, 3, 1 shards, the last with an evacuation; latency by seconds, beside runs in
which nothing changes), comings (fronts and nodes that come and go by the hundred, and a shared directory
whose members are killed, while the tracker is rescaled), words (a word count in Spark whose state is
repartitioned), experiments (what docs/elasticity.md shows). With --sabotage the tracker has a planted
fault, only a short rescaling is made, and the whole must fail.

All is written to build/elastic.json. The pictures in docs/img stay as they are, since a check must not
change what it is recorded for; `python -m tests.elastic.plots` draws them anew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.bars import BARS
from benchmarks.machine import described, machine
from benchmarks.pairs import Verdict
from scripts.summary import BUILD, ROOT, finish
from tests.cluster.children import Running
from tests.cluster.told import end_with_parent
from tests.elastic import churn
from tests.elastic.rescaling import Run, fresh, rescaled, rounds_made
from tests.elastic.verdicts import Bounds, verdict
from tests.sabotage import FAULTS

PARTS = ("rescaling", "comings", "words", "experiments")
EXPERIMENTS = ("original", "overhead", "saturated", "simulated", "halfload", "sizes", "bootstrap")
BAR = BARS["latency while shards come and go"]
PAIRS, THREADS = 600, 4
SHARED_S = 12.0
WORDS_SHARDS, WORDS_PARTITIONS, WORDS_MOST_S = 2, 4, 300
EXPERIMENT_MOST_S = 240
SHOWN = 10


class Found:
    """What the parts came to, together."""

    def __init__(self, before: dict[str, Any]) -> None:
        """before: the details of the last run, which stay for what is not made anew."""
        self.before = before
        self.wrong: list[str] = []
        self.details: dict[str, Any] = {}
        self.shown: dict[str, Any] = {
            "rescales": 0, "moved_cells": 0, "joins": 0, "leaves": 0, "false": 0, "lost": 0,
            "worst_latency_ratio": 0.0,
        }  # fmt: skip

    def judged(self, what: str, said: list[str], false: int, lost: int) -> None:
        """What the checker says of a history; its last line is the verdict."""
        self.shown["false"] += false
        self.shown["lost"] += lost
        self.wrong += [f"{what}: {line}" for line in said if not line.startswith("check: OK")][
            :SHOWN
        ]

    def run(self, what: str, run: Run) -> None:
        if run.trouble:
            self.wrong.append(f"{what}: {run.trouble.splitlines()[0]}")
            print(f"{what}: {run.trouble}", flush=True)
        for judged in run.judged:
            self.judged(what, judged.said, judged.false, judged.lost)
        self.shown["rescales"] += run.rescales
        self.shown["moved_cells"] += run.moved_cells


def rescaling(root: Path, found: Found) -> None:
    """Rounds until those that can be judged are enough. What is false or lost fails in any case; that the
    ratio cannot be judged is said, and is no failure."""
    rounds: list[dict[str, Any]] = []
    bounds: list[Bounds] = []
    for turn, made in enumerate(rounds_made(root, BAR)):
        for what, run in made.runs.items():
            found.run(what, run)
        if made.trouble:
            return
        bounds.append(made.bounds)
        rounds.append(made.as_data())
        _tell(turn, rounds[-1])
        _say_verdict(made.bounds)
    found.details["rescaling"] = rounds
    judged = verdict(bounds, BAR)
    worst = max(each.worst_ratio for each in bounds)
    found.shown["worst_latency_ratio"] = round(worst, 2)
    found.shown["latency"] = judged.value.replace(" ", "_")
    if judged is Verdict.NOT_MET:
        found.wrong.append(
            f"rescaling: p99 of a second is {worst:.2f} times that of a run in which nothing changes; at "
            f"most {BAR.limit:g} times is due"
        )


def _say_verdict(bounds: Bounds) -> None:
    why = bounds.why_untold(BAR)
    told = bounds.verdict(BAR).value
    print(f"  at most {BAR.limit:g} is due: {told}{f': {why}' if why else ''}", flush=True)


def _tell(turn: int, each: dict[str, Any]) -> None:
    controls = ", ".join(
        f"{shards}: {before:.1f} and {after:.1f} ms"
        for shards, (before, after) in each["steady_p99_ms"].items()
    )
    print(f"round {turn}: steady p99 by shards, before and after: {controls}", flush=True)
    print(f"  load {each['load']:.2f} of the machine, at most", flush=True)
    run = each["run"]
    for event in run["events"]:
        print(f"  {event['what']}: {event['from_s']:.1f} to {event['to_s']:.1f} s", flush=True)
    seconds = " ".join(
        f"{w['p99_ms']:.0f}({r:.1f})" for w, r in zip(run["windows"], each["ratios"], strict=True)
    )
    print(f"  p99 of each second, ms (ratio): {seconds}", flush=True)
    print(
        f"  worst ratio {each['worst_ratio']:.2f}; of a second of the controls "
        f"{each['worst_steady_ratio']:.2f}; to one shard {each['worst_ratio_to_one_shard']:.2f}",
        flush=True,
    )


def comings(root: Path, found: Found) -> None:
    came = churn.come_and_go(fresh(root, "comings"), PAIRS, THREADS, SHARED_S)
    found.details["comings"] = came.as_data()
    found.shown["joins"] += came.joins
    found.shown["leaves"] += came.leaves
    found.shown["rescales"] += came.rescales
    found.shown["moved_cells"] += came.moved_cells
    found.wrong += [f"comings: {wrong}" for wrong in came.wrong]
    for judged in came.judged:
        found.judged("comings", judged.said, judged.false, judged.lost)


def words(root: Path, found: Found) -> None:
    """In a process of its own, which ends with this one, and its JVM with that."""
    directory = fresh(root, "words")
    directory.mkdir(parents=True)
    counting = Running(
        "tests.elastic.words", str(directory), str(WORDS_SHARDS), str(WORDS_PARTITIONS),
        errors=directory / "words.log",
    )  # fmt: skip
    with counting:
        counting.ends_well(WORDS_MOST_S)
    came = json.loads(counting.lines[-1][1])
    found.details["words"] = came
    found.shown["rescales"] += 1
    found.judged("words", [*came["wrong"], came["judged"]], came["false"], came["lost"])


def experiments(root: Path, found: Found, chosen: Sequence[str]) -> None:
    """Each in a process of its own, which no other one has warmed or filled."""
    found.details["experiments"] = found.before.get("experiments", {})
    for name in chosen:
        began_s = time.monotonic()
        result = root / f"{name}.json"
        result.unlink(missing_ok=True)
        root.mkdir(parents=True, exist_ok=True)
        log = root / f"{name}.log"
        process = Running("tests.elastic.experiments", name, str(root), str(result), errors=log)
        try:
            with process:
                process.ends_well(EXPERIMENT_MOST_S)
            found.details["experiments"][name] = json.loads(result.read_text())
        except AssertionError:
            why = log.read_text(errors="replace").strip().splitlines()[-1:]
            found.wrong.append(f"experiment {name} has failed: {' '.join(why)}")
        print(f"experiment {name}: {time.monotonic() - began_s:.0f} s", flush=True)


def sabotaged(root: Path, found: Found, sabotage: str) -> None:
    run = rescaled(
        fresh(root, "sabotaged"), 3.0, steps=((2, False), (1, True)), standing_cells=100,
        sabotage=sabotage, finish_s=20.0  # expires: with a planted fault,
    )  # fmt: skip
    found.run(f"with {sabotage!r} planted", run)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.elastic")
    parser.add_argument("--sabotage", choices=sorted(FAULTS), default="")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument(
        "--directory", type=Path, help="of stores and histories; in memory if not given"
    )
    given = parser.parse_args(arguments)
    if "LOWMARK_ELASTIC" not in os.environ:
        return _in_a_group(arguments)
    end_with_parent()
    root = given.directory or (MEMORY if MEMORY.parent.is_dir() else BUILD / "elastic")
    facts, found, began_s = machine(), Found(_before(given)), time.monotonic()
    print(described(facts), flush=True)
    parts: dict[str, Callable[[Path, Found], None]] = {
        "rescaling": rescaling, "comings": comings, "words": words,
        "experiments": lambda root, found: experiments(root, found, given.experiments),
    }  # fmt: skip
    if given.sabotage:
        sabotaged(root, found, given.sabotage)
    else:
        for name in given.only:
            try:
                parts[name](root, found)
            except Exception as error:
                traceback.print_exc()
                found.wrong.append(
                    f"{name}: {str(error).splitlines()[0] if str(error) else error!r}"
                )
    for reason in found.wrong:
        print(f"elastic: {reason}", flush=True)
    if given.sabotage:
        details = {**found.before, "sabotage": given.sabotage, "wrong": found.wrong}
        return finish("elastic", ok=not found.wrong, shown=found.shown, details=details)
    details = {
        "seconds": round(time.monotonic() - began_s), "machine": facts, "directory": str(root),
        **found.before, **found.details, "parts": given.only, "wrong": found.wrong,
    }  # fmt: skip
    return finish("elastic", ok=not found.wrong, shown=found.shown, details=details)


MEMORY = Path("/dev/shm/lowmark-elastic")
"""All shards share this machine's disk, and would wait for each other's writes: so nothing of this run
lies there, unless another directory is named. What it measures is not the disk."""


def _before(given: argparse.Namespace) -> dict[str, Any]:
    """What the last run found in the parts that this one does not make, and on what machine."""
    path = BUILD / "elastic.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    made = [] if given.sabotage else given.only
    kept = [part for part in PARTS if part not in made]
    if given.experiments != list(EXPERIMENTS):
        kept.append("experiments")
    if "rescaling" in kept and "rescaling" in found:
        kept.append("machine")
    return {name: found[name] for name in kept if name in found}


def _in_a_group(arguments: list[str]) -> int:
    """Runs all of it in a session of its own, of which nothing is left when it ends; should this process be
    killed itself, each of the others ends with the one that has started it."""
    command = [sys.executable, "-m", "tests.elastic", *arguments]
    environment = {**os.environ, "LOWMARK_ELASTIC": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
