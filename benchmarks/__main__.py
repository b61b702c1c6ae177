"""python -m benchmarks: runs the benchmarks, each in a process of its own, and says whether the bars hold.

It fails where a bar is not met, and, but in a quick run, whose rounds are too few, where the interval of a figure spans
its bar: what cannot be told is not met. Of bars that are `BOUNDED` the page says why they are missed: they are counted, and fail
nothing."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.bars import BARS, BOUNDED
from benchmarks.figures import Budget, Curve, Finding, Skipped, table
from benchmarks.machine import described, machine
from benchmarks.pairs import Verdict
from scripts.summary import BUILD, ROOT, finish
from tests.spark_versions.environments import EnvironmentFailed, environment, inherited


@dataclass(frozen=True)
class Section:
    """One module with `find(budget)`, and in which runs it takes part."""

    name: str
    what: str
    budgets: tuple[Budget, ...]
    most_s: int
    """It is ended, and has failed, after this long in a full run."""
    pyspark: str = ""
    """The version of PySpark in whose environment it runs, if another than this one's."""


_ALL = tuple(Budget)
_LONGER = (Budget.STANDARD, Budget.FULL)
SECTIONS = (
    Section("throughput", "ticks a second against a bare gRPC echo", _ALL, 900),
    Section("shards", "what a tick costs with more shards", _LONGER, 900),
    Section("tick_profile", "where the microseconds of a tick go", _LONGER, 900),
    Section("instructions", "what a tick computes, in counted instructions", _LONGER, 600),
    Section("latency", "from the last commit to the subscriber", _ALL, 1800),
    Section("cells", "cells applied a second, memory of a cell", _ALL, 300),
    Section("merging", "acks merged a second against NumPy", _ALL, 300),
    Section("growth", "the cost of a tick as a tracker grows", _ALL, 5400),
    Section("sizing", "what a small deployment takes, beside what is reckoned", _LONGER, 300),
    Section("groups", "a deployment of several groups beside one of a single group", _LONGER, 600),
    Section("scale", "what a large deployment takes, simulated", (Budget.FULL,), 1800),
    Section("messages", "messages of the published evaluation", _ALL, 1800),
    Section("failover", "kill -9 of a shard with a standby", _LONGER, 300),
    Section("moving", "a pipeline that moves between groups under load", _LONGER, 600),
    Section("schedules", "schedules simulated so far", _LONGER, 60),
    Section("ordered", "rows in order into PostgreSQL, beside the same unordered", _LONGER, 300),
    Section("elastic", "latency while shards come and go", _LONGER, 900),
    Section("table_cost", "what it costs to be able to rescale", _LONGER, 300),
    Section("peers", "what else there is, on the same input", (Budget.FULL,), 1800),
    Section("spark_tracking", "tracked Spark queries against untracked ones", _LONGER, 3600),
    Section("rescale_pause", "a query while its state is repartitioned", (Budget.FULL,), 1800),
    Section("spark_s3", "the same over files on an S3 server", _LONGER, 1200),
    Section("spark_delta", "the same over Delta tables on an S3 server", _LONGER, 1200, "4.1"),
)


def main() -> int:
    options = _arguments()
    if options.write is not None:
        return _run_here(options.only[0], options.budget, options.write)
    facts = machine()
    print(described(facts), flush=True)
    began = time.monotonic()
    figures: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    failed: list[str] = []
    for section in _chosen(options.only, options.budget):
        found = _run_apart(section, options.budget)
        if found is None:
            failed.append(section.name)
            continue
        figures += [{"section": section.name, **figure} for figure in found["figures"]]
        curves += [{"section": section.name, **curve} for curve in found["curves"]]
        print(table(found["figures"]), flush=True)
    barred = [figure for figure in figures if "bar" in figure]
    missed = _names(barred, Verdict.NOT_MET)
    unclear = _names(barred, Verdict.CANNOT_TELL)
    unexplained = sum(not explained(figure, options.budget) for figure in barred)
    without = [] if options.only else sorted(BARS.keys() - {bar["bar_name"] for bar in barred})
    skipped = [figure for figure in figures if "skipped" in figure]
    for name in missed:
        print(f"bench: not met: {name}")
    for name in unclear:
        print(f"bench: cannot tell, the interval spans the bar: {name}")
    for name in without:
        print(f"bench: no figure of this bar in a run of this budget: {name}")
    for figure in skipped:
        print(f"bench: skipped: {figure['name']}: {figure['skipped']}")
    for name in failed:
        print(f"bench: no figures, the benchmark failed: {name}")
    return finish(
        "bench",
        ok=bool(figures) and not unexplained and not failed,
        shown={
            "budget": options.budget.value,
            "figures": len(figures),
            "bars": len(barred),
            "met": len(barred) - len(missed) - len(unclear),
            "not_met": len(missed),
            "cannot_tell": len(unclear),
            "unexplained": unexplained,
            **({"without": len(without)} if without else {}),
            **({"skipped": len(skipped)} if skipped else {}),
            "failed": ",".join(failed) or "none",
            "seconds": round(time.monotonic() - began),
        },
        details={
            "machine": facts,
            "missed": missed,
            "unclear": unclear,
            "results": figures,
            "curves": curves,
        },
    )


def explained(figure: dict[str, Any], budget: Budget) -> bool:
    """Whether a figure meets its bar, or is known not to; the rounds of a quick run may be too few to tell."""
    name, verdict = figure["bar_name"], Verdict(figure["verdict"])
    if verdict is Verdict.MET or name in BOUNDED:
        return True
    return verdict is Verdict.CANNOT_TELL and budget is Budget.QUICK


def _names(barred: Sequence[dict[str, Any]], verdict: Verdict) -> list[str]:
    return [figure["name"] for figure in barred if figure["verdict"] == verdict.value]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--budget", type=Budget, default=Budget.STANDARD, choices=list(Budget))
    parser.add_argument(
        "--only", nargs="+", choices=[section.name for section in SECTIONS], default=[]
    )
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(only: Sequence[str], budget: Budget) -> Iterator[Section]:
    for section in SECTIONS:
        if section.name in only or (not only and budget in section.budgets):
            yield section


def _run_apart(section: Section, budget: Budget) -> dict[str, Any] | None:
    """What a benchmark finds in a process of its own, which no other one has warmed or filled."""
    print(f"\n{section.name}: {section.what}", flush=True)
    try:
        python = str(environment(section.pyspark)) if section.pyspark else sys.executable
    except EnvironmentFailed as error:
        return {"figures": [Skipped(section.what, str(error)).as_data()], "curves": []}
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        found = Path(directory) / "found.json"
        command = [python, "-m", "benchmarks", "--only", section.name]
        command += ["--budget", budget.value, "--write", str(found)]
        process = subprocess.Popen(command, cwd=ROOT, env=inherited(), start_new_session=True)
        try:
            status = process.wait(section.most_s)
        except subprocess.TimeoutExpired:
            print(f"bench: {section.name} was ended after {section.most_s} s", flush=True)
            return None
        finally:
            with suppress(ProcessLookupError):  # what it has started ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status != 0 or not found.exists():
            return None
        result: dict[str, Any] = json.loads(found.read_text())
        return result


def _run_here(name: str, budget: Budget, write: Path) -> int:
    BUILD.mkdir(exist_ok=True)
    found: list[Finding] = list(import_module(f"benchmarks.{name}").find(budget))
    figures = [item.as_data() for item in found if not isinstance(item, Curve)]
    curves = [item.as_data() for item in found if isinstance(item, Curve)]
    write.write_text(json.dumps({"figures": figures, "curves": curves}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
