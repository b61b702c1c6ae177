"""`python -m examples.flights`: the demo. Ends with `demo: OK flights=336776 ...`, or with what was
wrong and `demo: FAILED ...`."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from examples.flights.run import DemoFailed, details, run_demo, summary
from scripts.summary import BUILD, finish

DURATION_S = 60.0
MAX_PROBLEMS_SHOWN = 30


def main() -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--seconds", type=float, default=DURATION_S, help="how long the year lasts")
    parser.add_argument(
        "--sabotage",
        choices=["early", "lost", "double"],
        default=os.environ.get("SABOTAGE") or None,
        help="plant a fault in the tracker: the demo must then fail",
    )
    options = parser.parse_args()
    # As Ctrl-C: every process that was started is ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = run_demo(BUILD, options.seconds, options.sabotage)
    except DemoFailed as error:
        print(f"demo: FAILED {error}")  # build/demo.json is the other run's
        return 1
    except KeyboardInterrupt:
        return finish("demo", ok=False, shown={"interrupted": True}, details={})
    for problem in outcome.problems[:MAX_PROBLEMS_SHOWN]:
        print(problem)
    if not outcome.problems:
        print(outcome.check)
    return finish("demo", ok=not outcome.problems, shown=summary(outcome), details=details(outcome))


if __name__ == "__main__":
    sys.exit(main())
