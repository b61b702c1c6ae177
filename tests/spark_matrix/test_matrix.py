"""A few rows of the matrix of what Spark may do to a query; `make check` runs its quick form, `make spark-matrix` all."""

from __future__ import annotations

import json

import pytest

from tests.docs.pages import ROOT
from tests.spark_matrix import rows
from tests.spark_matrix.__main__ import main
from tests.spark_matrix.recording import Line, settled
from tests.spark_matrix.registry import ROWS

Shown = pytest.CaptureFixture[str]


FEW = ("2.6", "3.6", "6.13", "9.1")
"""An executor killed, a driver killed between its commit and its tick, a query that is a front, a local tracker killed."""


def test_a_row_of_each_kind_holds(capsys: Shown) -> None:
    status = main(["--name", "spark_matrix_few", "--quick", "--rows", ",".join(FEW)])
    lines = capsys.readouterr().out.splitlines()
    assert status == 0, lines
    assert lines[-1].startswith("spark-matrix-few: OK rows=4 failed=0 ")
    outcomes = json.loads((ROOT / "build/spark_matrix_few.json").read_text())["outcomes"]
    ran = {(outcome["number"], outcome["profile"]) for outcome in outcomes}
    assert ran == {(r.number, profile.name) for r in ROWS if r.number in FEW for profile in r.quick}


def test_a_planted_fault_is_found(capsys: Shown) -> None:
    """A min time that is read a slot too early: any row finds it. The other faults are planted by hand."""
    arguments = ["--rows", "1.1", "--profile", "local", "--sabotage", "early"]
    assert main(["--name", "spark_matrix_early", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("spark-matrix-early: FAILED rows=1 failed=1 ")
    assert any(line.startswith("false completion") for line in lines)


def test_every_section_has_rows() -> None:
    assert rows.__all__
    assert {row.number.split(".")[0] for row in ROWS} == {*"123456789", "10", "11", "12"}
    assert all(row.body or row.why for row in ROWS)


# --- the history of drivers that were killed ------------------------------------------------------


def handed(at_ns: int, batch: int) -> Line:
    return {
        "kind": "handed", "at_ns": at_ns, "node": "q#1", "batch": ["id", batch], "created": [],
        "consumed": [["parse", batch, 1]], "promises": [], "leaves": [],
    }  # fmt: skip


def joined(at_ns: int, last: int | None) -> Line:
    batches = [] if last is None else [["id", last]]
    return {
        "kind": "joined", "at_ns": at_ns, "node": "q", "incarnation": 2, "previous": 5,
        "batches": batches,
    }  # fmt: skip


def test_a_tick_is_one_that_was_acknowledged() -> None:
    answered = {
        **handed(12, 0),
        "kind": "tick",
        "number": 4,
        "handed_ns": 10,
        "acknowledged_ns": 12,
    }
    assert settled([handed(10, 0), answered, joined(30, 0)]) == [answered]


def test_what_the_tracker_tells_a_later_run_to_be_durable_is_a_tick() -> None:
    (tick,) = settled([handed(10, 0), joined(30, 0)])
    assert (tick["kind"], tick["number"], tick["acknowledged_ns"]) == ("tick", 5, 30)


def test_what_it_does_not_know_is_none() -> None:
    assert settled([handed(10, 1), joined(30, 0)]) == []
    assert settled([handed(10, 1), joined(5, 1)]) == [], "that run came before"
    assert settled([handed(10, 1), joined(30, None)]) == []
