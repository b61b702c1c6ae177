"""What the judge of a record is worth: a record that keeps all promises, and each way to break one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.kubernetes.judge import Line, violations

GOOD: list[Line] = [
    {"what": "expected", "releases": {"r": ["install", "upgrade"]}, "outside": ["out"]},
    {"what": "refused", "release": "out", "pod": "p", "message": "no", "claims_restricted": False},
    {"what": "step", "release": "r", "step": "install", "ok": True, "said": ""},
    {"what": "objects", "release": "r", "step": "install", "applied": 9, "missing": []},
    {"what": "hooks", "release": "r", "step": "install", "hooks": {"grow": "Succeeded"}},
    {"what": "pods", "release": "r", "step": "install", "wanted": 2, "ready": 2, "restricted": True},
    {
        "what": "claims", "release": "r", "step": "install", "claims": {"store-r-0": "1"},
        "pods": {"r-0": ["store-r-0"]},
    },
    {"what": "secrets", "release": "r", "step": "install", "secrets": {"r-tokens": "a"}},
    {"what": "evicted", "release": "r", "pod": "r-0", "status": 201, "away": 0, "allowed": 1},
    {"what": "evicted", "release": "r", "pod": "r-1", "status": 429, "away": 1, "allowed": 1},
    {
        "what": "endpoints", "release": "r", "step": "install", "service": "r", "ready": ["r-0"],
        "pods": ["r-0"],
    },
    {"what": "rights", "release": "r", "account": "a", "found": ["get it"], "wanted": ["get it"]},
    {
        "what": "review", "release": "r", "account": "a", "verb": "list", "resource": "secrets",
        "name": "", "allowed": False, "wanted": False,
    },
    {"what": "ran", "release": "r", "wrong": [], "acknowledged": 5, "announcements": 5},
    {"what": "step", "release": "r", "step": "upgrade", "ok": True, "said": ""},
    {
        "what": "claims", "release": "r", "step": "upgrade",
        "claims": {"store-r-0": "1", "store-r-1": "2"}, "pods": {"r-1": ["store-r-1"]},
    },
    {"what": "secrets", "release": "r", "step": "upgrade", "secrets": {"r-tokens": "a", "b": "c"}},
    {"what": "shards", "release": "r", "step": "upgrade", "wanted": 2, "owners": 2},
]  # fmt: skip
BROKEN: dict[str, Callable[[list[Line]], object]] = {
    "all_was_done": lambda lines: lines.pop(14),
    "steps_succeed": lambda lines: lines[2].update(ok=False),
    "objects_are_there": lambda lines: lines[3]["missing"].append("Service/r"),
    "hooks_succeed": lambda lines: lines[4]["hooks"].update(grow=""),
    "pods_come": lambda lines: lines[5].update(ready=1),
    "shards_follow_pods": lambda lines: lines[17].update(owners=1),
    "restricted_is_what_it_says": lambda lines: lines[1].update(claims_restricted=True),
    "claims_are_kept": lambda lines: lines[15]["claims"].pop("store-r-0"),
    "secrets_are_kept": lambda lines: lines[16]["secrets"].update({"r-tokens": "z"}),
    "budgets_hold": lambda lines: lines[9].update(status=201),
    "services_lead_to_who_is_ready": lambda lines: lines[10]["ready"].append("r-1"),
    "accounts_may_what_they_need": lambda lines: lines[11]["found"].append("delete it"),
    "processes_do_well": lambda lines: lines[13]["wrong"].append("lost completion"),
}


def test_a_record_that_keeps_all_promises_is_good() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_each_broken_promise_is_found_by_its_rule(rule: str) -> None:
    lines = copy.deepcopy(GOOD)
    BROKEN[rule](lines)
    assert [said.partition(":")[0] for said in violations(lines)] == [rule]


@pytest.mark.parametrize(
    "breaks",
    [
        lambda lines: lines[12].update(allowed=True),
        lambda lines: lines[15]["claims"].update({"store-r-0": "3"}),
        lambda lines: lines[6]["pods"].update({"r-0": ["other-r-1"]}),
        lambda lines: lines.pop(1),
        lambda lines: lines.pop(9),
        lambda lines: lines.clear(),
    ],
)
def test_what_is_worse_than_it_looks_is_found(breaks: Callable[[list[Line]], object]) -> None:
    """More rights by review, another claim under the name, another pod's claim, nothing refused, no eviction beyond
    the budget, an empty record."""
    lines = copy.deepcopy(GOOD)
    breaks(lines)
    assert len(violations(lines)) == 1
