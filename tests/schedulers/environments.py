"""An environment for each scheduler, under build/schedulers: its pinned packages, and Lowmark's wheel."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from scripts.artifacts import StepFailed
from scripts.summary import BUILD
from tests.install.environments import Environment, build, fresh, interpreter
from tests.waits import HANG_S

LOCKS = Path(__file__).parent / "locks"
PYTHONS = ("3.11", "3.12", "3.13")
"""The first of these that is there is taken."""
THEIR_OWN = ("AIRFLOW_", "DAGSTER_", "DBT_", "_AIRFLOW_")
"""How the names begin by which schedulers are configured: those of whoever runs this are none of theirs."""
LOOPBACK = "127.0.0.1,localhost"


class NotToBeHad(Exception):
    """What a scheduler needs can't be installed here; says what pip said."""


def environment(name: str) -> Environment:
    """That of a scheduler: made once for a lock, with the wheel of this tree in it each time. Raises NotToBeHad, and
    StepFailed for what is wrong with the wheel."""
    directory = BUILD / "schedulers" / name
    lock = LOCKS / f"{name}.lock"
    stamp, wanted = directory / "stamp", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        _install(directory, lock)
        stamp.write_text(wanted)
    made = Environment(directory / "venv", directory / "work")
    shutil.rmtree(made.work, ignore_errors=True)
    made.work.mkdir()
    with tempfile.TemporaryDirectory(prefix="lowmark-wheel-") as place:
        made.install("--no-deps", "--force-reinstall", str(build(Path(place)).wheel))
    made.run([str(made.python), "-m", "pip", "check"], HANG_S)
    return made


def variables(made: Environment, programs: Path) -> dict[str, str]:
    """Of a scheduler's programs: nothing of the caller's own schedulers, no proxy for the loopback address, and what
    lies in a directory found first."""
    kept = {name: value for name, value in made.variables.items() if not name.startswith(THEIR_OWN)}
    path = os.pathsep.join((str(programs), made.variables["PATH"]))
    return kept | {"PATH": path, "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}


def _install(directory: Path, lock: Path) -> None:
    python = next((found for each in PYTHONS if (found := interpreter(each))), None)
    if python is None:
        raise NotToBeHad(f"no Python of {', '.join(PYTHONS)} on the PATH or in pyenv")
    try:
        fresh(directory, python).install("--no-deps", "--require-hashes", "-r", str(lock))
    except StepFailed as error:
        raise NotToBeHad(str(error)[-500:]) from error
