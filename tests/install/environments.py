"""Wheels, interpreters, and environments made from nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.summary import ROOT

BUILD_S, INSTALL_S = 120.0, 900.0
"""Far more than either takes with wheels cached, on a busy machine."""


class InstallFailed(Exception):
    """A wheel can't be built or installed; says what pip or the build said."""


@dataclass(frozen=True)
class Built:
    """A wheel, and the unpacked sdist that it was built from."""

    wheel: Path
    source: Path


def build(directory: Path) -> Built:
    """Builds the sdist, and the wheel from what is in it alone: what the sdist lacks, the wheel does too."""
    build_sdist = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)]
    _call(build_sdist, ROOT, BUILD_S)
    (sdist,) = directory.glob("*.tar.gz")
    shutil.unpack_archive(sdist, directory / "unpacked", filter="data")
    (source,) = (directory / "unpacked").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    _call(command, source, BUILD_S)
    (wheel,) = directory.glob("*.whl")
    return Built(wheel, source)


def interpreter(version: str) -> str | None:
    """A Python of a minor version (`3.12`) that can make environments: on the PATH, or one of pyenv's; None if
    there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for name in (sys.executable, f"python{version}", *found):
        asked = (
            f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
        )
        try:
            done = subprocess.run([name, "-c", asked], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return name
    return None


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the directory beside it in which its programs run."""

    home: Path
    work: Path
    more: Mapping[str, str] = field(default_factory=dict)
    """Variables of its programs, beside those of this process."""

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """Of its programs: they are found first, and nothing leads to this repository or its environment."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LOWMARK_", "PYSPARK_", "PYTHON", "SPARK_", "VIRTUAL_ENV"))
        }
        return (
            kept
            | dict(self.more)
            | {"PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        )

    def install(self, *wanted: str, constraints: Path | None = None) -> None:
        """As `pip install` does, with pip's caches. Raises InstallFailed."""
        more = ["--constraint", str(constraints)] if constraints else []
        self.run([str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                  "--no-input", *more, *wanted], INSTALL_S)  # fmt: skip

    def run(self, command: Sequence[str], timeout_s: float) -> str:
        """Runs a program to its end; returns what it printed. Raises InstallFailed where it fails."""
        return _call(command, self.work, timeout_s, self.variables)


def fresh(directory: Path, python: str) -> Environment:
    """An environment with pip alone, in a directory that is not there yet."""
    environment = Environment(directory / "venv", directory / "work")
    environment.work.mkdir(parents=True)
    _call([python, "-m", "venv", str(environment.home)], directory, INSTALL_S)
    return environment


def locked(without: Sequence[str]) -> str:
    """The pins of requirements.lock as constraints for pip, but for those of some packages."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.removesuffix(" \\") for line in lines if re.match(r"[\w.-]+==", line)]
    return "".join(f"{pin}\n" for pin in pins if pin.partition("==")[0] not in without)


def _call(
    command: Sequence[str],
    directory: Path,
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command, cwd=directory, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise InstallFailed(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout
