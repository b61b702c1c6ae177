"""The command line of the demo, in each of its forms. Ends with `demo: OK flights=336776 ...`, or with what was
wrong and `demo: FAILED ...`."""

from __future__ import annotations

import argparse
import signal

from examples.flights.form import DemoFailed, DemoSkipped, Form
from examples.flights.run import details, run_demo, summary
from scripts.summary import BUILD, finish

MAX_PROBLEMS_SHOWN = 30


def main(form: Form, program: str, description: str | None, duration_s: float) -> int:
    """Runs the demo; returns the exit code. duration_s: how long the year lasts unless it is said."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--seconds", type=float, default=duration_s, help="how long the year lasts")
    parser.add_argument(
        "--sabotage",
        choices=["early", "lost", "double"],
        help="plant a fault in the tracker: the demo must then fail",
    )
    options = parser.parse_args()
    # As Ctrl-C: every process that was started is ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = run_demo(form, BUILD, options.seconds, options.sabotage)
    except DemoSkipped as error:
        return finish(form.name, ok=False, shown={}, details={}, skipped=str(error))
    except DemoFailed as error:
        print(f"{form.name}: FAILED {error}")  # build/<name>.json is the other run's
        return 1
    except KeyboardInterrupt:
        return finish(form.name, ok=False, shown={"interrupted": True}, details={})
    for problem in outcome.problems[:MAX_PROBLEMS_SHOWN]:
        print(problem)
    if not outcome.problems:
        print(outcome.check)
    shown = summary(form, outcome)
    return finish(form.name, ok=not outcome.problems, shown=shown, details=details(outcome))
