"""The table of connectors, and what a run comes to."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, ClassVar

import pytest

from local_tracker.spark.versions import SUPPORTED_PYSPARK
from scripts import summary
from tests.connectors import __main__ as connectors
from tests.connectors import suites
from tests.connectors.connector import Connector
from tests.connectors.kinds import CONNECTORS
from tests.connectors.parts import jars
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.together import Parts
from tests.connectors.rows import BODIES
from tests.spark_matrix.__main__ import Outcome


def test_each_connector_has_a_number_and_a_name_of_its_own() -> None:
    assert len({kind.number for kind in CONNECTORS}) == len(CONNECTORS)
    assert len({kind.name for kind in CONNECTORS}) == len(CONNECTORS)


def test_each_is_tried_on_a_supported_pyspark_with_sets_that_are_pinned() -> None:
    for kind in CONNECTORS:
        assert kind.pyspark in SUPPORTED_PYSPARK
        assert set(kind.jars) <= set(jars.names())


def test_rows_of_a_connector_that_cannot_be_had_say_why(tmp_path: Path) -> None:
    class Missing(CONNECTORS[0]):  # type: ignore[misc, valid-type]
        def settings(self) -> dict[str, str]:
            raise Unavailable("there is no mvn on the PATH")

    connector: Connector = Missing(Parts(tmp_path))
    rows = connectors.rows_of(connector, list(BODIES))
    assert [row.number for row in rows] == [f"{Missing.number}.{n}" for n in range(1, 8)]
    assert all(row.body is None and row.why == "there is no mvn on the PATH" for row in rows)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome("1.1", "a", "x"), "t: OK rows=1 failed=0 false=0 lost=0 seconds=0"),
        (
            Outcome("1.1", "a", "x", wrong=["false completion"], false=2, lost=1),
            "t: FAILED rows=1 failed=1 false=2 lost=1 seconds=0",
        ),
        (
            Outcome("1.1", "a", "x", covered=False, wrong=["no mvn"]),
            "t: SKIPPED rows=0 failed=0 false=0 lost=0 skipped=1 seconds=0 no mvn",
        ),
    ],
    ids=["holds", "broken", "skipped"],
)
def test_a_run_is_ok_only_if_all_rows_ran_and_hold(
    outcome: Outcome,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(summary, "BUILD", tmp_path)
    code = connectors.report([outcome], "t", time.monotonic(), None)
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert code == (0 if "OK" in line else 1)
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["outcomes"][0]["number"] == "1.1"


@pytest.mark.parametrize(
    ("exit_code", "passed", "line"),
    [
        (0, 3, "t: OK rows=1 failed=0 false=0 lost=0 tests=3 seconds=0"),
        (1, 3, "t: FAILED rows=1 failed=0 false=0 lost=0 tests=3 seconds=0 broken=tables"),
        (0, 0, "t: FAILED rows=1 failed=0 false=0 lost=0 tests=0 seconds=0 broken=tables"),
    ],
    ids=["passed", "failed", "skipped"],
)
def test_tests_that_are_no_rows_fail_the_whole(
    exit_code: int,
    passed: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(report: Path, log: IO[bytes]) -> int:
        skipped = 3 - passed
        report.write_text(f'<testsuite tests="3" failures="0" errors="0" skipped="{skipped}"/>')
        return exit_code

    monkeypatch.setattr(summary, "BUILD", tmp_path)
    monkeypatch.setattr(suites, "BUILD", tmp_path)
    done = suites.run_suites("t-tests", [suites.Suite("tables", run)])
    connectors.report([Outcome("1.1", "a", "x")], "t", time.monotonic(), None, done)
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_without_any_row_a_run_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "BUILD", tmp_path)
    assert connectors.report([], "t", time.monotonic(), None) == 1


def test_rows_of_a_connector_whose_parts_do_not_start_have_failed(tmp_path: Path) -> None:
    class Broken(CONNECTORS[0]):  # type: ignore[misc, valid-type]
        jars: ClassVar[tuple[str, ...]] = ()

        def settings(self) -> dict[str, str]:
            raise AssertionError("java is not ready")

    connector: Connector = Broken(Parts(tmp_path))
    rows = connectors.rows_of(connector, ["ordinary"])
    assert [row.number for row in rows] == [f"{Broken.number}.1"]
    assert rows[0].body is not None
    assert connector.broken == "its parts could not be started: java is not ready"
