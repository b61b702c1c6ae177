"""Static checks that are the project's own, or set up by it: that each can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import function_lengths, lint, lint_waits
from scripts.summary import ROOT
from tests.waits import HANG_S

PRIVATE_USE = '''"""A stranger."""


def peek(thing: object) -> object:
    return thing._inside
'''

PLANTED = {
    "tracker/core/stranger.py": "tracker.client",
    "tracker/core/home/stranger.py": "tracker.core.shard",
    "tracker/core/admission/stranger.py": "tracker.core.rescaling",
    "tracker/wire/stranger.py": "tracker.wire.frames",
    "tracker/wire/frames.py": "tracker.wire.stranger",
    "tracker/metrics/stranger.py": "tracker.wire",
    "tracker/store/stranger.py": "tracker.wire",
    "tracker/files/stranger.py": "tracker.core.log",
    "tracker/client/stranger.py": "tracker.consumers",
    "tracker/consumers/barrier/rows.py": "tracker.consumers.barrier.ledger",
    "tracker/consumers/periods/delta.py": "tracker.consumers.periods.follow",
    "tracker/dashboard/stranger.py": "tracker.service",
    "tracker/service/stats.py": "tracker.service.engine",
    "local_tracker/agent/stranger.py": "local_tracker.agent.spool",
    "local_tracker/agent/spool.py": "local_tracker.agent.stranger",
    "local_tracker/stranger.py": "local_tracker.worker",
    "local_tracker/core/stranger.py": "threading",
    "local_tracker/spark/stranger.py": "local_tracker.spark.session.tracked",
    "local_tracker/spark/state/entries.py": "pyspark",
    "local_tracker/spark/state/rules.py": "pyspark",
    "local_tracker/spark/query/compose.py": "local_tracker.spark.session.tracked",
    "local_tracker/spark/state/windows.py": "local_tracker.spark.state.recognise",
    "local_tracker/worker/stranger.py": "grpc",
    "fronts/stranger.py": "pyspark",
    "fronts/clock.py": "lowmark",
}
"""Imports that must not be, and the modules that the test writes them into."""


def function_of(lines: int) -> str:
    return "def long() -> None:\n" + "    pass\n" * (lines - 1)


def test_a_function_that_does_not_fit_a_screen_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "module.py"
    path.parent.mkdir()
    path.write_text("@wrapped\n" + function_of(function_lengths.LIMIT - 1))
    assert function_lengths.main([str(tmp_path)]) == 0
    path.write_text("@wrapped\n" + function_of(function_lengths.LIMIT))
    assert function_lengths.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{path}:2: long has 70 lines; the limit is 69\n"


def test_lengths_of_methods_and_of_functions_inside_functions_count() -> None:
    inner = "".join(f"    {line}\n" for line in function_of(80).splitlines())
    assert [name for _, name, _ in function_lengths.too_long(f"class Kind:\n{inner}")] == ["long"]
    outer = f"async def around() -> None:\n{inner}"
    assert [name for _, name, _ in function_lengths.too_long(outer)] == ["around", "long"]


@pytest.mark.parametrize(
    "folder",
    [
        "lowmark",
        "fronts",
        "local_tracker/spark",
        "tracker/client",
        "scripts",
        "examples",
        "tests/service",
    ],
)
def test_a_private_member_used_outside_of_its_class_fails(folder: str) -> None:
    done = subprocess.run(
        [*lint.CHECKS["ruff"][:2], "--stdin-filename", f"{folder}/stranger.py", "-"],
        input=PRIVATE_USE, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SLF001" in done.stdout


def test_every_import_contract_can_break(tmp_path: Path) -> None:
    """A copy of the product, with an import against each contract written into it."""
    for package in ("lowmark", "tracker", "local_tracker", "fronts", "scripts"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, imported in PLANTED.items():
        with (tmp_path / module).open("a") as file:
            file.write(f"\nimport {imported}\n")
    done = subprocess.run(
        [*lint.CHECKS["imports"], "--no-cache"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1
    kept = [line for line in done.stdout.splitlines() if " KEPT" in line]
    assert not kept, done.stdout


@pytest.mark.parametrize("broken", sorted(lint.CHECKS))
def test_one_check_that_fails_fails_them_all(
    broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is started, also behind one that has failed."""
    started: list[list[str]] = []

    def call(command: list[str], cwd: Path) -> int:
        started.append(command)
        return 1 if command == lint.CHECKS[broken] else 0

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr("scripts.summary.BUILD", tmp_path)
    assert lint.main([]) == 1
    assert started == list(lint.CHECKS.values())


def test_python_runs_the_checks_of_its_own_environment() -> None:
    assert Path(lint.CHECKS["ruff"][0]).parent == Path(sys.executable).parent


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("thread.join(5)", "5 as a limit"),
        ("until(done, 'what', 2.0)", "2.0 as a limit"),
        ("run(command, timeout=2 * SHORT_S)", "2 * SHORT_S as a limit"),
        ("time.sleep(0.1)", "a sleep"),
        ("await asyncio.sleep(pause_s)", "a sleep"),
        ("def wait(timeout_s: float = 5): ...", "5 as a limit"),
        ("pytest.mark.timeout(HANG_S)", "a timeout of a test's own"),
        ("subprocess.run(command)", "a program without a limit"),
        ("subprocess.run(command, timeout=HANG_S)", ""),
        ("thread.join(HANG_S)", ""),
        ("future.result(0)", ""),
        ("await asyncio.sleep(0)", ""),
        ("words.join(lines)", ""),
        ("node.flush(0.01)\nthread.join(0.01)  # expires: nobody answers", ""),
        ("# paces: the load\ntime.sleep(PAUSE_S)", ""),
    ],
)
def test_a_wait_with_a_limit_of_its_own_fails(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "test_module.py"
    lines = "".join(f"    {each}\n" for each in line.splitlines())
    path.write_text(f"SHORT_S = 0.5\n\n\nasync def test() -> None:\n{lines}")
    found = [what for _, what in lint_waits.found(path)]
    assert len(found) == bool(said) and all(said in what for what in found)
