"""The mutations fit the code as it is, the quickest faults are found, and the search itself can fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.check.record import SEEDS
from tests.mutations import __main__ as command
from tests.mutations.hunting import Piece
from tests.mutations.mutation import (
    HERE,
    Mutation,
    MutationError,
    all_mutations,
    apply_mutation,
    copy_code,
    read_mutation,
)
from tests.mutations.search import Outcome, Search
from tests.mutations.shells import all_shell_mutations

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
    "an announcement told before its ticks are durable": [
        "announcement-told-before-its-ticks-are-durable",
        "announcement-told-over-what-is-not-durable",
        "announcement-said-before-logged",
    ],
    "a recovery that does not find again what was told": ["told-and-not-found-again"],
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
    "completion and a restart not in one order": ["completion-said-before-it-is-settled"],
    "generations ignored after a restart": [
        "generation-ignored-in-reports",
        "generation-ignored-in-records",
    ],
    "a restart that forgets which fronts wait for their grant": [
        "ungranted-fronts-forgotten-by-a-restart",
        "promises-rebuilt-from-pins",
    ],
    "two joinings of one front taken for one": [
        "two-joinings-taken-for-one",
        "pins-taken-for-a-later-joining",
        "grants-known-by-name",
    ],
    "a scope of batches forgotten": ["scopes-forgotten"],
}
"""The faults that must be among them, whatever else is."""

Shown = pytest.CaptureFixture[str]


def search(*hunts: tuple[Mutation | None, int]) -> list[Outcome]:
    return Search(2, lambda outcome: None).run(hunts)


FILE = "tracker/core/model/slots.py"
TEXT = """rule = {rule}
what = "Made for a test."

