"""The committed stubs are those of the .proto files, and the contract passes buf's rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts import generate_stubs

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_stubs_are_fresh() -> None:
    assert generate_stubs.check() == []


def test_the_contract_is_lint_clean() -> None:
    buf = Path(sys.executable).parent / "buf"
    linted = subprocess.run(
        [str(buf), "lint"],
        check=False,
        cwd=ROOT / "proto",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
