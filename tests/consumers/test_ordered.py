"""The ordered sink, on real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT


@pytest.mark.timeout(400)
def test_a_sink_that_is_killed_writes_each_item_once_and_in_order() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.ordered"], check=False, cwd=ROOT, capture_output=True,
        text=True, timeout=390,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "example-ordered: OK rows=60 written=60 " in ran.stdout
    assert "arrived_out_of_order=0" not in ran.stdout