[[replace]]
file = "{file}"
symbol = "{symbol}"
old = '''
{old}'''
new = '''
{new}'''
"""


def written(
    directory: Path, symbol: str, old: str, new: str, *, rule: str = "1", file: str = FILE
) -> Mutation:
    """A mutation that replaces lines of a symbol."""
    path = directory / "made-for-a-test.toml"
    path.write_text(TEXT.format(rule=rule, file=file, symbol=symbol, old=old, new=new))
    return read_mutation(path)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("code") / "copy"
    copy_code(target)
    return target


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_mutation_fits_the_code_and_changes_what_it_says(name: str, code: Path) -> None:
    mutation = MUTATIONS[name]
    assert 1 <= mutation.rule <= 13
    before = {file: (code / file).read_text() for file in mutation.files}
    apply_mutation(mutation, code)
    for file, text in before.items():
        changed = (code / file).read_text()
        assert changed != text
        compile(changed, file, "exec")
        (code / file).write_text(text)


def test_nothing_lies_among_them_that_is_not_read() -> None:
    others = {path for path in HERE.iterdir() if path.is_file()} - {SEEDS}
    assert {path.suffix for path in others} == {".py", ".toml"}
    assert json.loads(SEEDS.read_text()).keys() <= MUTATIONS.keys()


def test_no_fault_is_missing() -> None:
    by_tests = {mutation.name for mutation in all_shell_mutations()}
    for fault, names in WANTED.items():
        assert not set(names) - MUTATIONS.keys() - by_tests, fault


def test_quick_faults_are_found_by_broken_promises_and_the_code_as_it_is_is_not() -> None:
    control, *outcomes = search((None, 40), *((MUTATIONS[name], QUICK_SCHEDULES) for name in QUICK))
    assert not control.found and not control.error
    assert control.schedules == 40
    for outcome in outcomes:
        assert outcome.found, outcome
        assert outcome.kind in ("broken", "false", "lost", "regressed")
        assert outcome.message
        assert outcome.schedules == outcome.seed + 1


ADD = "    return FOREVER if delay == FOREVER or slot >= FOREVER - delay else slot + delay\n"
"""A line of `add_delay`."""


@pytest.mark.parametrize(
    ("symbol", "old", "why"),
    [
        ("add_delays", ADD, "symbol 'add_delays' is there 0 times, not once"),
        (
            "add_delay",
            "    return slot\n",
            "these lines are there 0 times, not once:\n    return slot",
        ),
        ("slot_start_ns", ADD, "in symbol 'slot_start_ns' these lines are there 0 times"),
    ],
    ids=["the symbol is gone", "the lines have changed", "they are in another symbol"],
)
def test_a_mutation_that_does_not_apply_any_more_says_so(
    symbol: str, old: str, why: str, tmp_path: Path
) -> None:
    (outcome,) = search((written(tmp_path, symbol, old, "    pass\n"), 1))
    assert not outcome.found
    assert f"made-for-a-test does not apply, the code has changed: {FILE}: " in outcome.error
    assert why in outcome.error


def test_a_mutation_is_applied_whole_or_not_at_all(tmp_path: Path, code: Path) -> None:
    whole = written(tmp_path, "add_delay", ADD, "    return slot\n")
    half = replace(whole, replacements=(*whole.replacements, *whole.replacements))
    before = (code / FILE).read_text()
    with pytest.raises(MutationError, match="made-for-a-test does not apply"):
        apply_mutation(half, code)
    assert (code / FILE).read_text() == before


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"rule": "'one'"}, "rule must be there, and int: 'one'"),
        ({"file": "tests/x.py"}, "it may change tracker, local_tracker alone"),
        ({"new": ADD}, "changes nothing in add_delay"),
        ({"old": ""}, "changes nothing in add_delay"),
        ({"old": ADD.strip()}, "what it replaces in add_delay are whole lines"),
        ({"rule": "1\nrules = 2"}, "rules is not known"),
        ({"file": f'{FILE}"\nsymbols = "'}, "symbols is not known"),
        ({"rule": ""}, "is no TOML"),
    ],
)
def test_a_mutation_that_cannot_be_is_refused(
    broken: dict[str, str], why: str, tmp_path: Path
) -> None:
    fine: dict[str, str] = {"symbol": "add_delay", "old": ADD, "new": "    return slot\n"}
    written(tmp_path, **fine)
    with pytest.raises(MutationError, match=re.escape(why)):
        written(tmp_path, **{**fine, **broken})


def test_code_that_never_worked_is_no_mutation(tmp_path: Path) -> None:
    start = "    return slot * slack_ns\n"
    mutation = written(tmp_path, "slot_start_ns", start, "    return slot\n")
    assert not search((mutation, 2))[0].error
    (outcome,) = search((written(tmp_path, "add_delay", ADD, "    return slot + dealy\n"), 40))
    assert not outcome.found
    assert "NameError" in outcome.error


def test_crashing_is_not_being_found(tmp_path: Path) -> None:
    (outcome,) = search((written(tmp_path, "add_delay", ADD, "    return {0: slot}[delay]\n"), 8))
    assert not outcome.found and not outcome.error
    assert outcome.crashes["KeyError"] > 0
    assert outcome.schedules == 8


def test_a_mutation_that_survives_fails_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    start = "    return slot * slack_ns\n"
    harmless = written(tmp_path, "slot_start_ns", start, "    return slack_ns * slot\n")
    monkeypatch.setattr(command, "all_mutations", lambda: [harmless])
    monkeypatch.setattr("scripts.summary.BUILD", tmp_path)
    monkeypatch.setattr(command, "PROGRESS", tmp_path / "progress.jsonl")
    assert command.main([harmless.name, "--schedules", "8", "--control", "4"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("mutants: FAILED mutations=1 found=0 survived=1 most_schedules=0")
    assert any(line.endswith("survived 8 schedules") for line in said)
    result = json.loads((tmp_path / "mutants.json").read_text())
    assert not result["ok"]
    assert result["by_mutation"][0]["what"] == "Made for a test."


def test_what_was_found_in_this_code_is_not_hunted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What survived is, and so is a mutation that has changed, and everything once the code has."""
    fits, harmless = (
        written(tmp_path, "slot_start_ns", "    return slot * slack_ns\n", f"    return {new}\n")
        for new in ("slot", "slack_ns * slot")
    )
    hunted: list[list[str]] = []

    class Hunts:
        """Finds the one, and not the other."""

        def __init__(self, _: int, report: Callable[[Outcome], None]) -> None:
            self._report = report

        def run(
            self,
            hunts: list[tuple[Mutation | None, int]],
            known: Mapping[Any, Outcome],
            seeds: Mapping[str, int],
        ) -> list[Outcome]:
            limits = [(each.name if each else "", limit) for each, limit in hunts]
            hunted.append([name for name, limit in limits if (name, limit) not in known])
            outcomes = [Outcome(*each, seed=3 if each[0] == "fits" else -1) for each in limits]
            for outcome in outcomes:
                self._report(outcome)
            return outcomes

    monkeypatch.setattr(command, "Search", Hunts)
    monkeypatch.setattr(command, "PROGRESS", tmp_path / "progress.jsonl")
    chosen = [replace(fits, name="fits"), replace(harmless, name="harmless")]
    for code, most in (("abc", 8), ("abc", 8), ("abc", 9), ("abd", 8)):
        monkeypatch.setattr(command, "code_digest", partial(str, code))
        command.search(chosen, most, 4, 1)
    command.search([replace(fits, name="fits", rule=2), chosen[1]], 8, 4, 1)
    everything = ["", "fits", "harmless"]
    changed = ["fits", "harmless"]
    assert hunted == [everything, ["harmless"], changed, everything, changed]


