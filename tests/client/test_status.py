"""`lowmark status`: all pipelines and segments as a table, for people and for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.client.support import HOUR, various_pipelines
from tests.waits import until
from tracker.cli.app import app
from tracker.client import admin as admin_module
from tracker.client.embedded import EmbeddedTracker
from tracker.view import progress
from tracker.view.tables import STATUS

WRONG_USAGE = 2
COMPARED = ("time", "min_time", "state", "holds", "lag_slots", "open_items", "complete")
"""What a moment later is as it was, unless something has happened."""


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """Pipelines that are complete, held, waiting for their front, and one whose slots are numbers."""
    monkeypatch.setattr(progress, "STUCK_AFTER_MS", 0)
    with various_pipelines(2) as embedded:
        yield embedded


def run(running: EmbeddedTracker, *words: str) -> Result:
    environment = {"LOWMARK_TARGET": running.target, "COLUMNS": "200"}
    return CliRunner().invoke(app, ["status", *words], env=environment)


def rows(running: EmbeddedTracker, *words: str) -> dict[tuple[str, str | None], dict[str, Any]]:
    result = run(running, "--format", "json", *words)
    assert result.exit_code == 0, result.output
    return {(row["pipeline"], row["segment"]): row for row in json.loads(result.stdout)}


def test_every_pipeline_and_segment_has_a_line_that_says_what_holds_it(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "PAGE_PIPELINES", 1)
    found = rows(running)
    assert list(found) == [
        (name, segment)
        for name in ("complete", "held", "numbers", "waiting")
        for segment in (None, "first", "second")
    ]
    assert {name: found[name, None]["state"] for name, _ in found} == {
        "complete": "complete", "held": "stuck", "numbers": "moving", "waiting": "waiting",
    }  # fmt: skip
    held = found["held", None]
    assert (held["min_time"], held["time"]) == (HOUR, "1970-01-01T01:00:00+00:00")
    assert (held["lag_slots"], held["lag_ms"]) == (2 * HOUR, 2 * 3_600_000)
    assert held["open_items"] == 1 and not held["complete"]
    assert "segment first at 1970-01-01 01:00:00" in held["holds"] and held["advice"]
    assert "front front has never joined" in found["waiting", None]["holds"]
    assert found["complete", "first"]["holds"] is None
    number = found["numbers", "second"]
    assert (number["time"], number["whole_time"], number["round"]) == (None, 3, 1)


def test_people_see_the_same_without_lines_that_say_it_twice(running: EmbeddedTracker) -> None:
    shown = run(running).stdout
    assert "nobody has ever consumed from segment first" in shown and "2.0 h" in shown
    assert shown.count(" all ") == 4 and "time 3, round 1" in shown
    one = run(running, "-p", "held").stdout
    assert "held" in one and "waiting" not in one
    assert run(running, "-p", "none").exit_code == 1


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_programs_read_columns(running: EmbeddedTracker, format: str) -> None:
    import pyarrow.parquet

    def read(data: bytes) -> Any:
        if format == "parquet":
            return pyarrow.parquet.read_table(io.BytesIO(data))
        return pyarrow.ipc.open_stream(data).read_all()

    def asked() -> dict[tuple[str, str | None], list[Any]]:
        return {key: [row[name] for name in COMPARED] for key, row in rows(running).items()}

    def columns() -> tuple[Any, dict[tuple[str, str | None], list[Any]]] | None:
        """What stands in columns, and in rows both before it was asked and after."""
        before, printed = asked(), run(running, "--format", format)
        assert printed.exit_code == 0, printed.output
        return (read(printed.stdout_bytes), before) if asked() == before else None

    found = until(columns, "each time something else")
    assert found is not None
    table, told = found
    assert table.column_names == list(STATUS.types)
    for row in table.to_pylist():
        row["time"] = row["time"] and row["time"].isoformat()
        assert [row[name] for name in COMPARED] == told[row["pipeline"], row["segment"]]


def test_what_cannot_be_written_is_said(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    none = run(running, "--format", "arrow")
    assert none.exit_code == WRONG_USAGE and "pip install 'lowmark[fronts]'" in none.stderr
