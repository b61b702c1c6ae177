"""Copies of this checkout, each with a `build` and an environment of its own, so that whole runs can go beside each other.

A copy's environment takes the packages of this one, and the project from the copy.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scripts.summary import ROOT

_PROJECT = "_lowmark.pth"
"""Where an environment says where the project is."""
_SHARED = ("compiler",)
"""What else scripts keep in an environment."""


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """So many copies of the commit that is checked out; they are removed at the end."""
    with ExitStack() as stack:
        made = []
        for number in range(count):
            prefix = f"lowmark-load-{number + 1}-"
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            )
            made.append(Path(directory) / "lowmark")
            _copy(made[-1])
        yield made


def python_of(copy: Path) -> Path:
    return copy / ".venv" / "bin" / "python"


def _copy(copy: Path) -> None:
    head = _git("rev-parse", "HEAD")
    _git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(copy))
    _git("-C", str(copy), "checkout", "--quiet", "--detach", head)
    (copy / "build").mkdir(exist_ok=True)
    environment = copy / ".venv"
    venv.create(environment, with_pip=False, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if package.name != _PROJECT:
            (own / package.name).symlink_to(package)
    (own / _PROJECT).write_text(f"{copy}\n{copy / 'proto'}\n")
    _take_commands(Path(sys.prefix), environment)


def _take_commands(source: Path, target: Path) -> None:
    """What the environment has as commands, run by the copy's interpreter where they are Python's."""
    for command in (source / "bin").iterdir():
        new = target / "bin" / command.name
        if new.exists() or new.is_symlink() or not command.is_file():
            continue
        content = command.read_bytes()
        if content.startswith(b"#!"):
            new.write_bytes(content.replace(str(source).encode(), str(target).encode()))
            new.chmod(0o755)
        else:
            new.symlink_to(command)
    for name in _SHARED:
        if (source / name).exists():
            (target / name).symlink_to(source / name)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
