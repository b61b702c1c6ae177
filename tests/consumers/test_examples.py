"""The examples of consumers, which kill their processes and judge by themselves what came of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.waits import PROGRAM_S


@pytest.mark.parametrize(
    ("example", "outcome"),
    [
        pytest.param("ordered", "OK rows=60 written=60 ", id="a sink, once and in order"),
        pytest.param("periods", "OK hours=9 ", id="hours, none skipped, doubled or early"),
        pytest.param("webhook", "OK hours=8 ", id="messages of hours"),
    ],
)
def test_it_comes_out_right_whoever_is_killed(example: str, outcome: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"examples.{example}"], check=False, cwd=ROOT, capture_output=True,
        text=True, timeout=PROGRAM_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"example-{example}: {outcome}" in ran.stdout
    assert "arrived_out_of_order=0" not in ran.stdout, "nothing was put in order"
