"""An environment for each version of PySpark: `build/spark-X.Y`, made once from pinned packages.

What it holds is `requirements.lock`, but for tools that nothing runs, with the packages of
`locks/X.Y.lock` (PySpark, and what it pins itself) in place of those of the same name. `scripts/lock`
writes the latter anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from local_tracker.spark.versions import SUPPORTED_PYSPARK
from scripts.summary import BUILD, ROOT

LOCKS = Path(__file__).parent / "locks"
PYTHON = (3, 11)
"""The one Python that every supported version of PySpark takes, and the oldest of Lowmark's."""
TABLES_PYSPARK = "4.1"
"""The newest for which both Delta and Iceberg have a release."""
_TOOLS = re.compile(r"buf-bin|helm-python-sdk|kubernetes-validate|mypy|mypy-protobuf|ruff|types-.*")


class EnvironmentFailed(Exception):
    """An environment cannot be made: why, and what to do."""


def inherited() -> dict[str, str]:
    """The variables that a process with a Spark of its own gets: what this one has set for its Spark is not of
    that one."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}


def lock_text(version: str) -> str:
    """What is installed for a version of PySpark, as pip reads it: pins with hashes."""
    entries = _entries(ROOT / "requirements.lock")
    if (own := LOCKS / f"{version}.lock").exists():
        entries |= _entries(own)
    return "\n".join(text for name, text in entries.items() if not _TOOLS.fullmatch(name)) + "\n"


def _entries(lock: Path) -> dict[str, str]:
    """Each package's lines of a lock file, by its name. One may have several versions, each for its Python."""
    found: dict[str, list[str]] = {}
    for text in re.split(r"\n(?=\S)", lock.read_text().strip()):
        found.setdefault(text.partition("==")[0], []).append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


def environment(version: str) -> Path:
    """The Python of a version's environment, which is made if it is not what the locks say: by one process
    at a time. Raises EnvironmentFailed."""
    assert version in SUPPORTED_PYSPARK, version
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"spark-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(version)


def _made(version: str) -> Path:
    home, wanted = BUILD / f"spark-{version}", lock_text(version)
    python, stamp = home / "bin/python", home / "installed.lock"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(
        f"spark-versions: making {home.relative_to(ROOT)}; some minutes the first time", flush=True
    )
    shutil.rmtree(home, ignore_errors=True)
    _run(_python(), "-m", "venv", str(home))
    lock = home / "wanted.lock"
    lock.write_text(wanted)
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--no-input")
    _run(*pip, "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(lock))
    # The project itself: pip then checks that all that it asks for is there.
    _run(*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    _run(*pip, "check")
    lock.rename(stamp)
    return python


def _python() -> str:
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    name = "python{}.{}".format(*PYTHON)
    found = shutil.which(name)
    if found is None:
        raise EnvironmentFailed(
            f"no {name} on the PATH, which PySpark {SUPPORTED_PYSPARK[0]} to {SUPPORTED_PYSPARK[-1]} all "
            f"take; install it, or run with it: PYTHON=/path/to/{name} make spark-versions"
        )
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise EnvironmentFailed(f"{' '.join(command)} ended with {done.returncode}: {said}")
