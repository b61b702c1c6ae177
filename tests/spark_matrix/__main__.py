"""Runs rows and prints the table: `python -m tests.spark_matrix [--rows 1,2.3] [--quick] ...`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from examples.history import Recorder
from scripts.summary import BUILD, finish
from tests.cluster.tracker import Tracker
from tests.spark_matrix import rows as _rows  # noqa: F401 - registers them
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import ROWS, Profile, Row, in_order
from tests.spark_matrix.sessions import Session
from tests.spark_matrix.world import RowFailed, World
from tests.waits import HANG_S

SABOTAGE_PATIENCE_S = 15.0
"""How long a row waits for what does not come, when a fault was planted."""
UNHELD = "unheld"
"""The fault that stateful queries hold nothing."""
_NAME_WIDTH = 66


@dataclass
class Outcome:
    """A row in one session. `wrong` says what did not hold; empty if all did. refused: what Lowmark said
    that this version of PySpark lacks; all the rest of the row has been done, and is judged."""

    number: str
    name: str
    profile: str
    seconds: float = 0.0
    covered: bool = True
    wrong: list[str] = field(default_factory=list)
    refused: str = ""
    false: int = 0
    lost: int = 0
    """Completions that the judge found to be false, or lost."""
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the row has measured, by what it is of."""

    @property
    def said(self) -> str:
        if not self.covered:
            return f"not covered: {self.wrong[0]}"
        if self.wrong:
            return self.wrong[0].splitlines()[0]
        if self.refused:
            return f"refused: {self.refused}"
        return "; ".join(["ok", *(self._measured(name) for name in self.figures)])

    def _measured(self, name: str) -> str:
        figures = self.figures[name]
        said = f"{name} {figures['announcements']:g} judged"
        if "lag_batches_max" in figures:
            said += (
                f", lag {figures['lag_batches_max']:g} batches, {figures['lag_event_ms_max']:g} ms"
            )
        return said


class Matrix:
    """The rows that were asked for, one after the other."""

    def __init__(self, directory: Path, histories: Path, sabotage: str | None) -> None:
        self.directory, self.histories, self.sabotage = directory, histories, sabotage
        # Few neighbouring slots of one shard, so that every row's slots lie on both.
        self.tracker = Tracker(
            directory / "tracker", 2, options=("--set", "block_slots=4"),
            fault=sabotage if sabotage and sabotage != UNHELD else "",
        ).start()  # fmt: skip
        self.outcomes: list[Outcome] = []
        self._recorders: dict[str, Recorder] = {}
        self._session: Session | None = None

    def run(self, rows: list[Row]) -> None:
        """Rows of one session after each other; with a planted fault, until one has failed."""
        profiles = list(dict.fromkeys(profile for row in rows for profile in row.profiles))
        with recording(self._recorders.get):
            for profile in profiles:
                for row in rows:
                    if profile in row.profiles:
                        self._run(row, profile)
                        if self.sabotage and self.outcomes[-1].wrong:
                            return

    def _run(self, row: Row, profile: Profile) -> None:
        outcome = Outcome(row.number, row.name, profile.name)
        if row.body is None:
            outcome.covered, outcome.wrong = False, [row.why]
        else:
            started_s = time.monotonic()
            self._fill(outcome, row, profile)
            outcome.seconds = round(time.monotonic() - started_s, 1)
        self.outcomes.append(outcome)
        show(outcome)

    def _fill(self, outcome: Outcome, row: Row, profile: Profile) -> None:
        assert row.body is not None
        name = f"{row.number}-{profile.name}"
        world: World | None = None
        try:
            world = self._world(row, profile, name)
            row.body(world)
        except RowFailed as error:
            outcome.wrong.append(str(error))
        except Exception as error:
            outcome.wrong += [f"{type(error).__name__}: {error}", traceback.format_exc()]
        if world is not None:
            outcome.refused = world.refusal
            try:
                world.close()
                judged = world.judge()
                outcome.false, outcome.lost = judged.false, judged.lost
                outcome.wrong += [*world.wrong, *([] if judged.ok else judged.said)]
                outcome.figures = world.figures
            except Exception as error:
                outcome.wrong += [
                    f"at the end {type(error).__name__}: {error}",
                    traceback.format_exc(),
                ]
        outcome.wrong = [without_frames(text) for text in outcome.wrong]

    def _world(self, row: Row, profile: Profile, name: str) -> World:
        return World(
            row, profile, self._spark(profile), self.tracker, self.directory / name,
            self.histories / f"{name}.jsonl", self._recorders,
            SABOTAGE_PATIENCE_S if self.sabotage else HANG_S, unheld=self.sabotage == UNHELD,
        )  # fmt: skip

    def _spark(self, profile: Profile) -> SparkSession:
        if self._session is None or self._session.profile != profile:
            self._end_session()
            self._session = Session(profile, self.directory / "spark")
        return self._session.spark

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None

    def close(self) -> None:
        self._end_session()
        self.tracker.close()


