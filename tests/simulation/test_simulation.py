"""The production core keeps its promises in random schedules, and the search can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.faults import FAULTS, SABOTAGE
from tests.simulation.moving import MOVE_KINDS
from tests.simulation.moving_amid import AMID_KINDS
from tests.simulation.progress import Block, Progress
from tests.simulation.run import FAULT_KINDS, Summary, hunt, replay, run_range, run_seed, run_seeds
from tests.simulation.storms import SELDOM, STORM_KINDS

SEEDS = range(300)
RARE = {
    "former_owners_lost", "torn_writes", "full_local_trackers", "evicted_fronts_going_on",
    "batches_committed_after_eviction", "late_items", "refused_unknown_node", "clock_steps_back", "newcomers_asking_who_pins",
    "batches_taken_up_again", "stages_run_again_in_part", "merged_flushes", "lost_steps",
    "full_open_units", "written_off_again", "consumed_of_evicted_fronts", "consumed_ahead_and_late",
    "consumed_ahead_and_committed", "given_up_as_never_created", "restarts_with_evictions",
    "restarts_behind_evictions", "steps_of_an_older_generation",
    "loops_ended_by_their_bound", "created_below_what_was_heard", "rounds_asked_for_beyond_the_last", "eager_holds_moved",
    "upgrades_left_unfinished", "frames_refused_by_older_releases", "older_releases_after_all_is_finished",
    "older_releases_refused_by_stores", "older_releases_refused_by_others", "older_newcomers", "older_newcomers_refused",
    "steps_after_those_recorded", "eager_holds_found_again",
    "ways_that_are_gone", "gone_ways_tried", "new_ways_tried", "ways_tried_and_taken", "ways_tried_and_refused", "segments_removed", "created_below_what_was_said_without_the_edge",
    *(kind for kind in STORM_KINDS if kind not in SELDOM),
    "lost_shards", "lost_sequencers", "shards_lost_amid_a_change", "pipelines_going_on_without_a_shard", "pipelines_held",
    "lost_shards_without_a_bound", *MOVE_KINDS, *AMID_KINDS,
}  # fmt: skip
"""Kinds of faults that may not happen in so few schedules; `make sim` insists on them."""


@pytest.fixture(scope="module")
def searched() -> Summary:
    return run_range(SEEDS)


def test_no_schedule_breaks_a_promise(searched: Summary) -> None:
    assert not searched.failures, searched.failures
    assert searched.schedules == len(SEEDS)
    assert searched.line().endswith("broken=0 false=0 lost=0 regressed=0")


@pytest.mark.parametrize("seed", [259706, 274470, 323487, 324035])
def test_nor_does_one_that_did(seed: int) -> None:
    """One shard is left, and comes back; one has a closed key of a node that has a later one elsewhere, and comes back; a home
    that has not heard of a first change is asked to create along what that adds; one that has left was down until all
    that it knew had left, too."""
    assert run_seed(seed).failures == []


def test_every_kind_of_fault_happens(searched: Summary) -> None:
    assert set(FAULT_KINDS) >= RARE
    never = set(searched.zero_kinds) - RARE
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
    parts = run_seeds(range(2000), "published-rule", workers=1)
    assert any(part.kinds["false"] for part in parts)


@pytest.mark.parametrize("sabotage", sorted(SABOTAGE))
def test_sabotage_makes_the_search_fail_and_prints_the_command_that_replays_it(
    sabotage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--output", str(tmp_path / "sim.json"), "--progress", str(tmp_path / "progress")]
    assert main(["--seeds", "0:25", "--sabotage", sabotage, "--workers", "1", *files]) == 1
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "sim.json").read_text())
    assert written["schedules"] == 25
    assert not written["ok"]
    command = f"--replay {written['failures'][0]['seed']} --fault {sabotage}"
    assert f"python -m tests.simulation {command}" in printed
    assert main(command.split()) == 1
    assert "shard 0" in capsys.readouterr().out, "the replay shows a trace"


def test_a_search_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress", tmp_path / "kept")
    done = Summary(schedules=100)
    progress.add(Block(range(100, 200), None, 1.0, done))
    assert list(progress.missing(range(400), None)) == [
        range(100), range(200, 250), range(250, 400),
    ]  # fmt: skip
    assert list(progress.missing(range(100, 200), None)) == []
    assert list(progress.missing(range(100, 200), "early")) == [range(100, 200)]
    with progress.path.open("a") as file:
        file.write('{"code": ')  # a line that was being written
    again = Progress(progress.path, progress.kept)
    assert [block.seeds for block in again.done(range(1000), None)] == [range(100, 200)]
    again.code = "other"
    assert list(again.read()) == []


def test_what_was_searched_is_kept_by_stretches(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress", tmp_path / "kept")
    for seeds in (range(250), range(250, 500), range(750, 1000), range(250)):
        progress.add(Block(seeds, None, 2.0, Summary(schedules=250, steps=5)))
    progress.add(Block(range(500, 750), "early", 2.0, Summary(schedules=250)))
    progress.keep()
    progress.keep()  # once more: nothing counts twice
    elsewhere = Progress(tmp_path / "none", progress.kept)
    assert [(b.seeds, b.seconds, b.summary.steps) for b in elsewhere.blocks] == [
        (range(500), 4.0, 10), (range(750, 1000), 2.0, 5),
    ]  # fmt: skip
    assert list(elsewhere.missing(range(1000), None)) == [range(500, 750)]
    both = Progress(progress.path, progress.kept)
    assert [block.seeds for block in both.done(range(1000), None)] == [
        range(500), range(750, 1000),
    ]  # fmt: skip