def test_a_hunt_that_is_known_is_passed_over(tmp_path: Path) -> None:
    start = "    return slot * slack_ns\n"
    mutation = written(tmp_path, "slot_start_ns", start, "    return slack_ns * slot\n")
    known = Outcome(mutation.name, 2, seed=1)
    told: list[Outcome] = []
    control, found = Search(1, told.append).run(
        [(None, 1), (mutation, 2)], {(mutation.name, 2): known}
    )
    assert found is known and told == [control]


@pytest.mark.parametrize(("before", "schedules"), [(5, 6), (1, 4)], ids=["still", "no more"])
def test_the_seed_that_found_it_before_comes_first(
    before: int, schedules: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 3 and 5 find it in this code."""
    ran: list[int] = []

    class Ran:
        """A piece that was run."""

        returncode = 0

        def __init__(self, seeds: range) -> None:
            ran.append(seeds.start)
            found = [seed for seed in (3, 5) if seed in seeds]
            self._piece = Piece(len(seeds), *(found[:1] and (found[0], "broken")))

        def communicate(self) -> tuple[str, str]:
            return json.dumps(asdict(self._piece)), ""

    monkeypatch.setattr("tests.mutations.search._start", lambda _, seeds: Ran(seeds))
    mutation = written(tmp_path, "add_delay", ADD, "    return slot\n")
    (outcome,) = Search(1, lambda _: None).run([(mutation, 40)], seeds={mutation.name: before})
    assert outcome.found and outcome.schedules == schedules
    assert ran == ([before] if before == 5 else [before, 0])


def test_the_seeds_that_find_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of mutations that were not tried stay, those of mutations that are gone do not."""
    seeds = tmp_path / "seeds.json"
    monkeypatch.setattr(command, "SEEDS", seeds)
    first, second, third = list(MUTATIONS)[:3]
    seeds.write_text(json.dumps({first: 1, second: 2, "gone": 3}))
    command.keep([Outcome(second, 9, seed=4), Outcome(third, 9)])
    assert json.loads(seeds.read_text()) == {first: 1, second: 4}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit, match="no mutation 'nobody'"):
        command.main(["nobody"])
