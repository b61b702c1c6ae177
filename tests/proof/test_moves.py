"""Moves between groups ask for no more than their proof needs, but where this is said."""

from __future__ import annotations

import pytest

from tests.proof.groups.system import STEPS
from tests.proof.logic import Universe
from tests.proof.mutations import Mutation, without
from tests.proof.obligations import Proof, by_z3
from tests.proof.systems import GROUPS

SPARE = {
    ("turn", "a move has begun"),  # some move has, of the group to which the pipeline is to come
    ("keep_known", "there is none yet"),  # all letters that can still matter say the same
    ("keep_cells", "there are none yet"),
    ("be_ready", "it comes"),  # nothing is kept of one that goes
    ("come", "all of it is here"),  # the directory has turned only when it was
}
"""Conditions of steps without which every invariant is kept as well: the code asks for them all the same."""


def conditions() -> list[tuple[str, str]]:
    now = Universe(GROUPS.vocabulary).state("now")
    return [(name, asked) for name, step in STEPS.items() for asked in step.take(now)[1].when]


@pytest.mark.parametrize("step,asked", conditions())
def test_what_a_step_asks_for_is_needed(step: str, asked: str) -> None:
    """Without it some invariant is not kept."""
    planted = Mutation("", "e", 13, "", step, lambda _, effect, __: without(effect, asked), "")
    obligations = Proof(planted, system=GROUPS).obligations()
    kept = all(by_z3(each)[0] == "unsat" for each in obligations)
    assert kept == ((step, asked) in SPARE)
