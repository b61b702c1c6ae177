"""How the tests are run in layers, and how a run ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import summary
from scripts import test as layers
from tests.waits import HANG_S

SUITE = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def test_every_directory_with_tests_belongs_to_exactly_one_layer() -> None:
    named = [path for layer in layers.LAYERS for path in layers.paths_of(layer)]
    directories = [d for d in (summary.ROOT / "tests").iterdir() if any(d.glob("**/test_*.py"))]
    assert sorted(named) == sorted(f"tests/{d.name}" for d in directories)


def test_a_directory_that_nobody_named_runs_with_the_processes(tmp_path: Path) -> None:
    assert layers.layer_of(tmp_path / "new") == "processes"
    assert layers.layer_of(tmp_path / "core") == "pure"
    assert layers.layer_of(tmp_path / "spark") == "spark"
    assert layers.layer_of(tmp_path / "connectors") == "connectors"


def test_what_runs_beside_others_is_there_and_runs_once() -> None:
    beside = [name for names in layers.BESIDE.values() for name in names]
    assert len(set(beside)) == len(beside)
    assert all((summary.ROOT / "tests" / name).exists() for name in beside)


def test_errors_outside_of_tests_count_as_failed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(SUITE.format(10, 1, 2, 3))
    result = layers.counted("pure", 1, 0.5, report)
    assert (result.passed, result.failed, result.skipped) == (4, 3, 3)
    assert not result.ok


def making(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> layers.Making:
    monkeypatch.setattr(layers, "BUILD", directory)
    return layers.Making("parts", ["sh", "-c", script])


def test_what_could_not_be_fetched_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = making(tmp_path, monkeypatch, "echo 'parts: not on this machine'; exit 1")
    running.wait()
    running.end()
    assert capsys.readouterr().out == "parts: not on this machine\n"


def test_a_fetcher_ends_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    script = f"(echo begun; sleep 600) > {tmp_path}/pipe & wait"
    running = making(tmp_path, monkeypatch, script)
    with open(tmp_path / "pipe") as pipe:
        assert pipe.readline() == "begun\n"
        running.end()
        assert pipe.read() == "", "whoever could write is gone"


def test_a_layer_needs_what_some_program_makes() -> None:
    assert {name for names in layers.NEEDS.values() for name in names} == {*layers.BEFOREHAND}
    assert {*layers.NEEDS} <= {*layers.LAYERS}


@pytest.mark.parametrize(
    ("exit_code", "counts"),
    [(0, (0, 0, 0, 0)), (0, (3, 0, 0, 3)), (1, (3, 0, 0, 0)), (5, (0, 0, 0, 0))],
    ids=["nothing ran", "all skipped", "broke after its tests", "nothing collected"],
)
def test_a_layer_without_a_passed_test_or_with_an_exit_code_has_failed(
    tmp_path: Path, exit_code: int, counts: tuple[int, int, int, int]
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(SUITE.format(*counts))
    assert not layers.counted("pure", exit_code, 0.0, report).ok


def test_each_directorys_time_is_kept(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="tests.{name}" name="a" time="{time}"/>'
        for name, time in (("core.test_a", 1), ("model.test_b", 4), ("core.test_c.TestIt", 2))
    )
    report = tmp_path / "report.xml"
    report.write_text(f'<testsuites><testsuite tests="3">{cases}</testsuite></testsuites>')
    found = layers.counted("pure", 0, 8.25, report)
    assert (found.seconds, found.directories) == (8.2, {"tests.model": 4, "tests.core": 3})


def test_parts_of_a_layer_run_beside_each_other(tmp_path: Path) -> None:
    for layer in layers.LAYERS:
        arguments = [each for part in layers.parts_of(layer).values() for each in part]
        files = {each.removeprefix("--ignore=") for each in arguments if each.startswith("--")}
        directories = {each for each in arguments if (summary.ROOT / each).is_dir()}
        assert sorted(directories) == sorted(layers.paths_of(layer))
        assert set(arguments) == directories | files | {f"--ignore={file}" for file in files}
        assert all((summary.ROOT / file).is_file() for file in files)
    processes = ["processes", "processes-clients", "processes-consumers", "processes-systems"]
    assert sorted(layers.parts_of("processes")) == processes
    assert layers.parts_of("spark")["spark-matrix"] == ["tests/spark_matrix"]
    reports = [tmp_path / "one.xml", tmp_path / "other.xml"]
    for report in reports:
        report.write_text(SUITE.format(3, 0, 0, 1))
    assert layers.counted("processes", 0, 0.5, *reports).passed == 4


def test_a_part_without_tests_to_run_fails_only_with_the_others() -> None:
    assert [layers.worst(codes) for codes in ([0, 5], [5, 5], [0, 1], [0, -9], [0])] == [
        0, 5, 1, -9, 0,
    ]  # fmt: skip


def test_a_layer_that_wrote_no_report_has_failed(tmp_path: Path) -> None:
    assert not layers.counted("pure", 0, 0.0, tmp_path / "missing.xml").ok


def test_behind_two_tests_that_hang_no_other_is_begun(tmp_path: Path) -> None:
    """Whatever fails has waited for long enough where that is no time at all."""
    path = tmp_path / "test_hanging.py"
    path.write_text("".join(f"def test_{n}(): assert {n % 2}\n" for n in range(6)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", path],
        cwd=summary.ROOT, env={**os.environ, "LOWMARK_HANG_S": "0"}, check=False,
        capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1 and "2 failed, 1 passed" in done.stdout
    assert "2 tests have hung: no other is begun" in done.stdout


def test_an_unknown_layer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["everything"]) == 2
    assert "no layer 'everything'" in capsys.readouterr().err


@pytest.mark.parametrize(("ok", "word", "code"), [(True, "OK", 0), (False, "FAILED", 1)])
def test_a_run_ends_with_a_file_and_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ok: bool,
    word: str,
    code: int,
) -> None:
    monkeypatch.setattr(summary, "BUILD", tmp_path / "build")
    assert summary.finish("sum", ok=ok, shown={"passed": 3}, details={"layers": []}) == code
    assert capsys.readouterr().out == f"sum: {word} passed=3\n"
    written = json.loads((tmp_path / "build" / "sum.json").read_text())
    assert written == {"ok": ok, "passed": 3, "layers": []}
