"""The judge of deployments finds a pipeline that is in two groups, and one that stands still for others' sake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.check.history import history_of
from tests.check.rules import violations
from tests.check.sound import Line, created, heard, line, sound_run

HOMES = {"a:1": 0, "b:1": 1}
BOUND_NS = 20


def run(**changes: Any) -> list[Line]:
    """The sound run, in two groups: it is registered in 0 at 1, moves to 1 from 32 to 39, and is claimed there. What is acknowledged up
    to 31 is by `a`, and behind by `b`."""
    told = {
        "homes": HOMES, "most_still_ns": BOUND_NS, "tenures": [[0, 0, 1], [1, 32, 39]],
        "claims": [[0, 10, 12], [1, 45, 46]], "harms": [],
    }  # fmt: skip
    lines = [
        {**each, "home": "a:1" if each["at_ns"] < 32 else "b:1"} if each["kind"] == "tick" else each
        for each in sound_run()
    ]
    return [*lines, line("groups", 22, **(told | changes))]


def found(lines: list[Line]) -> list[str]:
    return [each.split(":")[0] for each in violations(history_of(enumerate(lines)))]


def test_a_sound_move_breaks_nothing() -> None:
    assert found(run()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": [[0, 10, 12], [0, 40, 41]]},  # by the group before, when it is over
        {"claims": [[1, 10, 12]]},  # by the next one, before it was asked for
        {"claims": [[1, 34, 35], [0, 36, 37]]},  # by the one before, after the other
        {"homes": {"a:1": 0, "b:1": 0}, "claims": [[1, 45, 46]]},  # acknowledged by the one before
        {"homes": {"a:1": 0}, "claims": [[1, 45, 46]]},  # acknowledged by nobody's process
    ],
)
def test_a_pipeline_in_two_groups_is_found(changes: dict[str, Any]) -> None:
    assert set(found(run(**changes))) == {"in two"}


def test_while_it_is_decided_both_may_say_that_they_have_it() -> None:
    assert found(run(claims=[[0, 33, 35], [1, 34, 38]])) == []


def test_what_the_group_before_acknowledges_when_it_has_it_again_is_right() -> None:
    """It moves to 1 and back at once; who asked in between hears of it from 0."""
    tenures = [[0, 0, 1], [1, 12, 18], [0, 19, 25]]
    claims = [[1, 13, 14], [0, 15, 24]]
    homes = {"a:1": 0, "b:1": 0}
    assert found(run(tenures=tenures, claims=claims, homes=homes)) == []
    assert found(run(tenures=tenures, claims=[[1, 13, 14], [0, 15, 16]], homes=homes)) == ["in two"]


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({"most_still_ns": 18}, True),
        ({"most_still_ns": 18, "harms": [[1, 50, 55, "killed"]]}, False),
        ({"most_still_ns": 18, "harms": [[0, 50, 55, "killed"]]}, True),  # it was somewhere else
        ({"most_still_ns": 18, "tenures": [[0, 0, 1], [1, 32, 39], [1, 45, 47]]}, False),
        ({"most_still_ns": 12, "tenures": [[0, 0, 1], [1, 32, 39], [1, 45, 47]]}, True),
    ],
)
def test_a_pipeline_that_stands_for_others_sake_is_found(
    changes: dict[str, Any], stands: bool
) -> None:
    """It is heard of at 42 and at 61: for 19 nobody hears anything."""
    assert found(run(**changes)) == (["stood still"] if stands else [])


def test_a_run_in_which_nobody_says_where_it_is_proves_nothing() -> None:
    assert found(run(claims=[])) == ["nothing to check"]


def test_what_else_is_wrong_is_found_too() -> None:
    lines = [*run(), created(30, "read", 5, "more"), heard(63, None, 4)]
    assert {"false completion", "regress"} <= set(found(lines))
