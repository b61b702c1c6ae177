"""The incremental example: the gated job takes each row once, and a tracker that lies makes it fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from examples.incremental.shops import LOOK_BACK, OUTAGE, sales
from scripts.summary import BUILD
from tests.docs.pages import ROOT
from tests.waits import PROGRAM_S

# Both in one process, so that the JVM is started once; the report of each is kept.
PROGRAM = """
import json
from pathlib import Path
from examples.incremental.__main__ import main
from scripts.summary import BUILD
for arguments in ([], ["--sabotage", "early"]):
    status = main(arguments)
    report = json.loads((BUILD / "example-incremental.json").read_text())
    print("REPORT", json.dumps([status, report]))
"""


def test_the_gated_job_takes_each_row_once_and_notices_an_early_tracker() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, cwd=ROOT, capture_output=True, text=True,
        timeout=PROGRAM_S,
    )  # fmt: skip
    reports = [json.loads(line) for line in re.findall(r"^REPORT (.*)$", ran.stdout, re.MULTILINE)]
    assert len(reports) == 2, ran.stdout[-3000:] + ran.stderr[-3000:]
    (status, honest), (planted_status, planted) = reports
    assert status == 0 and honest["ok"]
    assert (honest["rows"], honest["gated_missed"], honest["gated_twice"]) == (600, 0, 0)
    assert re.search(r"^example-incremental: OK rows=600 ", ran.stdout, re.MULTILINE)

    # The case of the look-back job: stamped 09:05, visible at 09:27, older than it looks back at 09:30.
    missed = {(row["stamp"], row["visible"]) for row in honest["look_back"]["missed"]}
    assert ("09:05", "09:27") in missed
    too_late = [
        s for s in sales() if s.visible == OUTAGE.stop and s.stamp < 9 * 60 + 30 - LOOK_BACK
    ]
    assert honest["lookback_missed"] == len(too_late)
    assert honest["lookback_twice"] > 0
    # The run that died was given out again.
    assert "run 2 dies before it is done" in ran.stdout

    assert planted_status == 1 and not planted["ok"], (
        "a tracker a slot early must make it miss rows"
    )
    assert planted["gated_missed"] > 0
    assert "09:05" in {row["stamp"] for row in planted["gated"]["missed"]}
    assert (BUILD / "example-incremental.json").exists()
