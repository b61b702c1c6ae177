"""What is imported as `tracker`, `fronts` or `acker` may be somebody else's: it is said, and not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lowmark
from local_tracker.worker.bundle import build_zip
from lowmark import _shadows
from lowmark._face import declared
from tests.docs.pages import ROOT
from tests.waits import HANG_S

RUNS = "print('a module that is not ours has run')\n"
ADVICE = "rename what is yours, or uninstall what brought it and install lowmark again"


def run(program: str, *paths: Path | str) -> subprocess.CompletedProcess[str]:
    """Runs a program where the modules of `paths` are found before all others."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment, check=False, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip


def warnings_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "Warning" in line]


def test_every_package_has_the_mark() -> None:
    assert _shadows.foreign_packages() == {}
    modules = Path(lowmark.__file__).parent.glob("*.py")
    used = {
        where.split(".")[0] for file in modules for where in declared(file.read_text()).values()
    }
    assert used < set(_shadows.PACKAGES)


def test_nothing_is_said_where_all_is_ours(tmp_path: Path) -> None:
    for paths in ([ROOT, ROOT / "proto"], [build_zip(f"{tmp_path}/workers.zip")]):
        done = run(
            "import lowmark; from lowmark import acks; from lowmark.nodes import Cells", *paths
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["tracker.py", "tracker/__init__.py", "fronts.py", "acker.py"])
def test_a_module_that_hides_ours_is_named_when_lowmark_is_imported(
    tmp_path: Path, name: str
) -> None:
    theirs = tmp_path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text(RUNS)
    done = run("import lowmark; print(lowmark.__name__)", tmp_path, ROOT, ROOT / "proto")
    (said,) = warnings_of(done)
    package = name.partition("/")[0].removesuffix(".py")
    assert f"({package!r} by {theirs})" in said and ADVICE in said
    assert done.stdout == "lowmark\n", "it was not imported"


def test_a_job_beside_a_tracker_py_is_told_what_to_do(tmp_path: Path) -> None:
    """The job's directory is the first in which Python looks."""
    (tmp_path / "tracker.py").write_text(RUNS)
    job = tmp_path / "job.py"
    job.write_text("from lowmark import Subscriber\n")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    done = subprocess.run(
        [sys.executable, job],
        env={**os.environ, "PYTHONPATH": paths},
        check=False, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and last.endswith(ADVICE)
    assert f"'tracker' by {tmp_path / 'tracker.py'}" in last
    assert done.stdout == "", "it was not imported"


@pytest.mark.parametrize(
    ("hidden", "statement", "imported"),
    [
        ("fronts", "from lowmark import FileFront", False),
        ("fronts", "from lowmark import Subscriber; from lowmark.nodes import Cells", True),
        ("acker", "from lowmark import Subscriber", False),
        ("acker", "from lowmark import acks; from lowmark.nodes import Cells", True),
    ],
)
def test_only_what_needs_a_hidden_package_is_refused(
    tmp_path: Path, hidden: str, statement: str, imported: bool
) -> None:
    (tmp_path / f"{hidden}.py").touch()
    done = run(statement, tmp_path, ROOT, ROOT / "proto")
    assert (done.returncode == 0) == imported, done.stderr
    assert imported or done.stderr.splitlines()[-1].endswith(ADVICE)


def test_what_is_not_installed_is_not_called_hidden(tmp_path: Path) -> None:
    (tmp_path / "fronts.py").touch()
    program = (
        "import sys; sys.modules['h11'] = sys.modules['structlog'] = None; "
        "from lowmark import embedded"
    )
    done = run(program, tmp_path, ROOT, ROOT / "proto")
    assert done.returncode == 1
    assert ADVICE not in done.stderr.splitlines()[-1]


def test_a_package_put_there_by_hand_and_one_that_is_no_python_are_foreign(tmp_path: Path) -> None:
    (tmp_path / "fronts.py").write_bytes(b"# coding: no-such-coding\n")
    program = (
        "import sys, types; sys.modules['tracker'] = types.ModuleType('tracker'); import lowmark"
    )
    done = run(program, tmp_path, ROOT, ROOT / "proto")
    (said,) = warnings_of(done)
    assert "'tracker' by a module made while running" in said
    assert f"'fronts' by {tmp_path / 'fronts.py'}" in said
