"""A folder of somebody who has installed Lowmark, with tests of their own and no conftest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hatchling import build

from scripts.summary import ROOT
from tests.docs.pages import blocks
from tests.waits import PROGRAM_S


def installed(directory: Path) -> Path:
    """A directory with what `pip install` would make of this tree: its wheel, unpacked."""
    directory.mkdir()
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        wheel = build.build_wheel(str(directory))
    finally:
        os.chdir(before)
    shutil.unpack_archive(directory / wheel, directory, "zip")
    return directory


def run_pytest(
    folder: Path, site: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Real pytest in a process of its own, with the folder's tests."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(site), **(environment or {})},
        check=False, capture_output=True, text=True, timeout=PROGRAM_S,
    )  # fmt: skip


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """What pytest says at its end: `{"passed": 2}`."""
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last.split(" in ")[0])}


def write_page(folder: Path, *, with_spark: bool) -> None:
    """The programs of docs/testing.md and their tests, as files; those of a Spark query only if they are wanted."""
    for block in blocks(ROOT / "docs" / "testing.md"):
        name = block.info.removeprefix("python ")
        if name.endswith(".py") and (with_spark or "spark" not in block.text):
            (folder / name).write_text(block.text)
