"""The patches fit the code as it is, the quickest faults are found, and the search itself can fail."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from scripts.summary import ROOT
from tests.mutations import __main__ as command
from tests.mutations.patches import (
    Mutation,
    PatchError,
    all_mutations,
    apply_patch,
    copy_code,
    read_mutation,
)
from tests.mutations.search import Outcome, Search

MUTATIONS = {mutation.name: mutation for mutation in all_mutations()}
QUICK = (
    "front-missing-at-a-shard-left-out",
    "last-of-received-entries-not-applied",
    "low-of-the-own-shard-alone",
    "tick-acknowledged-when-accepted",
)
"""Found within a few schedules; all of them by `make mutants`."""
QUICK_SCHEDULES = 200
WANTED = {
    "the published acceptance rule": ["published-rule"],
    "no duplicate check": ["entries-applied-again", "ticks-accepted-again"],
    "a tick applied in part": ["created-a-tick-later", "tick-applied-in-its-first-segment"],
    "heartbeat before its items": ["promise-counts-when-accepted", "promise-counts-when-received"],
    "a gap skipped": ["entries-skipped", "ticks-skipped", "reports-skipped"],
    "acknowledged before durable": [
        "tick-acknowledged-when-accepted",
        "entries-confirmed-when-accepted",
    ],
    "minimum of inbound without delays": ["minimum-of-inbound-without-delays"],
    "a restarted process that announces before it has caught up": ["announced-before-caught-up"],
    "a joiner without pin": ["joiner-without-pin"],
    "a front missing at one shard left out of the minimum": ["front-missing-at-a-shard-left-out"],
    "a closed key counted as infinite too early": ["left-when-one-shard-says-so"],
    "a key used again": ["key-given-again", "incarnations-forgotten-by-snapshots"],
    "touches dropped before their run is in the cut": [
        "touches-dropped-when-one-shard-has-them",
        "touches-dropped-an-entry-early",
    ],
    "a part applied under an old routing version": [
        "parts-by-an-older-table-after-restart",
        "own-part-by-an-older-table",
    ],
    "a newcomer cut off for what it has not heard of yet": ["reports-of-unknown-shards-refused"],
    "steps logged that cannot be applied": ["steps-not-checked"],
    "generations ignored after a restart": [
        "generation-ignored-in-reports",
        "generation-ignored-in-records",
    ],
}
"""The faults that must be among them, whatever else is."""

Shown = pytest.CaptureFixture[str]


def search(*hunts: tuple[Mutation | None, int]) -> list[Outcome]:
    return Search(2, lambda outcome: None).run(hunts)


def written(directory: Path, old: str, new: str, file: str = "tracker/core/slots.py") -> Mutation:
    """A patch that replaces a line of a file."""
    before = (ROOT / file).read_text()
    assert before.count(old) == 1
    one, other = before.splitlines(True), before.replace(old, new).splitlines(True)
    path = directory / "made-for-a-test.patch"
    diff = "".join(difflib.unified_diff(one, other, f"a/{file}", f"b/{file}"))
    path.write_text(f"Rule 1: Made for a test.\n\n{diff}")
    return read_mutation(path)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("code") / "copy"
    copy_code(target)
    return target


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_patch_fits_the_code_and_changes_what_it_says(name: str, code: Path) -> None:
    mutation = MUTATIONS[name]
    assert 1 <= mutation.rule <= 10
    before = {file: (code / file).read_text() for file in mutation.files}
    apply_patch(mutation, code)
    for file, text in before.items():
        changed = (code / file).read_text()
        assert changed != text
        compile(changed, file, "exec")
        (code / file).write_text(text)


def test_no_fault_is_missing() -> None:
    for fault, names in WANTED.items():
        assert not set(names) - MUTATIONS.keys(), fault


def test_quick_faults_are_found_by_broken_promises_and_the_code_as_it_is_is_not() -> None:
    control, *outcomes = search((None, 60), *((MUTATIONS[name], QUICK_SCHEDULES) for name in QUICK))
    assert not control.found and not control.error
    assert control.schedules == 60
    for outcome in outcomes:
        assert outcome.found, outcome
        assert outcome.kind in ("broken", "false", "lost", "regressed")
        assert outcome.message
        assert outcome.schedules == outcome.seed + 1


def test_a_patch_that_does_not_apply_any_more_says_so(tmp_path: Path) -> None:
    mutation = written(tmp_path, "FOREVER = 2**63 - 1\n", "FOREVER = 1\n")
    mutation.path.write_text(mutation.path.read_text().replace("2**63", "2**62"))
    (outcome,) = search((mutation, 1))
    assert not outcome.found
    assert "made-for-a-test.patch does not apply, the code has changed" in outcome.error


def test_a_patch_needs_a_rule_and_may_change_production_code_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.patch"
    path.write_text("--- a/tracker/core/slots.py\n+++ b/tracker/core/slots.py\n")
    with pytest.raises(PatchError, match="does not begin with 'Rule N"):
        read_mutation(path)
    path.write_text("Rule 1: It breaks the simulator.\n\n--- a/tests/x.py\n+++ b/tests/x.py\n")
    with pytest.raises(PatchError, match="may change tracker, local_tracker alone"):
        read_mutation(path)


def test_code_that_never_worked_is_no_mutation(tmp_path: Path) -> None:
    mutation = written(tmp_path, "    return slot * slack_ns\n", "    return slot\n")
    assert not search((mutation, 2))[0].error
    line = "    return FOREVER if slot >= FOREVER - delay else slot + delay\n"
    (outcome,) = search((written(tmp_path, line, "    return slot + dealy\n"), 40))
    assert not outcome.found
    assert "NameError" in outcome.error


def test_crashing_is_not_being_found(tmp_path: Path) -> None:
    line = "    return FOREVER if slot >= FOREVER - delay else slot + delay\n"
    (outcome,) = search((written(tmp_path, line, "    return {0: slot}[delay]\n"), 20))
    assert not outcome.found and not outcome.error
    assert outcome.crashes["KeyError"] > 0
    assert outcome.schedules == 20


def test_a_mutation_that_survives_fails_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    harmless = written(tmp_path, "    return slot * slack_ns\n", "    return slack_ns * slot\n")
    monkeypatch.setattr(command, "all_mutations", lambda: [harmless])
    monkeypatch.setattr("scripts.summary.BUILD", tmp_path)
    assert command.main(["--schedules", "30", "--control", "5"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("mutants: FAILED mutations=1 found=0 survived=1 most_schedules=0")
    assert any(line.endswith("survived 30 schedules") for line in said)
    result = json.loads((tmp_path / "mutants.json").read_text())
    assert not result["ok"]
    assert result["by_mutation"][0]["what"] == "Made for a test."


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit, match="no mutation 'nobody'"):
        command.main(["nobody"])
