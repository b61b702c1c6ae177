"""Moves between groups, and changes of a pipeline, ask for no more than their proof needs, but where this is said."""

from __future__ import annotations

import pytest

from tests.proof.logic import System, Universe
from tests.proof.mutations import Mutation, without
from tests.proof.obligations import Proof, by_z3
from tests.proof.systems import CHANGES, GROUPS

SPARE = {
    # Of moves:
    ("turn", "a move has begun"),  # some move has, of the group to which the pipeline is to come
    ("keep_known", "there is none yet"),  # all letters that can still matter say the same
    ("keep_cells", "there are none yet"),
    ("be_ready", "it comes"),  # nothing is kept of one that goes
    ("come", "all of it is here"),  # the directory has turned only when it was
    # Of changes:
    ("decide_change", "it is newer"),  # changes may be under way together, in any order
    ("decide_change", "than all before"),
    ("decide_change", "which are over there"),
    ("apply_change", "it has applied all before"),
    ("activate", "that is durable"),  # one may follow another that is not durable yet
    ("let_go", "it has counted older ones"),  # else it counts more than before
    ("log_judged", "it is not applied"),  # it is not in a cell twice
    ("pass_on", "it is not applied"),
}
"""Conditions of steps without which every invariant is kept as well: the code asks for them all the same."""


def conditions() -> list[tuple[System, str, str]]:
    found = []
    for system in (GROUPS, CHANGES):
        now = Universe(system.vocabulary).state("now")
        for name, step in system.steps.items():
            effect = step.take(now)[1]
            found += [(system, name, asked) for asked in (*effect.when, *effect.of_items)]
    return found


@pytest.mark.parametrize("system,step,asked", conditions())
def test_what_a_step_asks_for_is_needed(system: System, step: str, asked: str) -> None:
    """Without it some invariant is not kept."""
    planted = Mutation("", "e", 13, "", step, lambda _, effect, __: without(effect, asked), "")
    obligations = Proof(planted, system=system).obligations()
    kept = all(by_z3(each)[0] == "unsat" for each in obligations)
    assert kept == ((step, asked) in SPARE)
