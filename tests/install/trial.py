"""From a plain query over 100,000 rows of CSV to a report that starts when its hour is complete: the section of
docs/start.md, block by block, in an empty folder.

A block whose fence names a file is written to it, a `diff` is applied to the file that it names, and a block of shell
runs. A day's orders come in two halves, a file an hour. Each hour's report is compared with what came in: one that has begun
too early lacks rows. The last hour has none: it is complete when the next day begins.
"""

from __future__ import annotations

import csv
import os
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.pages import ROOT, Block, blocks_below
from tests.waits import until

if TYPE_CHECKING:
    from tests.install.newcomer import Walk

PAGE = ROOT / "docs" / "start.md"
SECTION = "A report that starts when its hour is complete"
ROWS, HOURS, HALF = 100_000, 24, 12
DAY = datetime(2026, 3, 1, tzinfo=UTC)
MOST_LINES = 10
"""Lines that may be new or changed in what somebody has: the front's, and those of the diffs."""
MOST_S = 300
"""At most so long, with the installation."""
EARLY = "early"
"""The sabotage: a report begins once anything is there, instead of when its hour is complete."""
_WAITING = re.compile(r"lowmark wait [^&\n]*&& (python report\.py (\S+))")
_ANYTHING = r"until test -e priced/_spark_metadata/0; do sleep 0.2; done; \1 || echo \2 0 orders 0"
"""A report of an hour of which nothing is there fails."""


def section() -> list[Block]:
    """The blocks of the section, in order."""
    return blocks_below(PAGE, SECTION)


def changed_lines(found: Sequence[Block]) -> int:
    """Lines that somebody writes or changes: of the front, and of the diffs."""
    new = [b.text.splitlines() for b in found if b.info == "python front.py"]
    put_in = [line for b in found if b.info.startswith("diff ") for line in b.text.splitlines()]
    written = sum(bool(line.strip()) for lines in new for line in lines)
    return written + sum(line.startswith("+") for line in put_in)


def changed(text: str, diff: str) -> str:
    """A text with the hunks of a diff (parted by `@@`) applied, each at the one place where it fits; `...` in a line
    that goes stands for its rest. Raises ValueError where one does not fit."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines()
        old = "\n".join(re.escape(line[1:]) for line in lines if line[0] != "+")
        new = "\n".join(line[1:] for line in lines if line[0] != "-")
        fits = list(re.finditer(rf"(?m)^{old.replace(re.escape('...'), '.*')}$", text))
        if len(fits) != 1:
            raise ValueError(f"{hunk!r} fits {len(fits)} times")
        text = f"{text[: fits[0].start()]}{new}{text[fits[0].end() :]}"
    return text


def bring(folder: Path, hours: range) -> dict[str, str]:
    """Puts the files of some hours into a folder, as of the times at which they were written. Returns by hour what its
    report must print."""
    reports = {}
    folder.mkdir(exist_ok=True)
    for hour in hours:
        name = f"{DAY + timedelta(hours=hour):%Y-%m-%dT%H}"
        chosen = random.Random(hour)
        rows = [
            (f"{name}:{chosen.randrange(60):02d}:00", chosen.choice("abc"), chosen.randrange(-1, 6), chosen.randrange(100, 900))
            for _ in range(ROWS * hour // HOURS, ROWS * (hour + 1) // HOURS)
        ]  # fmt: skip
        path = folder / f"{name}.csv"
        with path.with_suffix(".part").open("w", newline="") as file:
            csv.writer(file).writerows([("at", "shop", "pieces", "cents"), *rows])
        written_s = (DAY + timedelta(hours=hour, minutes=59, seconds=30)).timestamp()
        os.utime(path.with_suffix(".part"), (written_s, written_s))
        path.with_suffix(".part").rename(path)
        kept = [pieces * cents for _, _, pieces, cents in rows if pieces > 0]
        reports[name] = f"{name} {len(kept)} orders {sum(kept)}"
    return reports


def reporting(early: bool) -> str:
    """The shell that makes the reports of all hours that can be complete, as the page makes one."""
    (line,) = [x for x in section()[-1].text.splitlines() if x.startswith("lowmark wait")]
    lines = []
    for hour in range(HOURS - 1):
        this, after = (f"{DAY + timedelta(hours=h):%Y-%m-%dT%H}" for h in (hour, hour + 1))
        lines.append(line.replace("2026-03-01T10", after).replace("2026-03-01T09", this))
    return without_waiting("\n".join(lines)) if early else "\n".join(lines)


def without_waiting(shell: str) -> str:
    """As somebody has it who starts a report when there is something to report."""
    return _WAITING.sub(_ANYTHING, shell)


def printed(path: Path) -> list[str]:
    """The lines of reports; `lowmark wait` prints min time between them."""
    return [line for line in path.read_text().splitlines() if " orders " in line]


def go(walk: Walk, early: bool) -> dict[str, object]:
    """Does what the section says; returns what came of it. Raises NewcomerLost."""
    walk.place = walk.environment.work / "trial"
    walk.place.mkdir()
    expected = bring(walk.place / "arrived", range(HALF))
    found = section()
    for block in found:
        kind, _, name = block.info.partition(" ")
        if kind == "diff":
            path = walk.place / name
            path.write_text(changed(path.read_text(), walk.named(block.text)))
        elif name:
            (walk.place / name).write_text(walk.named(block.text))
        else:
            text = without_waiting(block.text) if early else block.text
            walk.run(Block(block.page, block.info, text))
    made = walk.place / "reports.txt"
    # The loop without waits does not wait for the second half, so it has ended before that comes.
    walk.run(Block("", "sh", f"{{ {reporting(early)}\n}} > {made} {'' if early else '&'}\n"))
    expected |= bring(walk.place / "arrived", range(HALF, HOURS))
    walk.run(Block("", "sh", "python front.py\n"))
    until(lambda: len(printed(made)) == HOURS - 1, walk.said)
    reports = printed(made)
    wrong = sum(report != expected[report.partition(" ")[0]] for report in reports)
    return {
        "trial_s": walk.passed_s(), "changed_lines": changed_lines(found), "hours": len(reports), "wrong_hours": wrong,
    }  # fmt: skip
