"""The production core keeps its promises in random schedules, and the search can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.faults import FAULTS
from tests.simulation.run import Summary, hunt, replay, run_range, run_seed

SEEDS = range(400)
FAULT_COUNTS = (
    "clock_steps",
    "crashes",
    "crashes_losing_records",
    "duplicated_frames",
    "duplicated_ticks",
    "ids_used_again",
    "link_resets",
    "lost_answers",
    "lost_frames",
    "lost_requests",
    "node_crashes",
    "repeated_batches",
    "session_breaks",
    "silent_fronts",
    "unordered_frames",
)


@pytest.fixture(scope="module")
def searched() -> Summary:
    return run_range(SEEDS)


def test_no_schedule_breaks_a_promise(searched: Summary) -> None:
    assert not searched.failures, searched.failures
    assert searched.schedules == len(SEEDS)
    assert searched.line().endswith("broken=0 false=0 lost=0 regressed=0")


def test_every_kind_of_fault_has_happened(searched: Summary) -> None:
    never = [name for name in FAULT_COUNTS if not searched.counts[name]]
    assert not never, f"these faults were never tried: {never}"
    assert searched.steps >= 300 * searched.schedules


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_found(fault: str) -> None:
    found, schedules = hunt(fault, range(2000), workers=1)
    assert found is not None, f"{fault} was not found in {schedules} schedules"
    again, trace = replay(found.seed, fault)[::-1]
    assert again is not None
    assert again.kind == found.kind
    assert again.message.startswith(found.message[:1000])
    assert trace, "a replay shows what led to the failure"
    assert not run_seed(found.seed).failures, "without the fault the same seed is clean"


def test_the_published_rule_makes_the_real_core_announce_a_slot_that_has_an_item() -> None:
    result = run_range(range(500), fault="published-rule")
    assert result.kinds["false"] > 0


def test_a_failure_prints_the_command_that_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = hunt("no-duplicate-check", range(2000), workers=1)
    assert found is not None
    output = tmp_path / "sim.json"
    seeds = f"{found.seed}:{found.seed + 1}"
    arguments = ["--seeds", seeds, "--fault", "no-duplicate-check", "--output", str(output)]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    command = f"--replay {found.seed} --fault no-duplicate-check"
    assert f"python -m tests.simulation {command}" in printed
    written = json.loads(output.read_text())
    assert written["schedules"] == 1
    assert written["failures"][0]["seed"] == found.seed
    assert main(command.split()) == 1
    assert "shard 0" in capsys.readouterr().out, "the replay shows a trace"


def test_a_seed_gives_one_run_in_every_process() -> None:
    """Whatever seed Python's own hashes of strings have."""
    code = (
        "import hashlib;"
        "from tests.simulation.simulator import Simulator as S;"
        "runs = [S(seed, traced=True) for seed in range(4)];"
        "[run.run() for run in runs];"
        "print(hashlib.sha256(repr([run.trace for run in runs]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