def without_frames(text: str) -> str:
    """An error without the frames of the JVM, which say little and are many."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith(("\tat ", "\t... ")))


def show(outcome: Outcome) -> None:
    name = f"{outcome.number:>5}  {outcome.name} [{outcome.profile}]"
    print(f"{name:<{_NAME_WIDTH}} {outcome.seconds:>6.1f} s  {outcome.said}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_matrix", description=__doc__)
    parser.add_argument("--rows", default="", help="numbers or sections, with commas")
    parser.add_argument("--profile", default="", help="only these kinds of sessions, with commas")
    parser.add_argument("--quick", action="store_true", help="those of the quick form")
    parser.add_argument("--sabotage", choices=("early", "lost", "double", UNHELD))
    parser.add_argument("--name", default="spark_matrix", help="of the files in build/")
    chosen = parser.parse_args(arguments)
    wanted = [number for number in chosen.rows.split(",") if number]
    rows = sorted(
        (
            row for row in ROWS
            if (not wanted or any(_within(row.number, number) for number in wanted))
            and (row.quick or not chosen.quick)
        ),
        key=in_order,
    )  # fmt: skip
    if chosen.quick:
        rows = [replace(row, profiles=row.quick) for row in rows]
    if chosen.profile:
        names = chosen.profile.split(",")
        rows = [
            replace(row, profiles=profiles) for row in rows
            if (profiles := tuple(p for p in row.profiles if p.name in names))
        ]  # fmt: skip
    return run(rows, chosen.name, chosen.sabotage)


def _within(number: str, wanted: str) -> bool:
    return number == wanted or number.startswith(wanted + ".")


def run_rows(
    rows: list[Row],
    name: str,
    sabotage: str | None,
    matrix_of: Callable[[Path, Path, str | None], Matrix] = Matrix,
) -> list[Outcome]:
    """Runs rows with files in `build`, and prints the table; what each has come to, in order."""
    histories = BUILD / name
    work = BUILD / f"{name}.work"
    for folder in (histories, work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    # What a driver's children find of the project.
    root = str(BUILD.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (root, f"{root}/proto", os.environ.get("PYTHONPATH", "")))
    )
    matrix = matrix_of(work, histories, sabotage)
    try:
        matrix.run(rows)
    finally:
        matrix.close()
    outcomes = sorted(
        matrix.outcomes, key=lambda o: tuple(int(part) for part in o.number.split("."))
    )
    print(f"\n{'row':>5}  what Spark does", flush=True)
    for outcome in outcomes:
        show(outcome)
    for outcome in failed_of(outcomes):
        print(f"\n{outcome.number} {outcome.name} [{outcome.profile}]:")
        print("\n".join(outcome.wrong))
    return outcomes


def failed_of(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.wrong and outcome.covered]


def _judged(outcomes: list[Outcome]) -> dict[str, object]:
    """Of the rows that measure it: how many announcements were held against what was in state."""
    measured = [outcome for outcome in outcomes if outcome.figures]
    if not measured:
        return {}
    announcements = (f["announcements"] for o in measured for f in o.figures.values())
    return {"judged": round(sum(announcements))}


def run(rows: list[Row], name: str, sabotage: str | None) -> int:
    """Runs rows with files in `build`; the exit code is 0 only if all hold and none is missing."""
    started_s = time.monotonic()
    outcomes = run_rows(rows, name, sabotage)
    failed = failed_of(outcomes)
    missing = [outcome for outcome in outcomes if not outcome.covered]
    refused = [outcome for outcome in outcomes if outcome.refused]
    shown = {
        "rows": len(outcomes),
        "failed": len(failed),
        "false": sum(outcome.false for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        **({"refused": len(refused)} if refused else {}),
        **({"not_covered": len(missing)} if missing else {}),
        **_judged(outcomes),
        "seconds": round(time.monotonic() - started_s),
    }
    details: dict[str, object] = {
        "pyspark": pyspark.__version__,
        "sabotage": sabotage,
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    label = name.replace("_", "-")
    status = finish(
        label, ok=bool(outcomes) and not failed and not missing, shown=shown, details=details
    )
    if label != name:
        os.replace(BUILD / f"{label}.json", BUILD / f"{name}.json")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
