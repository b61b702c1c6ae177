"""The short form of `make proof`: the obligations of two steps, and that the proof can fail."""

from __future__ import annotations

import re
from functools import cache

import pytest
import z3

from scripts.check.registry import read_checks
from scripts.summary import ROOT
from tests.proof.changes import system as changes
from tests.proof.changes.faults import FAULTS as FAULTS_OF_CHANGES
from tests.proof.changes.situations import SITUATIONS as OF_CHANGES
from tests.proof.fragment import cycle
from tests.proof.groups import system as groups
from tests.proof.groups.faults import FAULTS
from tests.proof.groups.situations import SITUATIONS as OF_GROUPS
from tests.proof.logic import Step
from tests.proof.mutations import MUTATIONS, SABOTAGES
from tests.proof.obligations import Obligation, Proof, by_z3
from tests.proof.protocol import STEPS
from tests.proof.situations import SITUATIONS, search
from tests.proof.systems import CHANGES, GROUPS


@pytest.fixture(scope="module")
def proof() -> Proof:
    return Proof()


@pytest.fixture(scope="module")
def proof_of_groups() -> Proof:
    return Proof(system=GROUPS)


@pytest.fixture(scope="module")
def proof_of_changes() -> Proof:
    return Proof(system=CHANGES)


def unshown(obligations: list[Obligation]) -> list[str]:
    return [each.name for each in obligations if by_z3(each)[0] != "unsat"]


@pytest.mark.parametrize("step", ["announce", "crash"])
def test_every_invariant_is_kept_by(step: str, proof: Proof) -> None:
    assert not unshown([*proof.kept_by(STEPS[step])])


@pytest.mark.parametrize("step", ["turn", "come"])
def test_every_invariant_of_moves_is_kept_by(step: str, proof_of_groups: Proof) -> None:
    assert not unshown([*proof_of_groups.kept_by(groups.STEPS[step])])


@pytest.mark.parametrize("step", ["announce_by_edges", "activate"])
def test_every_invariant_of_changes_is_kept_by(step: str, proof_of_changes: Proof) -> None:
    assert not unshown([*proof_of_changes.kept_by(changes.STEPS[step])])


def test_every_invariant_holds_at_the_beginning(
    proof: Proof, proof_of_groups: Proof, proof_of_changes: Proof
) -> None:
    for each in (proof, proof_of_groups, proof_of_changes):
        assert not unshown([*each.at_the_beginning()])


def test_every_obligation_can_be_decided(
    proof: Proof, proof_of_groups: Proof, proof_of_changes: Proof
) -> None:
    for each in (proof, proof_of_groups, proof_of_changes):
        assert not cycle(each.formulas())


def test_a_planted_fault_leaves_something_to_show() -> None:
    planted = Proof(MUTATIONS["announcement-said-before-logged"])
    assert unshown([*planted.obligations()]) == ["tell: what is told is durable"]


def test_a_fault_planted_into_moves_leaves_something_to_show() -> None:
    planted = Proof(FAULTS["begun-without-what-was-announced"], system=GROUPS)
    assert "come: told stays announced" in unshown([*planted.obligations()])


def test_a_fault_planted_into_changes_leaves_something_to_show() -> None:
    planted = Proof(FAULTS_OF_CHANGES["created-below-what-was-announced"], system=CHANGES)
    assert "judge: nothing appears below min time" in unshown([*planted.obligations()])


@pytest.mark.parametrize(
    "name",
    [
        "announce",
        "pin-of-one-shard-granted",
        "begun-without-what-was-announced",
        "a whole change",
        "edges-gone-at-once",
    ],
)
def test_what_has_to_be_there_is_found(name: str) -> None:
    (sought,) = [each for each in [*SITUATIONS, *OF_GROUPS, *OF_CHANGES] if each.name == name]
    found = search(sought)
    assert found.found, found.said
    if name in {*MUTATIONS, *FAULTS, *FAULTS_OF_CHANGES}:
        promise = "Promise 4" if name in FAULTS else "Promise 1"
        assert f"False now: {promise}" in found.story[-2]


def test_sorts_that_lead_back_to_themselves_are_found() -> None:
    shard, tick = z3.DeclareSort("Shard"), z3.DeclareSort("Tick")
    related = z3.Function("related", shard, tick, z3.BoolSort())
    newest = z3.Function("newest", shard, tick)
    s, t = z3.Const("s", shard), z3.Const("t", tick)
    of_a_shard = z3.ForAll([s], related(s, newest(s)))
    of_a_tick = z3.ForAll([t], z3.Exists([s], related(s, t)))
    assert not cycle([of_a_shard]) and not cycle([of_a_tick])
    assert cycle([of_a_shard, of_a_tick]) == ["Shard", "Tick"]
    assert not cycle([of_a_shard, z3.Not(of_a_tick)])


@pytest.mark.parametrize(
    "step",
    [*STEPS.values(), *groups.STEPS.values(), *changes.STEPS.values()],
    ids=lambda step: step.name,
)
def test_a_step_names_its_rule_and_what_it_stands_for(step: Step) -> None:
    says = step.body.__doc__ or ""
    assert re.match(r"Rules? \d", says)
    named = re.findall(r"`(\w+(?:\.\w+)?)`", says)
    assert named
    for name in named:
        owner, _, method = name.partition(".")
        defined = rf"^(?:class|def) {owner}\b" + (rf"[\s\S]*^    def {method}\b" if method else "")
        assert any(re.search(defined, text, re.MULTILINE) for text in _sources()), name


@cache
def _sources() -> list[str]:
    files = [*(ROOT / "tracker" / "core").rglob("*.py"), *(ROOT / "fronts").glob("*.py")]
    files += (ROOT / "local_tracker" / "agent").glob("*.py")
    return [file.read_text() for file in files]


def test_the_sabotages_of_the_check_are_mutations() -> None:
    assert read_checks()["proof"].sabotages == SABOTAGES
    assert MUTATIONS.keys() >= {*SABOTAGES}


def test_each_stage_has_mutations_enough() -> None:
    stages = [each.stage for each in MUTATIONS.values()]
    assert min(stages.count(stage) for stage in ("a", "b", "c", "d")) >= 4
    assert min(len(FAULTS), len(FAULTS_OF_CHANGES)) >= 6


def test_no_name_is_of_two_systems() -> None:
    names = [
        {*STEPS, *MUTATIONS},
        {*groups.STEPS, *FAULTS},
        {*changes.STEPS, *FAULTS_OF_CHANGES},
    ]
    assert len({*names[0], *names[1], *names[2]}) == sum(map(len, names))
