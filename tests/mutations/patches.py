"""Mutations that are still patches: `*.patch` files of this directory.

A patch begins with a line `Rule N: what it breaks.` and may go on with how; then comes a unified diff
of production code, made from the project's root. It must fit exactly: what does not apply any more,
after the code around it has changed, is made anew, not dropped.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.mutation import HERE, PRODUCTION, Mutation, MutationError

_HEADER = re.compile(r"Rule (\d+): (.+?\.)(\n\n|$)", re.DOTALL)
_CHANGED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Patch(Mutation):
    """A mutation that is still a patch."""

    patched: tuple[str, ...]
    path: Path

    @property
    def files(self) -> tuple[str, ...]:
        return self.patched


def read_mutation(path: Path) -> Patch:
    """The mutation of a patch file. Raises MutationError."""
    text = path.read_text()
    head, _, _ = text.partition("\n--- ")
    match = _HEADER.match(f"{head}\n\n")
    if match is None:
        raise MutationError(
            f"{path.name} does not begin with 'Rule N: what it breaks.': {head[:80]!r}"
        )
    files = tuple(sorted(set(_CHANGED.findall(text))))
    if not files or not all(file.startswith(tuple(f"{p}/" for p in PRODUCTION)) for file in files):
        raise MutationError(
            f"{path.name} changes {files}; it may change {', '.join(PRODUCTION)} alone"
        )
    what = " ".join(match[2].split())
    return Patch(path.stem, int(match[1]), what, (), files, path)


def all_patches() -> list[Patch]:
    """All of this directory, by name."""
    return [read_mutation(path) for path in sorted(HERE.glob("*.patch"))]


def apply_patch(mutation: Patch, target: Path) -> None:
    """Applies a patch to the copy in `target`, whole or not at all. Raises MutationError."""
    # No repository around the copy may be found: git would take the paths for its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(target.resolve().parent)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(mutation.path)],
        cwd=target, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise MutationError(
            f"{mutation.path.name} does not apply, the code has changed: {done.stderr.strip()}"
        )
