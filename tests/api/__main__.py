"""`make api`: min times heard over HTTP while processes are killed, requests of every kind, tokens of every right.

    python -m tests.api [--items 1000] [--requests 2000] [--seed 1] [--sabotage early|open|undeclared]

With --sabotage the tracker has a planted fault, and the check must fail: `early` announces a slot too early; `open` lets every
token see everything over HTTP; `undeclared` answers with a field that the document has not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from scripts.summary import BUILD, finish
from tests.api import announcements, requests
from tracker.dashboard.events import MAX_STREAMS_OF_A_CLIENT

SABOTAGES = ("early", "open", "undeclared")
SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.api", description=__doc__)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sabotage", choices=SABOTAGES, default="")
    given = parser.parse_args()
    directory = BUILD / "api"
    shutil.rmtree(directory, ignore_errors=True)
    for part in ("announcements", "requests"):
        (directory / part).mkdir(parents=True)
    began_s = time.monotonic()
    announced = announcements.run(directory / "announcements", given.items, given.sabotage)
    found, streams = requests.run(
        directory / "requests", given.requests, given.seed, given.sabotage
    )
    wrong = [*announced.judged.said] if not announced.judged.ok else []
    wrong += [f"{name} has not heard that all is complete" for name in announced.unfinished]
    wrong += found.invalid + found.open
    if streams != MAX_STREAMS_OF_A_CLIENT:
        wrong.append(f"one client could open {streams} streams, not {MAX_STREAMS_OF_A_CLIENT}")
    for said in wrong[:SHOWN]:
        print(f"api: {said}", flush=True)
    shown = {
        "events": announced.events, "came_back": announced.came_back, "polls": announced.polls,
        "unchanged": announced.unchanged, "requests": found.requests, "streams": streams,
        "false": announced.judged.false, "lost": announced.judged.lost + len(announced.unfinished),
        "invalid": len(found.invalid), "open": len(found.open), "seconds": round(time.monotonic() - began_s),
    }  # fmt: skip
    details = {"outcomes": dict(sorted(found.outcomes.items())), "wrong": wrong}
    return finish("api", ok=not wrong, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main())
