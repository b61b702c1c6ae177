"""Judges what a sink holds after its writers were killed, each behind a step of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from scripts.summary import ROOT
from tests.consumers.barrier.conformance import (
    BARRIER,
    BUFFER,
    ROWS_A_BATCH,
    Place,
    batch,
    rows_up_to,
    sink_at,
)
from tests.waits import PROGRAM_S

KILLS, SEED = 20, 19


def kill_writers_behind_each_step(place: Place) -> None:
    """The rows of all of them are there once and in order, and no less than what each was told."""
    command = [sys.executable, "-m", "tests.consumers.barrier.killed_behind", place.kind]
    ran = subprocess.run(
        [*command, json.dumps(dict(place.where)), str(SEED), str(KILLS)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    deaths = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(deaths) == KILLS
    told = [position for _, position in deaths]
    assert told == sorted(told), "each found what the one before was told"

    sink = sink_at(place)
    held = sink.open(BARRIER, BUFFER)
    assert held is not None and held.next >= told[-1] > 0
    assert place.rows() == rows_up_to(held.next)
    sink.write(*batch(held.next))
    sink.close()
    assert place.rows() == rows_up_to(held.next + ROWS_A_BATCH)
