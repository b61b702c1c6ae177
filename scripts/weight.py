"""What there is to know about the project, counted, against what it should weigh: `python -m scripts.weight`.

One table, and `build/weight.json`. Of what takes long to measure (the tests, all checks) it shows what the last run here came to.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

import lowmark
import lowmark.errors
import lowmark.fronts
from lowmark import Barrier, Tracked
from scripts.check.record import Record, Status, commit
from scripts.check.registry import SABOTAGE, WHOLE, read_checks
from scripts.check.showing import terminal
from scripts.summary import BUILD, ROOT
from tracker.cli.app import app

PRODUCT = ("lowmark", "tracker", "local_tracker", "fronts")
THEN = "5b82001"
"""The commit that `then` was counted at."""


@dataclass(frozen=True)
class Measure:
    """One thing that is counted. then: what it was at `THEN`; aim: it should be no more. now: None if nothing was recorded."""

    what: str
    then: int | None
    now: int | None
    aim: int
    detail: str = ""

    @property
    def is_met(self) -> bool:
        return self.now is not None and self.now <= self.aim


def parameters(function: Callable[..., object]) -> int:
    """Those that a caller may give."""
    return len([name for name in inspect.signature(function).parameters if name != "self"])


def names_of(module: Any) -> list[str]:
    """Those that it offers."""
    return list(module.__all__)


def options(params: Iterable[Any]) -> int:
    """How many options there are among parameters, but for --help."""
    return sum(each.param_type_name == "option" and each.name != "help" for each in params)


def commands(command: Any, name: str = "") -> dict[str, int]:
    """By the name of each command, how many options it takes of its own."""
    if (group := getattr(command, "commands", None)) is not None:
        below = [commands(each, f"{name} {key}".strip()) for key, each in group.items()]
        return {key: number for found in below for key, number in found.items()}
    return {name: options(command.params)}


def lines(*folders: str) -> int:
    """Of the Python files there that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", *(f"{folder}/*.py" for folder in folders)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return sum(
        len((ROOT / name).read_text().splitlines()) for name in listed if (ROOT / name).exists()
    )


def help_targets() -> int:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    return len(re.findall(r"^make [A-Za-z-]+:", shown, re.MULTILINE))


def rows_of_changes(page: str) -> list[int]:
    """Of each row in "Where to change what", how many files it names."""
    section = page.partition("\n## Where to change what\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [len(re.findall(r"`[\w/.-]+\.(?:py|md|proto|yaml)`", row)) for row in rows]


def front_classes() -> dict[str, type]:
    names = {*names_of(lowmark), *names_of(lowmark.fronts)}
    found = {name: getattr(lowmark, name, None) or getattr(lowmark.fronts, name) for name in names}
    return {n: c for n, c in found.items() if n.endswith("Front") and inspect.isclass(c)}


def last_test() -> tuple[int | None, str]:
    """Seconds of the last `make test` here, and how it ended."""
    path = BUILD / "test.json"
    if not path.exists():
        return None, "not run here"
    found = json.loads(path.read_text())
    layers = ",".join(layer["name"] for layer in found["by_layer"])
    return int(found["seconds"]), f"{'OK' if found['ok'] else 'FAILED'}, layers {layers}"


def not_green() -> tuple[int, str]:
    """How many whole checks and sabotages are not recorded as OK on the commit that is checked out."""
    record, code, wanted = Record.read(), commit(), 0
    done = 0
    for check in read_checks().values():
        for form in (WHOLE, *(f"{SABOTAGE}={each}" for each in check.sabotages)):
            wanted += 1
            last = record.of(check.name, form)
            done += last is not None and last.status is Status.OK and last.commit == code
    return wanted - done, f"{done} of {wanted} are OK on {code}"


def measures() -> list[Measure]:
    line = typer.main.get_command(app)
    own = commands(line)
    fullest = sorted(own, key=lambda name: own[name], reverse=True)[:3]
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rows = rows_of_changes(page)
    fronts = {name: parameters(front) for name, front in front_classes().items()}
    widest = max(fronts, key=lambda name: fronts[name])
    errors = {"LowmarkError", *names_of(lowmark.errors)} - {"Code"}
    loose = [
        path for path in (ROOT / "local_tracker/spark").glob("*.py") if path.name != "__init__.py"
    ]
    tested, layers = last_test()
    open_checks, green = not_green()
    return [
        Measure("names in lowmark", 155, len(names_of(lowmark)), 40),
        Measure("classes of errors", 31, len(errors), 12),
        Measure("parameters of Tracked.start", 15, parameters(Tracked.start), 8),
        Measure("parameters of Tracked.job", 11, parameters(Tracked.job), 8),
        Measure("parameters of the widest front", 13, fronts[widest], 8, widest),
        Measure("parameters of Barrier", 11, parameters(Barrier), 8),
        Measure("commands", 34, len(own), 24),
        Measure(
            "options", 251, sum(own.values()) + options(line.params), 150,
            f"{options(line.params)} of every command, " + ", ".join(f"{name} {own[name]}" for name in fullest),
        ),
        Measure("targets that make help shows", 34, help_targets(), 10),
        Measure("files at the root of local_tracker/spark", 44, len(loose), 10),
        Measure(
            'rows of "Where to change what" with more than two files', 25, sum(n > 2 for n in rows), 0,
            f"of {len(rows)}",
        ),
        Measure("lines of ARCHITECTURE.md", 331, len(page.splitlines()), 250),
        Measure("lines of the product", 61_645, lines(*PRODUCT), 50_000, "Python in " + ", ".join(PRODUCT)),
        Measure("lines of the tests", 90_658, lines("tests"), 65_000, "Python"),
        Measure("seconds of the last make test", 18 * 60, tested, 12 * 60, layers),
        Measure("checks and sabotages that are not green", None, open_checks, 0, green),
    ]  # fmt: skip


def shown(found: list[Measure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("what", "then", "now", "aim", "met"):
        table.add_column(
            title, no_wrap=True, justify="left" if title in ("what", "met") else "right"
        )
    table.add_column("", overflow="fold")
    for each in found:
        then, now = ("?" if count is None else f"{count:,}" for count in (each.then, each.now))
        met = "[green]yes[/]" if each.is_met else "[yellow]no[/]"
        table.add_row(each.what, then, now, f"{each.aim:,}", met, each.detail)
    return table


def main(path: Path = BUILD / "weight.json") -> int:
    """0: an aim that is missed is no failure."""
    found = measures()
    terminal().print(shown(found))
    path.parent.mkdir(exist_ok=True)
    rows = [{**asdict(each), "met": each.is_met} for each in found]
    path.write_text(
        json.dumps({"commit": commit(), "then": THEN, "measures": rows}, indent=1) + "\n"
    )
    met = sum(each.is_met for each in found)
    print(f"weight: measures={len(found)} met={met} commit={commit()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
