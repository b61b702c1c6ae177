"""python -m tests.simulation: search schedules for a broken promise, or replay one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.simulation.faults import FAULTS
from tests.simulation.run import hunt, replay, timed

_SHOWN_FAILURES = 5


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def _search(seeds: range, fault: str | None, workers: int | None, output: Path) -> int:
    total, seconds = timed(seeds, fault, workers)
    total.write(
        output,
        seeds=f"{seeds.start}:{seeds.stop}",
        fault=fault,
        seconds=round(seconds, 3),
        schedules_per_second=round(total.schedules / seconds, 1),
    )
    for found in total.failures[:_SHOWN_FAILURES]:
        planted = f" --fault {fault}" if fault else ""
        print(f"seed {found.seed}: {found.message}")
        print(f"  replay: python -m tests.simulation --replay {found.seed}{planted}")
    print(total.line())
    return 1 if total.kinds.total() else 0


def _hunt(fault: str, seeds: range, workers: int | None) -> int:
    found, schedules = hunt(fault, seeds, workers)
    if found is None:
        print(f"sim: fault={fault} was not found in {schedules} schedules")
        return 1
    print(f"sim: fault={fault} found after {schedules} schedules: {found.message}")
    print(f"  replay: python -m tests.simulation --replay {found.seed} --fault {fault}")
    return 0


def _replay(seed: int, fault: str | None) -> int:
    lines, found = replay(seed, fault)
    print("\n".join(lines))
    print(f"seed {seed}: {found.message if found else 'all promises hold'}")
    return 1 if found else 0


def main(arguments: list[str] | None = None) -> int:
    """0 if every promise held (with --hunt: if the planted fault was found)."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=_range, default=range(2000), help="FIRST:LAST, LAST excluded"
    )
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant a fault into the core")
    parser.add_argument("--hunt", action="store_true", help="stop where the planted fault is found")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="run one seed and print its trace"
    )
    parser.add_argument("--workers", type=int, help="processes; all cores unless given")
    parser.add_argument("--output", type=Path, default=Path("build/sim.json"))
    options = parser.parse_args(arguments)
    if options.hunt and not options.fault:
        parser.error("--hunt needs a --fault to look for")
    if options.replay is not None:
        return _replay(options.replay, options.fault)
    if options.hunt:
        return _hunt(options.fault, options.seeds, options.workers)
    return _search(options.seeds, options.fault, options.workers, options.output)


if __name__ == "__main__":
    sys.exit(main())
