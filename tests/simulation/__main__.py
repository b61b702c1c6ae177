"""python -m tests.simulation: search schedules for a broken promise, or replay one."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from scripts.check.record import commit
from tests.simulation.faults import FAULTS, SABOTAGE
from tests.simulation.progress import PROGRESS, Block, Progress, add_up
from tests.simulation.run import KINDS, Summary, hunt, replay, run_pieces

DEFAULT_SCHEDULES = 20_000
SABOTAGED_SCHEDULES = 500
"""Many of them find each of the faults of `SABOTAGE`."""
EVERY_KIND_AT = 10_000
"""In a search of so many schedules, each kind of fault must have happened."""
_SHOWN_FAILURES = 5
_SHOWN_EVERY_S = 10.0


def _range(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def _search(
    seeds: range, fault: str | None, workers: int | None, output: Path, progress: Progress
) -> int:
    shown = time.monotonic()
    pieces = list(progress.missing(seeds, fault))
    if sum(map(len, pieces)) < len(seeds):
        print(f"sim: {len(seeds) - sum(map(len, pieces))} schedules were run before", flush=True)
    began = time.monotonic()
    for piece, summary in run_pieces(pieces, fault, workers):
        ended = time.monotonic()
        progress.add(Block(piece, fault, ended - began, summary))
        began = ended
        if time.monotonic() - shown >= _SHOWN_EVERY_S:
            shown = time.monotonic()
            total, seconds = add_up(progress.done(seeds, fault))
            rate = total.schedules / max(seconds, 0.001)
            failed = total.kinds.total()
            print(
                f"sim: {total.schedules} of {len(seeds)} schedules, {rate:.0f}/s, {failed} failed",
                flush=True,
            )
    total, seconds = add_up(progress.done(seeds, fault))
    return _report(f"{seeds.start}:{seeds.stop}", fault, total, seconds, output)


def _report(seeds: str, fault: str | None, total: Summary, seconds: float, output: Path) -> int:
    """Writes the result, prints it, and says whether all was well."""
    zero = total.zero_kinds if total.schedules >= EVERY_KIND_AT and not fault else []
    ok = not total.kinds.total() and not zero and total.schedules > 0
    result = {
        "ok": ok,
        "commit": commit(),
        "seeds": seeds,
        "fault": fault,
        "schedules": total.schedules,
        "schedules_per_second": round(total.schedules / max(seconds, 0.001), 1),
        "seconds": round(seconds, 1),
        "steps": total.steps,
        "mean_steps": round(total.steps / max(total.schedules, 1), 1),
        **{kind: total.kinds[kind] for kind in KINDS},
        "zero_kinds": total.zero_kinds,
        **total.as_data(),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    planted = f" --fault {fault}" if fault else ""
    for found in total.failures[:_SHOWN_FAILURES]:
        print(f"seed {found.seed}: {found.message}")
        print(f"  replay: .venv/bin/python -m tests.simulation --replay {found.seed}{planted}")
    if total.failures:
        found = total.failures[0]
        lines, _ = replay(found.seed, fault)
        print(f"the end of seed {found.seed}:")
        print("\n".join(line[:200] for line in lines[-12:]))
    if zero:
        print(f"sim: never happened: {', '.join(zero)}")
    print(f"sim: {'OK' if ok else 'FAILED'} {total.line()}", flush=True)
    return 0 if ok else 1


def _hunt(fault: str, seeds: range, workers: int | None) -> int:
    found, schedules = hunt(fault, seeds, workers)
    if found is None:
        print(f"sim: fault={fault} was not found in {schedules} schedules")
        return 1
    print(f"sim: fault={fault} found after {schedules} schedules: {found.message}")
    print(f"  replay: .venv/bin/python -m tests.simulation --replay {found.seed} --fault {fault}")
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
        "--schedules", type=int, help=f"seeds from 0, so many; {DEFAULT_SCHEDULES} unless given"
    )
    parser.add_argument("--seeds", type=_range, help="FIRST:LAST, LAST excluded, instead")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant a fault into the core")
    parser.add_argument(
        "--sabotage", choices=sorted(SABOTAGE), help="plant one of these; the search must fail"
    )
    parser.add_argument("--hunt", action="store_true", help="stop where the planted fault is found")
    parser.add_argument(
        "--replay", type=int, metavar="SEED", help="run one seed and print its trace"
    )
    parser.add_argument(
        "--total", action="store_true", help="add up all that this code has run, of any range"
    )
    parser.add_argument(
        "--keep", action="store_true", help="what this code has run, beside the code; runs nothing"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was run before")
    parser.add_argument("--workers", type=int, help="processes; all cores unless given")
    parser.add_argument("--output", type=Path, default=Path("build/sim.json"))
    parser.add_argument("--progress", type=Path, default=PROGRESS)
    options = parser.parse_args(arguments)
    fault = options.sabotage or options.fault
    fewer = SABOTAGED_SCHEDULES if options.sabotage else DEFAULT_SCHEDULES
    seeds = options.seeds or range(fewer if options.schedules is None else options.schedules)
    if options.replay is not None:
        return _replay(options.replay, fault)
    if options.hunt:
        if not fault:
            parser.error("--hunt needs a --fault to look for")
        return _hunt(fault, seeds, options.workers)
    progress = Progress(options.progress)
    if options.fresh:
        options.progress.unlink(missing_ok=True)
        progress.blocks.clear()
    if options.keep:
        progress.keep()
        return 0
    if options.total:
        blocks = progress.done(range(1 << 62), fault)
        total, seconds = add_up(blocks)
        ranges = f"{blocks[0].seeds.start}:{blocks[-1].seeds.stop}" if blocks else "none"
        return _report(ranges, fault, total, seconds, options.output)
    return _search(seeds, fault, options.workers, options.output, progress)


if __name__ == "__main__":
    sys.exit(main())
