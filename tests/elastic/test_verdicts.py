"""A round in which the controls are not steady themselves judges nothing."""

from __future__ import annotations

import pytest

from benchmarks.pairs import Bar, Verdict
from tests.elastic.verdicts import MOST_ROUNDS, Bounds, is_over, verdict

BAR = Bar(1.5)
MET = Bounds(1.3, 1.2, 1.2, 0.3)
NOT_MET = Bounds(2.4, 2.2, 1.2, 0.3)
UNSTEADY = Bounds(15.1, 12.0, 6.0, 0.4)


@pytest.mark.parametrize(
    "bounds, told",
    [
        (MET, Verdict.MET),
        (NOT_MET, Verdict.NOT_MET),
        (Bounds(1.4, 1.2, 9.0, 0.3), Verdict.MET),
        (UNSTEADY, Verdict.CANNOT_TELL),
        (Bounds(1.7, 1.6, 1.2, 0.3), Verdict.CANNOT_TELL),
        (Bounds(2.4, 1.4, 1.0, 0.3), Verdict.CANNOT_TELL),
        (Bounds(1.2, 1.1, 1.1, 0.7), Verdict.CANNOT_TELL),
    ],
    ids=[
        "below",
        "beyond what the controls did by themselves",
        "below, though the controls were worse",
        "controls beyond the bar",
        "beyond, but not by more than a second of the controls",
        "beyond one half of the controls only",
        "more load than is meant",
    ],
)
def test_a_round_is_judged_by_its_bounds(bounds: Bounds, told: Verdict) -> None:
    assert bounds.verdict(BAR) is told
    assert bool(bounds.why_untold(BAR)) == (told is Verdict.CANNOT_TELL)


def test_rounds_go_on_until_two_can_tell_and_agree() -> None:
    assert not is_over([MET], BAR)
    assert not is_over([MET, UNSTEADY], BAR)
    assert is_over([MET, UNSTEADY, MET], BAR)
    assert verdict([MET, UNSTEADY, MET], BAR) is Verdict.MET
    assert verdict([NOT_MET, NOT_MET], BAR) is Verdict.NOT_MET


def test_rounds_that_disagree_tell_nothing_and_end() -> None:
    assert is_over([MET, NOT_MET], BAR)
    assert verdict([MET, NOT_MET], BAR) is Verdict.CANNOT_TELL


def test_rounds_that_never_tell_come_to_an_end() -> None:
    assert is_over([UNSTEADY] * MOST_ROUNDS, BAR)
    assert verdict([UNSTEADY] * MOST_ROUNDS, BAR) is Verdict.CANNOT_TELL
