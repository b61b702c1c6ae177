"""The judge of sinks in order finds what is wrong with one, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.check.__main__ import main
from tests.check.history import MalformedHistory, history_of
from tests.check.rules import violations

Line = dict[str, Any]


def line(kind: str, at_ns: int, **fields: Any) -> Line:
    return {"kind": kind, "at_ns": at_ns, **fields}


def row(kind: str, at_ns: int, slot: int, key: str, name: str) -> Line:
    return line(kind, at_ns, slot=slot, key=key, row=name)


def sound() -> list[Line]:
    """Three rows, which went in out of order; two of one slot and key."""
    heard = [
        line("heard", at, subscriber="b", segment="deliver", min_time=slot)
        for at, slot in ((15, 5), (30, 6), (50, 9))
    ]
    return [
        line("header", 0, pipeline="p", segments=["deliver"], edges=[], released_by="deliver"),
        row("row_in", 10, 6, "a", "one"), row("row_in", 11, 5, "b", "two"),
        row("row_in", 12, 6, "a", "three"), *heard,
        row("row_out", 31, 5, "b", "two"), row("row_out", 51, 6, "a", "three"),
        row("row_out", 51, 6, "a", "one"),
    ]  # fmt: skip


def found(lines: list[Line]) -> list[str]:
    return [each.split(":")[0] for each in violations(history_of(enumerate(lines)))]


def test_a_sound_run_breaks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(sound()) == []
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in sound()))
    assert main([str(path)]) == 0
    assert "check: OK rows_in=3 rows_out=3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "instead", "kinds"),
    [
        (-1, [], ["lost"]),
        (-1, [row("row_out", 51, 6, "b", "one")], ["changed"]),
        (-1, [row("row_out", 51, 7, "a", "one")], ["changed"]),
        (-1, [row("row_out", 51, 6, "a", "one")] * 2, ["twice"]),
        (-1, [row("row_out", 51, 6, "a", "one"), row("row_out", 51, 6, "a", "x")], ["invented"]),
        (-3, [row("row_out", 30, 5, "b", "two")], []),
        (-3, [row("row_out", 29, 5, "b", "two")], ["early"]),
        (-3, [row("row_out", 14, 5, "b", "two")], ["early"]),
        (-3, [], ["lost"]),
    ],
)
def test_what_is_wrong_is_found(place: int, instead: list[Line], kinds: list[str]) -> None:
    lines = sound()
    lines[place : place + 1 or None] = instead
    assert found(lines) == kinds


def test_rows_that_change_places_are_found() -> None:
    lines = sound()
    lines[-3], lines[-2] = row("row_out", 51, 6, "a", "three"), row("row_out", 51, 5, "b", "two")
    assert found(lines) == ["misplaced"]


def test_a_run_in_which_nothing_was_put_in_order_proves_nothing() -> None:
    lines = [each for each in sound() if each.get("row") != "two"]
    assert found(lines) == ["nothing to check"]
    with pytest.raises(MalformedHistory, match="segments that its header has not"):
        history_of(enumerate([line("header", 0, pipeline="p", segments=[], edges=[], released_by="x")]))  # fmt: skip
