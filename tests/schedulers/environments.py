"""An environment for each scheduler, under build/schedulers: its pinned packages, and Lowmark's wheel."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from scripts.summary import BUILD
from tests.install.environments import Environment, InstallFailed, build, fresh, interpreter

LOCKS = Path(__file__).parent / "locks"
PYTHONS = ("3.11", "3.12", "3.13")
"""The first of these that is there is taken."""
CHECK_S = 120.0


class NotToBeHad(Exception):
    """What a scheduler needs can't be installed here; says what pip said."""


def environment(name: str) -> Environment:
    """That of a scheduler: made once for a lock, with the wheel of this tree in it each time. Raises NotToBeHad, and
    InstallFailed for what is wrong with the wheel."""
    directory = BUILD / "schedulers" / name
    lock = LOCKS / f"{name}.lock"
    stamp, wanted = directory / "stamp", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        _install(directory, lock)
        stamp.write_text(wanted)
    made = Environment(directory / "venv", directory / "work")
    with tempfile.TemporaryDirectory(prefix="lowmark-wheel-") as place:
        made.install("--no-deps", "--force-reinstall", str(build(Path(place)).wheel))
    made.run([str(made.python), "-m", "pip", "check"], CHECK_S)
    shutil.rmtree(made.work)
    made.work.mkdir()
    return made


def _install(directory: Path, lock: Path) -> None:
    python = next((found for each in PYTHONS if (found := interpreter(each))), None)
    if python is None:
        raise NotToBeHad(f"no Python of {', '.join(PYTHONS)} on the PATH or in pyenv")
    try:
        fresh(directory, python).install("--no-deps", "--require-hashes", "-r", str(lock))
    except InstallFailed as error:
        raise NotToBeHad(str(error)[-500:]) from error
