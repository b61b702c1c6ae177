"""The release before this one, as a tree of files of its own: its processes run beside those of this one.

Nothing has been released yet, so what stands for it is the last commit before there were feature levels: its code knows nothing
of them, neither of what `lowmark shards --finish-upgrade` leads to.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from scripts.summary import BUILD, ROOT

COMMIT = "11369ae7"


class NoReleaseBefore(Exception):
    """The release before cannot be had here: it says why."""


def release_before() -> Path:
    """The root of its tree, which is made of the repository's history once. Raises NoReleaseBefore where there is no such
    history, as in a shallow clone or in a source distribution."""
    tree = BUILD / f"release-{COMMIT}"
    if tree.exists():
        return tree
    if shutil.which("git") is None:
        raise NoReleaseBefore("there is no git to take the release before from the history")
    archived = subprocess.run(
        ["git", "archive", "--format=tar", COMMIT], cwd=ROOT, check=False, capture_output=True
    )
    if archived.returncode:
        reason = archived.stderr.decode(errors="replace").strip()
        raise NoReleaseBefore(f"commit {COMMIT} is not in the history that is here: {reason}")
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as unfinished:
        there = Path(unfinished) / "tree"
        with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as files:
            files.extractall(there, filter="data")
        if not tree.exists():
            there.rename(tree)
    return tree
