"""`lowmark barrier`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.consumers.barrier.feeding import SEGMENT, SPEC, Feeder, in_order, row
from tracker.cli.app import app
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.barrier.sqlite import ordered_rows


def run(running: EmbeddedTracker, *more: str) -> tuple[int, str]:
    words = ["-t", running.target, "-p", SPEC.name, "-s", SEGMENT, "--name", "b", "--key", "key"]
    done = CliRunner().invoke(app, ["barrier", "run", *words, *more])
    return done.exit_code, done.output


def test_it_runs_to_the_end_of_the_pipeline_and_keeps_late_rows_beside(
    running: EmbeddedTracker, feeder: Feeder, tmp_path: Path
) -> None:
    state, sink = str(tmp_path / "state"), str(tmp_path / "sink.db")
    feeder.file("7.json", 7, [row(7, "b", n=1), row(8, "a", n=2), row(1, "late", n=3)])
    feeder.file("6.json", 6, [row(6, "c", n=4)])
    feeder.leave()
    where = ["--set", f"files={feeder.directory}", "--set", "slot=slot", "--set", "columns=n"]
    where += ["--sink", f"sqlite:{sink}", "--state", state]
    status, said = run(running, *where)
    assert status == 1 and "rows of" in said and "late" in said
    status, said = run(running, *where, "--set", "late=beside")
    assert status == 0, said
    counts = {"units": 2, "rows": 4, "released": 3, "waiting": 0, "late": 1}
    assert json.loads(said.splitlines()[-1]) == counts
    found = ordered_rows(sink, "b")
    assert [(each.slot, each.key) for each in found] == in_order(feeder.rows)[1:]
    assert found[0].payload == b'{"n": 4}'
    late = CliRunner().invoke(app, ["barrier", "late", "--state", state, "--json", "--drop"])
    assert json.loads(late.output)["key"] == "late"
    again = CliRunner().invoke(app, ["barrier", "late", "--state", state])
    assert (again.exit_code, again.output) == (0, "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "where rows go"),
        (["--sink", "host=h"], "where rows go"),
        (["--sink", "postgresql://h/db"], "needs a table: --set table=NAME"),
        (["--sink", "kafka://host:1"], "is not kafka://host:port/TOPIC"),
        (["--sink", "sqlite:s"], "where from"),
        (["--sink", "sqlite:s", "--set", "files=f", "--set", "late=drop"], "'refuse' or 'beside'"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    running: EmbeddedTracker, tmp_path: Path, given: list[str], why: str
) -> None:
    status, said = run(running, *given, "--state", str(tmp_path))
    assert status == 2 and why in " ".join(said.split())


def test_what_is_not_installed_is_named(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg.conninfo", None)
    given = ["--sink", "postgresql://h/db", "--set", "table=t", "--set", f"files={tmp_path}"]
    status, said = run(running, *given, "--state", str(tmp_path / "state"))
    assert status == 1 and "pip install 'lowmark[postgres]'" in said
