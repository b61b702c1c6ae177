"""Which versions of PySpark queries are tracked on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from local_tracker.spark.versions import (
    SUPPORTED_PYSPARK,
    UNTRIED_VARIABLE,
    check_connect,
    check_version,
)
from tests.spark_matrix import rows  # noqa: F401 - registers them
from tests.spark_matrix.registry import ROWS as registered
from tests.spark_versions.__main__ import ROWS, Result
from tests.spark_versions.environments import LOCKS, lock_text
from tracker.errors import TrackingError


@pytest.mark.parametrize(
    "version", ["3.5.0", "3.5.99", "4.0.5", "4.1.4", "4.2.1", "4.3.0", "4.3.7"]
)
def test_patch_releases_of_tried_versions_go_on(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_version(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0", "4.30.0", "5.0", "4"])
def test_another_version_warns_and_is_refused(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TrackingError, match=rf"PySpark {version} is not supported.*3\.5 to 4\.3"):
        check_version(version)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("named", ["4.4", "4.4.0"])
def test_it_goes_on_with_a_warning_when_it_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check_version("4.4.0", named)
    monkeypatch.setenv(UNTRIED_VARIABLE, named)
    check_version("4.4.0")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_naming_one_version_lets_no_other_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNTRIED_VARIABLE, "4.4")
    with pytest.raises(TrackingError, match=r"untried_pyspark='4\.5'"):
        check_version("4.5.0")
    with pytest.raises(TrackingError):
        check_version("4.4.0", "4.5")  # what is given goes before the environment


def test_a_version_without_a_server_for_connect_is_refused() -> None:
    with pytest.raises(TrackingError, match=r"PySpark 3\.5\.9 .* Connect session"):
        check_connect("3.5.9")
    check_connect("4.0.0")


# --- the environments of `make spark-versions` ------------------------------------------------------


def test_each_supported_version_has_an_environment() -> None:
    assert {path.stem for path in LOCKS.glob("*.lock")} < set(SUPPORTED_PYSPARK)
    for version in SUPPORTED_PYSPARK:
        assert f"\npyspark=={version}." in lock_text(version)


def test_an_environment_pins_each_package_once_and_with_hashes() -> None:
    for version in SUPPORTED_PYSPARK:
        entries = [line for line in lock_text(version).splitlines() if line[:1] not in (" ", "")]
        # One may have several versions, each for its Python.
        names = [(line.partition("==")[0], line.partition(";")[2]) for line in entries]
        assert len(names) == len(set(names)), names
        assert all("==" in line and line.endswith("\\") for line in entries)


def test_a_package_with_a_version_for_each_python_is_there_with_all_of_them() -> None:
    lines = lock_text("4.1").splitlines()
    assert len([line for line in lines if line.startswith("deprecated==")]) == 2
    assert len([line for line in lines if line.startswith("pyspark==")]) == 1


# --- what it says of them ---------------------------------------------------------------------------


def outcome(number: str, **more: Any) -> dict[str, Any]:
    return {"number": number, "wrong": [], "covered": True, "refused": "", **more}


def test_a_version_is_right_when_every_row_held_or_was_refused_by_name() -> None:
    outcomes = [outcome(number) for number in ROWS]
    outcomes[-1]["refused"] = "PySpark 3.5.9 cannot"
    result = Result("3.5", "3.5.9", 1, outcomes)
    assert result.ok
    assert result.line().endswith(f"row {outcomes[-1]['number']} refused: PySpark 3.5.9 cannot")


@pytest.mark.parametrize(
    "broken", [{"wrong": ["lost"]}, {"wrong": ["lost"], "refused": "PySpark"}, {"covered": False}]
)
def test_a_row_that_failed_is_no_refusal(broken: dict[str, Any]) -> None:
    first, *others = ROWS
    result = Result("3.5", "3.5.9", 1, [outcome(first, **broken), *map(outcome, others)])
    assert (result.ok, result.failed, result.refused) == (False, [first], [])


def test_a_row_that_did_not_run_has_failed() -> None:
    result = Result("3.5", "3.5.9", 1, [outcome(number) for number in list(ROWS)[1:]])
    assert result.failed == [next(iter(ROWS))]
    assert not Result("3.5", wrong="no python3.11").ok


def test_the_rows_are_of_the_matrix() -> None:
    known = {row.number: row for row in registered}
    assert all(known[number].body is not None for number in ROWS)
