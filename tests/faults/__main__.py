"""Kills, stops, continues and cuts off the parts of a real system for ten minutes, and judges what it
said meanwhile.

    python -m tests.faults [--seconds 600] [--seed 1] [--sabotage early|lost|double] [--only PART ...]

Parts: failpoints (a kill at each named place), stores (SQLite files that are flipped, truncated, replaced
and removed: refused, until the right ones are back), pauses (of trackers where silent fronts are evicted:
nobody is), takeover (an owner killed with a standby waiting),
restart (without one, by the size of the state), run (the ten minutes). With --sabotage the tracker has
a planted fault, only the run is made, shorter, and the whole must fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from scripts.summary import BUILD, finish
from tests.cluster.network import move_into_namespace, open_network
from tests.faults.failover import MOST_S, restarts, take_overs
from tests.faults.failpoints import run_failpoints
from tests.faults.pauses import KINDS as PAUSES
from tests.faults.pauses import run_pauses
from tests.faults.schedule import Faults
from tests.faults.stores import KINDS, run_stores
from tests.faults.system import System
from tests.sabotage import FAULTS
from tests.waits import HANG_S
from tracker.service.failpoints import NAMES

PARTS = ("failpoints", "stores", "pauses", "takeover", "restart", "run")
SECONDS = 600.0
SABOTAGED_SECONDS = 20.0
SABOTAGED_FINISH_S = 30.0
FAULT_EVERY_S = 4.5
LEAST_KILLS, LEAST_CUTS, LEAST_ACKNOWLEDGED = 60, 20, 100_000
"""In ten minutes; of a shorter run in proportion."""
LONGEST = 1.5
"""A loaded machine gets so many times the time until that is reached."""
TAKE_OVERS = 5
SIZES = [0, 100_000, 1_000_000]
STORES = ("redis", "sqlite")
ONLY = {"run": ("redis",), "stores": ("sqlite",), "pauses": ("sqlite",)}
"""Parts that are not made with both."""
SHOWN = 10
GAPS, SHOWN_GAPS = 10, 3
"""The longest gaps are written down, with the faults that made them."""


def directory(name: str) -> Path:
    path = BUILD / "faults" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def the_run(seconds: float, seed: int, sabotage: str, finish_s: float) -> dict[str, Any]:
    """Ten minutes of faults; returns what came of it."""
    network = open_network()
    system = System(directory("run"), network, sabotage=sabotage)
    try:
        system.start()
        system.goes_on()
        start_ns = time.monotonic_ns()
        faults = Faults(system, seed)
        trouble = ""
        try:
            most_s = 0.0 if sabotage else LONGEST * seconds
            faults.run(
                seconds, FAULT_EVERY_S, lambda: not _missing(faults, system, seconds), most_s
            )
            system.finish(finish_s)
        except AssertionError as error:
            trouble = str(error)
            print(f"run: {trouble}", flush=True)
        took_s = (time.monotonic_ns() - start_ns) / 1e9
        if trouble:
            system.stop_nodes()  # what is written down while it is read is no history
        found = system.violations()
        gaps = faults.gaps(start_ns, GAPS)
        for gap in gaps[:SHOWN_GAPS]:
            print(
                f"gap of {gap['gap_s']} s at {gap['at_s']} s: {', '.join(gap['faults'])}",
                flush=True,
            )
        return {
            "network": network.kind, "seconds": seconds, "seed": seed, "took_s": round(took_s, 1),
            "kills": faults.counts["kill"], "partitions": faults.counts["cut"],
            "pauses": faults.counts["pause"], "faults": dict(sorted(faults.by_victim.items())),
            "acknowledged": system.acknowledged(), "announcements": len(system.heard()),
            "worst_gap_s": gaps[0]["gap_s"] if gaps else 0.0, "gaps": gaps, "trouble": trouble,
            "violations": found[:SHOWN], "by_kind": dict(Counter(v.split(":")[0] for v in found)),
        }  # fmt: skip
    finally:
        system.close()


def judge_run(run: dict[str, Any]) -> list[str]:
    """Why a run has failed."""
    wrong = [f"{count} x {kind}" for kind, count in run["by_kind"].items()]
    if run["trouble"]:
        wrong.append(run["trouble"].splitlines()[0])
    return wrong + _missing_of(run, run["seconds"])


def _missing(faults: Faults, system: System, seconds: float) -> list[str]:
    """What is due of a run and has not been reached yet."""
    kills, cuts = faults.counts["kill"], faults.counts["cut"]
    found = {"kills": kills, "partitions": cuts, "acknowledged": system.acknowledged()}
    return _missing_of(found, seconds)


def _missing_of(found: dict[str, Any], seconds: float) -> list[str]:
    due = {"kills": LEAST_KILLS, "partitions": LEAST_CUTS, "acknowledged": LEAST_ACKNOWLEDGED}
    least = {name: int(count * seconds / SECONDS) for name, count in due.items()}
    return [
        f"only {found[name]} {name}, at least {count} are due"
        for name, count in least.items()
        if found[name] < count
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sabotage", choices=sorted(FAULTS), default="")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args(arguments)
    move_into_namespace("tests.faults", arguments)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if given.sabotage:
        given.only, given.seconds = ["run"], min(given.seconds, SABOTAGED_SECONDS)
    details: dict[str, Any] = {
        "failpoints": {},
        "stores": [],
        "pauses": [],
        "takeover_gap_s": {},
        "restart": {},
        "run": {},
    }
    wrong: list[str] = []
    for part in given.only:
        for store in ONLY.get(part, STORES):
            try:
                wrong += _part(part, store, given, details)
            except Exception as error:
                traceback.print_exc()
                wrong.append(
                    f"{part} ({store}): {str(error).splitlines()[0] if str(error) else error!r}"
                )
    for reason in wrong:
        print(f"faults: {reason}", flush=True)
    run, kinds = details["run"], Counter(details["run"].get("by_kind", {}))
    false, regressed = kinds.pop("false completion", 0), kinds.pop("regress", 0)
    shown = {
        "kills": run.get("kills", 0), "partitions": run.get("partitions", 0),
        "acknowledged": run.get("acknowledged", 0), "announcements": run.get("announcements", 0),
        "false": false, "lost": sum(kinds.values()), "regressed": regressed,
        "worst_gap_s": run.get("worst_gap_s", 0),
        "failpoints": sum(map(len, details["failpoints"].values())),
        "stores": len(details["stores"]),
        "evicting_pauses": len(details["pauses"]),
        "worst_takeover_s": max((max(gaps) for gaps in details["takeover_gap_s"].values()), default=0),
    }  # fmt: skip
    return finish("faults", ok=not wrong, shown=shown, details={**details, "wrong": wrong})


def _part(part: str, store: str, given: Any, details: dict[str, Any]) -> list[str]:
    """Runs one part with one store; returns what is wrong."""
    match part:
        case "failpoints":
            found = run_failpoints(directory(f"failpoints-{store}"), store, shown=True)
            details["failpoints"][store] = [] if found else list(NAMES)
            return [f"failpoints ({store}): {violation}" for violation in found[:SHOWN]]
        case "stores":
            found = run_stores(directory("stores"), seed=given.seed, shown=True)
            details["stores"] = [] if found else list(KINDS)
            return [f"stores: {violation}" for violation in found[:SHOWN]]
        case "pauses":
            found = run_pauses(directory("pauses"), shown=True)
            details["pauses"] = [] if found else list(PAUSES)
            return [f"pauses: {violation}" for violation in found[:SHOWN]]
        case "takeover":
            gaps = take_overs(directory(f"takeover-{store}"), store, TAKE_OVERS)
            details["takeover_gap_s"][store] = [round(gap, 2) for gap in gaps]
            middle = median(gaps)
            return [f"takeover ({store}) took {middle:.2f} s"] if middle > MOST_S else []
        case "restart":
            details["restart"][store] = restarts(directory(f"restart-{store}"), store, SIZES)
            for row in details["restart"][store]:
                print(
                    f"restart ({store}): with {row['open_cells']:,} open cells announcements went "
                    f"on after {row['gap_s']} s", flush=True,
                )  # fmt: skip
            return []
    finish_s = SABOTAGED_FINISH_S if given.sabotage else HANG_S
    details["run"] = the_run(given.seconds, given.seed, given.sabotage, finish_s)
    for violation in details["run"]["violations"]:
        print(violation, flush=True)
    return judge_run(details["run"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
