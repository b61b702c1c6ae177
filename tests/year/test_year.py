"""The parts of `make year`: tables are found by what holds them, and growth is told from what is full."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.check.growth import EARLY, LATE
from tests.check.history import history_of
from tests.check.rules import violations
from tests.year import full
from tests.year.__main__ import live
from tests.year.lives import Scale
from tests.year.tables import Kept

Line = dict[str, Any]

SIZES = dict.fromkeys(
    (
        "resident_bytes", "tables_bytes", "snapshot_bytes", "store_bytes", "log_records_most",
        "snapshot_s", "start_s", "start_records",
    ),
    1.0,
)  # fmt: skip


@dataclass
class Row:
    names: list[str]


@dataclass
class Table:
    rows: dict[int, Row] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)


class Tables(dict[int, Table]):
    def __init__(self) -> None:
        super().__init__()
        self.ended = ["a", "b"]


for ours in (Row, Table, Tables):
    ours.__module__ = "tracker.of_a_test"


def test_what_is_in_a_container_counts_for_the_field_that_holds_it() -> None:
    shared = Row(["a", "b"])
    kept = Kept([Table({1: shared, 2: Row(["c"]), 3: shared}, [1 << 40, 1 << 41])])
    entries = {name: (each.entries, each.most) for name, each in kept.tables.items()}
    assert entries == {"Table.rows": (3, 3), "Table.numbers": (2, 2), "Row.names": (3, 2)}
    assert kept.objects == {"Table": 1, "Row": 2}
    assert kept.size_bytes > 500


def test_a_container_that_has_fields_itself_is_looked_at_in_both_ways() -> None:
    tables = Tables()
    tables[1] = Table(numbers=[1 << 40])
    kept = Kept([tables])
    assert {name: each.entries for name, each in kept.tables.items()} == {
        "Tables.ended": 2, "Table.rows": 0, "Table.numbers": 1,
    }  # fmt: skip


def mark(number: int, entries: int, *, objects: int = 1, did: int = 0, **sizes: float) -> Line:
    return {
        "kind": "mark", "at_ns": number, "number": number, "tables": {"T.kept": (entries, entries, 0)},
        "objects": {"T": objects}, "sizes": SIZES | sizes, "did": {"come": did or number},
    }  # fmt: skip


def judged(*marks: Line, **bounds: int) -> list[str]:
    header = {"kind": "header", "at_ns": 0, "pipeline": "p", "segments": [], "edges": []}
    bounds = {name.replace("__", "."): most for name, most in bounds.items()}
    return violations(history_of(enumerate([header | {"bounds": bounds}, *marks], 1)))


@pytest.mark.parametrize(
    ("early", "late", "found"),
    [
        ((1_000, {}), (1_100, {}), ""),
        ((1_000, {}), (1_300, {}), "grown: T.kept had 1,000 entries by mark 6"),
        ((1_000, {"objects": 10}), (2_000, {"objects": 20}), ""),
        ((10, {}), (60, {}), ""),
        ((10, {}), (10, {"store_bytes": 1e9}), "grown: store_bytes was 1 by mark 6"),
        ((10, {}), (10, {"did": 6}), "nothing to check: come has not happened since mark 6"),
    ],
)
def test_growth_is_told_from_noise(
    early: tuple[int, dict[str, Any]], late: tuple[int, dict[str, Any]], found: str
) -> None:
    marks = (
        *(mark(n, early[0], **early[1]) for n in EARLY),
        *(mark(n, late[0], **late[1]) for n in LATE),
    )
    assert [each.startswith(found) for each in judged(*marks)] == [True] * bool(found)
    assert judged(*marks[:-1]) == [
        "nothing to check: marks (4, 5, 6) and (10, 11, 12) are not all there"
    ]


def test_what_comes_and_goes_is_measured_where_there_is_most_of_it() -> None:
    coming_and_going = [mark(n, 1_000 * (n % 3 == 0)) for n in (*EARLY, *LATE)]
    assert judged(*coming_and_going) == []
    assert judged(*coming_and_going[:-1], mark(12, 1_300)) != []


def test_a_table_that_fills_for_longer_has_a_bound() -> None:
    marks = (*(mark(n, 100) for n in EARLY), *(mark(n, 1_000) for n in LATE))
    assert judged(*marks, T__kept=1_000) == []
    assert judged(*marks, T__kept=999) == [
        "grown: T.kept has 1000 entries in one place, its bound is 999"
    ]


def test_pipelines_and_nodes_come_and_go(tmp_path: Path) -> None:
    """So short that nothing is to be judged."""
    scale = Scale(10, 60, 100, busy=3, crowded=1, changing=1, deleted=1)
    lines = live(tmp_path, scale, 2, marks=2)
    assert [line["number"] for line in lines[1:]] == [1, 2]
    did = lines[-1]["did"]
    assert min(did[what] for what in ("left", "retired", "deleted", "restarted", "changed")) > 0
    assert lines[-1]["sizes"]["snapshot_bytes"] > 0


def test_full_histories_are_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["full", "--pipelines", "2", "--segments", "1"])
    full.main()
    assert "histories full: snapshot" in capsys.readouterr().out
