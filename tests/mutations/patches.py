"""The mutations: `*.patch` files of this directory, and copies of the code with one of them applied.

A patch begins with a line `Rule N: what it breaks.` and may go on with how; then comes a unified diff
of production code, made from the project's root. It must fit exactly: what does not apply any more,
after the code around it has changed, is made anew, not dropped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scripts.summary import ROOT

HERE = Path(__file__).resolve().parent
PRODUCTION = ("tracker", "local_tracker")
"""Packages that patches may change."""
_COPIED = (*PRODUCTION, "tests/simulation", "tests/core", "tests/mutations")
"""What the simulator runs, and the hunt itself."""
_HEADER = re.compile(r"Rule (\d+): (.+?\.)(\n\n|$)", re.DOTALL)
_CHANGED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)


class PatchError(Exception):
    """A patch that cannot be read or applied; says which, and why."""


@dataclass(frozen=True)
class Mutation:
    """One fault: the number of the rule that it breaks, and in a sentence how."""

    name: str
    rule: int
    what: str
    files: tuple[str, ...]
    """Changed files, relative to the project's root."""
    path: Path


def read_mutation(path: Path) -> Mutation:
    """The mutation of a patch file. Raises PatchError."""
    text = path.read_text()
    head, _, _ = text.partition("\n--- ")
    match = _HEADER.match(f"{head}\n\n")
    if match is None:
        raise PatchError(
            f"{path.name} does not begin with 'Rule N: what it breaks.': {head[:80]!r}"
        )
    files = tuple(sorted(set(_CHANGED.findall(text))))
    if not files or not all(file.startswith(tuple(f"{p}/" for p in PRODUCTION)) for file in files):
        raise PatchError(
            f"{path.name} changes {files}; it may change {', '.join(PRODUCTION)} alone"
        )
    what = " ".join(match[2].split())
    return Mutation(path.stem, int(match[1]), what, files, path)


def all_mutations() -> list[Mutation]:
    """All of this directory, by name."""
    return [read_mutation(path) for path in sorted(HERE.glob("*.patch"))]


def copy_code(target: Path, source: Path = ROOT) -> None:
    """Copies what a hunt needs from `source` to the directory `target`, which is made."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.patch", "*.pyc")
    for place in _COPIED:
        shutil.copytree(source / place, target / place, ignore=leave_out)
    shutil.copy(source / "tests" / "__init__.py", target / "tests" / "__init__.py")


def apply_patch(mutation: Mutation, target: Path) -> None:
    """Applies a patch to the copy in `target`, whole or not at all. Raises PatchError."""
    # No repository around the copy may be found: git would take the paths for its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(target.resolve().parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(mutation.path)],
        cwd=target, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise PatchError(
            f"{mutation.path.name} does not apply, the code has changed: {done.stderr.strip()}"
        )
