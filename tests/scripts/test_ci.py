"""What a change must pass: `.ci/run` runs the static checks and all tests, and fails where either does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.summary import ROOT
from tests.waits import HANG_S

MAKE = """#!/bin/sh
echo "$1: as planned"
[ "$1" != "$BROKEN" ]
"""


@pytest.mark.parametrize("broken", ["", "lint", "test"])
def test_both_run_and_either_can_fail_the_whole(broken: str, tmp_path: Path) -> None:
    """They run beside each other, in what was set up before; that a check has failed is said last."""
    make = tmp_path / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "BROKEN": broken}
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    first, *beside = done.stdout.splitlines()
    assert first == "setup: as planned"
    said_last = ["lint: FAILED, as said above"] if broken == "lint" else []
    assert (
        sorted(beside[:2]) == ["lint: as planned", "test: as planned"] and beside[2:] == said_last
    )
    assert (done.returncode != 0) == bool(broken)
