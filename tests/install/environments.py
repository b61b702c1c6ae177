"""Wheels, interpreters, and environments made from nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.artifacts import Built, build_python, call
from scripts.summary import ROOT

INSTALL_S = 900.0
"""Far more than it takes with wheels cached, on a busy machine."""
EPOCH = 1_700_000_000
"""The time of all files in what is built here."""


def build(directory: Path) -> Built:
    """Builds what a release has, of the tree as it lies here. Raises StepFailed."""
    return build_python(ROOT, directory, EPOCH)


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
        """As `pip install` does, with pip's caches. Raises StepFailed."""
        more = ["--constraint", str(constraints)] if constraints else []
        self.run([str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                  "--no-input", *more, *wanted], INSTALL_S)  # fmt: skip

    def run(self, command: Sequence[str], timeout_s: float) -> str:
        """Runs a program to its end; returns what it printed. Raises StepFailed where it fails."""
        return call(command, self.work, timeout_s, self.variables)


def fresh(directory: Path, python: str) -> Environment:
    """An environment with pip alone, in a directory that is not there yet."""
    environment = Environment(directory / "venv", directory / "work")
    environment.work.mkdir(parents=True)
    call([python, "-m", "venv", str(environment.home)], directory, INSTALL_S)
    return environment


def lent(directory: Path) -> Environment:
    """An environment with the packages of this one, found behind its own, and nothing that leads to this tree: it is made in
    a second, and what is installed in it needs no registry."""
    environment = Environment(directory / "venv", directory / "work")
    environment.work.mkdir(parents=True)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(environment.home)]
    call(venv, directory, INSTALL_S)
    (packages,) = environment.home.glob("lib/python*/site-packages")
    # A directory that is named in such a file is no place where others of its kind are looked for.
    (packages / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment


def locked(without: Sequence[str]) -> str:
    """The pins of requirements.lock as constraints for pip, but for those of some packages."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.removesuffix(" \\") for line in lines if re.match(r"[\w.-]+==", line)]
    return "".join(f"{pin}\n" for pin in pins if pin.partition("==")[0] not in without)
