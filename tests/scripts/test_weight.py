"""What `python -m scripts.weight` counts, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from scripts import weight
from scripts.weight import Measure

PAGE = """# Architecture

| a table | of something else |
|---|---|
| `a.py` | `b.py` |

## Where to change what

| question | go to |
|---|---|
| one place | `core/a.py` (`A.b`) |
| three | `core/a.py`, `docs/b.md`, `proto/c.proto`; run `make sim` |

## After it

| `x.py` | `y.py` |
"""


def test_a_row_is_as_heavy_as_the_files_that_it_names() -> None:
    assert weight.rows_of_changes(PAGE) == [1, 3]


def test_commands_are_counted_in_groups_and_their_options_without_help() -> None:
    app, group = typer.Typer(), typer.Typer()

    @app.command()
    def serve(store: str, port: int = 1, verbose: bool = typer.Option(False, "-v/-q")) -> None:
        """An argument, and two options."""

    @group.command("list")
    def list_all(json: bool = False) -> None:
        """One option."""

    app.add_typer(group, name="nodes")
    assert weight.commands(typer.main.get_command(app)) == {"serve": 2, "nodes list": 1}


def test_parameters_are_those_that_a_caller_gives() -> None:
    class Front:
        def __init__(self, name: str, *, slack: int = 1) -> None:
            """Two."""

    assert weight.parameters(Front) == weight.parameters(Front.__init__) == 2


@pytest.mark.parametrize(("now", "met"), [(None, False), (11, False), (10, True)])
def test_an_aim_is_met_by_no_more_than_it(now: int | None, met: bool) -> None:
    assert Measure("names", 155, now, 10).is_met == met


def test_the_table_is_kept_and_an_aim_that_is_missed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Measure("names", 155, 28, 40), Measure("lines", 61_645, 61_000, 50_000, "Python")]
    monkeypatch.setattr(weight, "measures", lambda: found)
    assert weight.main(tmp_path / "build" / "weight.json") == 0
    kept = json.loads((tmp_path / "build" / "weight.json").read_text())["measures"]
    assert [(row["what"], row["met"]) for row in kept] == [("names", True), ("lines", False)]
    shown = capsys.readouterr().out.splitlines()
    assert "61,000" in shown[2] and shown[-1].startswith("weight: measures=2 met=1 ")


def test_everything_that_has_an_aim_is_counted_here() -> None:
    found = {each.what: each for each in weight.measures()}
    recorded = {"seconds of the last make test"}  # there may have been none
    assert all(each.now is not None for what, each in found.items() if what not in recorded)
    assert len(found) == len(weight.measures())
