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
from tests.siege.swelling import attacked, swollen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.siege", description=__doc__)
    parser.add_argument("--subscribers", type=int, default=10_000)
    parser.add_argument("--deaf", type=int, default=100)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
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
    for kind, each in swellings.items():
        print(f"siege: {kind}: {asdict(each)}")
    shown = {"subscribers": given.subscribers, **details, "slow_closed": tally["slow_closed"]}
    return finish("siege", ok=not wrong, shown=shown, details={"tally": tally, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main())
