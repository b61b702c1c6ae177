"""Asks each way, prints a table of what it said, and fails if min time was wrong once, or a way that the page calls
wrong was not."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.completeness.answers import Answers, Verdict, judge, table
from examples.completeness.flights import DAYS, Replay
from examples.completeness.picture import picture
from examples.completeness.tracked import ExampleFailed, Run, track
from examples.completeness.ways import replayed
from lowmark import LowmarkError
from scripts.summary import BUILD, finish

NAME = "example-completeness"
DELAYS = (30, 240)
"""Of Spark's watermark, in minutes."""
DRAWN = (
    "look back 3 hours",
    "`_SUCCESS` by cron, 15",
    "no consumer lag, offsets committed as",
    "Spark's",
)
"""The ways in the picture, by how they begin."""


def others(replay: Replay, directory: Path, spark: bool) -> list[Answers]:
    """All ways but min time."""
    found = replayed(replay)
    if spark:
        from examples.completeness.watermark import (
            batches,
            watermarks,
        )  # Java is needed from here on

        coming = list(batches(replay.flights))
        found += watermarks(coming, directory / "spark", DELAYS)
    return found


def draw(path: Path, replay: Replay, day: int, ways: Sequence[Answers], run: Run) -> None:
    """The first way of each kind."""
    shown = [next((a for a in ways if a.way.startswith(begin)), None) for begin in DRAWN]
    path.write_text(picture(replay, day, [each for each in shown if each], run.answers))


def outcome(
    verdicts: Sequence[Verdict], exact: Verdict, run: Run
) -> tuple[bool, dict[str, object]]:
    """Whether all is as the page says, and what is shown: min time is exact, no other way is, and the first of each
    kind tells some hour too early."""
    wrong = {verdict.way: len(verdict.early) for verdict in verdicts}
    shown: dict[str, object] = {
        "hours": exact.hours,
        "min_time_early": len(exact.early),
        "min_time_beyond": run.beyond,
        "min_time_unsaid": exact.unsaid,
        "min_time_behind": sum(minutes > 0 for minutes in exact.behind),
        "min_time_ms": run.median_ms,
        "others_early": "/".join(map(str, wrong.values())) or "-",
    }
    firsts = [next((v for v in verdicts if v.way.startswith(begin)), None) for begin in DRAWN]
    as_told = all(each.early for each in firsts if each) and not any(v.is_exact for v in verdicts)
    return exact.is_exact and not run.beyond and as_told, shown


def main(arguments: list[str]) -> int:
    """Returns 0 if min time told each hour when it was complete, and none before."""
    parser = argparse.ArgumentParser(prog="python -m examples.completeness", description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS, help="that are judged")
    parser.add_argument("--without-spark", action="store_true", help="leaves its watermark out")
    parser.add_argument("--picture", type=Path, help="writes the day that is drawn there")
    parser.add_argument("--day", type=int, default=1, help="that is drawn, from 0")
    parser.add_argument("--sabotage", choices=["early"], help="the tracker announces too early")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    directory = BUILD / NAME
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "logs").mkdir(parents=True)
    try:
        replay = Replay(options.days)
        run = track(replay, directory, options.sabotage)
        # Min time alone is what a sabotage concerns.
        spark = not (options.without_spark or options.sabotage)
        ways = [] if options.sabotage else others(replay, directory, spark)
        if options.picture:
            draw(options.picture, replay, options.day, ways, run)
    except (ExampleFailed, LowmarkError, ValueError) as error:
        return finish(NAME, ok=False, shown={"problem": repr(str(error))}, details={})
    verdicts, exact = [judge(replay, answers) for answers in ways], judge(replay, run.answers)
    print(table([*verdicts, exact]))
    ok, shown = outcome(verdicts, exact, run)
    shown["seconds"] = round(time.monotonic() - began_s)
    return finish(
        NAME, ok=ok, shown=shown, details={v.way: v.details() for v in [*verdicts, exact]}
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
