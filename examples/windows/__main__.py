"""Runs the example with holds and without, and fails if the report with them missed anything, or the one without did
not."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from examples.windows.flights import BURSTS, Replayed, Window, hour_text
from examples.windows.run import ExampleFailed, Report, run_example
from lowmark import LowmarkError
from scripts.summary import BUILD, finish

SHOWN_WINDOWS = 5
SHOWN_LINES = 3
"""Of what `lowmark explain` says."""


def told(windows: list[Window]) -> list[str]:
    return [f"{hour_text(hour)} {airport}" for hour, airport in windows]


def show(state: str, report: Report) -> None:
    missed, incomplete, unread = report.missed(), report.incomplete(), report.unread()
    print(
        f"{state}: of {len(report.read)} windows that it read {len(missed)} missed, {len(incomplete)} incomplete; "
        f"{len(unread)} unread"
    )
    for what, windows in (("missed", missed), ("incomplete", incomplete), ("unread", unread)):
        for window in told(windows[:SHOWN_WINDOWS]):
            print(f"  {what}: {window}")
    for line in report.waits[:SHOWN_LINES]:
        print(f"  {line}")


def details(report: Report) -> dict[str, Any]:
    return {
        "missed": told(report.missed()),
        "incomplete": told(report.incomplete()),
        "unread": told(report.unread()),
        "waits": report.waits,
        "seconds": report.seconds,
    }


def main(arguments: list[str]) -> int:
    """Returns 0 if the report with holds read every hour whole that the watermark had passed."""
    parser = argparse.ArgumentParser(prog="python -m examples.windows", description=__doc__)
    parser.add_argument(
        "--state", choices=["hold", "free"], help="only with holds, or only without; default: both"
    )
    parser.add_argument("--bursts", type=int, default=BURSTS, help="of six hours each")
    parser.add_argument("--sabotage", choices=["early"], help="the tracker announces too early")
    options = parser.parse_args(arguments)
    name = "example-windows"
    replayed = Replayed(options.bursts)
    states = [options.state] if options.state else ["hold", "free"]
    if options.sabotage:
        states = ["hold"]
    try:
        reports = {
            state: run_example(replayed, BUILD / name / state, state, options.sabotage)
            for state in states
        }
    except (ExampleFailed, LowmarkError) as error:
        return finish(name, ok=False, shown={"problem": repr(str(error))}, details={})
    for state, report in reports.items():
        show(state, report)
    shown: dict[str, object] = {"windows": len(replayed.expected)}
    ok = True
    if (held := reports.get("hold")) is not None:
        wrong = {
            "missed": len(held.missed()),
            "incomplete": len(held.incomplete()),
            "unread": len(held.unread()),
        }
        shown |= {**wrong, "waiting": len(replayed.waiting)}
        ok = not any(wrong.values())
    if (free := reports.get("free")) is not None:
        shown["missed_without_holds"] = len(free.missed())
        ok = ok and bool(free.missed())
    shown["seconds"] = round(sum(report.seconds for report in reports.values()))
    return finish(
        name, ok=ok, shown=shown, details={s: details(report) for s, report in reports.items()}
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
