"""The incremental example: the gated job takes each row once, and one that does not fails."""

from __future__ import annotations

import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest

from examples.incremental import __main__ as example
from examples.incremental.run import Tally
from examples.incremental.shops import LOOK_BACK, OUTAGE, sales
from scripts.summary import BUILD

Shown = pytest.CaptureFixture[str]


def test_the_gated_job_takes_each_row_once(capsys: Shown) -> None:
    assert example.main([]) == 0
    printed, found = (
        capsys.readouterr().out,
        json.loads((BUILD / "example-incremental.json").read_text()),
    )
    assert found["ok"]
    assert (found["rows"], found["gated_missed"], found["gated_twice"]) == (600, 0, 0)
    assert re.search(r"^example-incremental: OK rows=600 ", printed, re.MULTILINE)

    # The case of the look-back job: stamped 09:05, visible at 09:27, older than it looks back at 09:30.
    missed = {(row["stamp"], row["visible"]) for row in found["look_back"]["missed"]}
    assert ("09:05", "09:27") in missed
    too_late = [
        s for s in sales() if s.visible == OUTAGE.stop and s.stamp < 9 * 60 + 30 - LOOK_BACK
    ]
    assert found["lookback_missed"] == len(too_late)
    assert found["lookback_twice"] > 0
    # The run that died was given out again.
    assert "run 2 dies before it is done" in printed


@pytest.mark.parametrize(("times", "name"), [(0, "gated_missed"), (2, "gated_twice")])
def test_a_row_that_is_missed_or_taken_twice_fails_it(
    times: int, name: str, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    """What a tracker that announces early does to it, `make check NAMES=example-incremental SABOTAGE=early` shows."""
    rows = sales()
    tally = Tally(Counter(sale.row for sale in rows))
    tally.taken[rows[7].row] = times
    replay = SimpleNamespace(rows=rows, gated=tally, looking_back=tally)
    monkeypatch.setattr(example, "run_example", lambda directory, sabotage: replay)
    assert example.main([]) == 1
    assert f"{name}=1 " in capsys.readouterr().out.splitlines()[-1]
