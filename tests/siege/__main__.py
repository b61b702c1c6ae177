"""`make siege`: ten thousand idle subscribers, slow connections, deaf subscribers and a flood of bad ticks
at one process, while others use it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from scripts.summary import finish
from tests.siege.besieging import Siege, failures
from tests.siege.large import ATTACKS
from tests.siege.sly import SLY
from tests.siege.swelling import Swelling, attacked, swollen


def of_attacks(found: dict[str, Swelling]) -> dict[str, object]:
    return {"attacks": {kind: asdict(each) for kind, each in found.items()}}


def show(found: dict[str, Swelling]) -> None:
    """One table: memory in MiB before, at the most and after; an honest client's steps meanwhile."""
    print(
        f"{'attack':16} {'before':>7} {'most':>7} {'after':>7} {'p50 ms':>7} {'p99 ms':>7}  answers"
    )
    for kind, each in found.items():
        print(
            f"{kind:16} {each.before_mib:7} {each.most_mib:7} {each.after_mib:7} {each.honest_p50_ms:7} "
            f"{each.honest_p99_ms:7}  {each.answers}"
        )


def attacks_alone(kinds: tuple[str, ...], fault: str) -> int:
    """These attacks, with the tracker as it is, or with a planted fault, which must fail."""
    with tempfile.TemporaryDirectory() as directory:
        found = attacked(Path(directory), kinds, fault)
    wrong = swollen(found)
    for said in wrong:
        print(f"siege: {said}", file=sys.stderr)
    show(found)
    most = max(each.most_mib for each in found.values())
    shown = {"attacks": len(found), "most_mib": most, "wrong": len(wrong)}
    return finish("siege", ok=not wrong, shown=shown, details={**of_attacks(found), "said": wrong})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.siege", description=__doc__)
    parser.add_argument("--subscribers", type=int, default=10_000)
    parser.add_argument("--deaf", type=int, default=100)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--attacks", nargs="+", choices=(*ATTACKS, *SLY), help="these alone, and no crowd"
    )
    parser.add_argument("--sabotage", choices=["lifted"], default="")
    given = parser.parse_args()
    if given.attacks or given.sabotage:
        return attacks_alone(tuple(given.attacks or ATTACKS), given.sabotage)
    with tempfile.TemporaryDirectory() as directory:
        found = Siege(Path(directory)).run(
            subscribers=given.subscribers, deaf=given.deaf, slow=given.slow, rounds=given.rounds,
            patient=True,
        )  # fmt: skip
        swellings = attacked(Path(directory) / "swelling")
    # One in three has begun a call: it is closed when it has been without one for minutes.
    closed = given.slow - given.slow // 3
    wrong = swollen(swellings) + failures(found, subscribers=given.subscribers, slow_closed=closed)
    for said in wrong:
        print(f"siege: {said}", file=sys.stderr)
    details = asdict(found)
    tally = details.pop("tally")
    show(swellings)
    shown = {"subscribers": given.subscribers, **details, "slow_closed": tally["slow_closed"]}
    return finish(
        "siege",
        ok=not wrong,
        shown=shown,
        details={"tally": tally, **of_attacks(swellings), "wrong": wrong},
    )


if __name__ == "__main__":
    sys.exit(main())
