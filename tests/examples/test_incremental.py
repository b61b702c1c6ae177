"""The incremental example: the gated job takes each row once, and a tracker that lies makes it fail."""

from __future__ import annotations

import json
import re

import pytest

from examples.incremental.__main__ import main
from examples.incremental.shops import LOOK_BACK, OUTAGE, sales
from scripts.summary import BUILD


def test_the_gated_job_takes_each_row_once_and_notices_an_early_tracker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Both in one process, so that the JVM is started once.
    reports = []
    for arguments in ([], ["--sabotage", "early"]):
        status = main(arguments)
        reports.append((status, json.loads((BUILD / "example-incremental.json").read_text())))
    printed = capsys.readouterr().out
    (status, honest), (planted_status, planted) = reports
    assert status == 0 and honest["ok"]
    assert (honest["rows"], honest["gated_missed"], honest["gated_twice"]) == (600, 0, 0)
    assert re.search(r"^example-incremental: OK rows=600 ", printed, re.MULTILINE)

    # The case of the look-back job: stamped 09:05, visible at 09:27, older than it looks back at 09:30.
    missed = {(row["stamp"], row["visible"]) for row in honest["look_back"]["missed"]}
    assert ("09:05", "09:27") in missed
    too_late = [
        s for s in sales() if s.visible == OUTAGE.stop and s.stamp < 9 * 60 + 30 - LOOK_BACK
    ]
    assert honest["lookback_missed"] == len(too_late)
    assert honest["lookback_twice"] > 0
    # The run that died was given out again.
    assert "run 2 dies before it is done" in printed

    assert planted_status == 1 and not planted["ok"], (
        "a tracker a slot early must make it miss rows"
    )
    assert planted["gated_missed"] > 0
    assert "09:05" in {row["stamp"] for row in planted["gated"]["missed"]}
