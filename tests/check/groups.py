"""What a deployment of several groups promises beside: a pipeline lives in one group at a time, and stands still for nobody
else's sake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.check.history import History

Violations = Iterator[str]
Span = tuple[int, int]
"""From when to when."""


@dataclass(frozen=True)
class Tenure:
    """A pipeline lives in a group from a moment on: not before `asked_ns`, and at `at_ns` at the latest. One that stayed where it
    was when it was to move has another one there."""

    group: int
    asked_ns: int
    at_ns: int


@dataclass(frozen=True)
class Claim:
    """A group answered, between two moments, that it has the pipeline, and that this is not on its way to another."""

    group: int
    from_ns: int
    to_ns: int


@dataclass(frozen=True)
class Harm:
    """Something was done to a group, so that its own pipelines may stand meanwhile."""

    group: int
    from_ns: int
    to_ns: int
    what: str


@dataclass
class Groups:
    """Of one pipeline. homes: the group of each process by its address; from_ns: since when everything goes on; most_still_ns: for
    how long the pipeline may not be announced to move, where nothing is done to its group and it is not on its way."""

    homes: dict[str, int]
    from_ns: int
    most_still_ns: int
    tenures: list[Tenure] = field(default_factory=list)
    """In their order; the first is its registration."""
    claims: list[Claim] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)

    def spans_in(self, group: int) -> list[Span]:
        """Between which moments it may have been in a group."""
        ends = [tenure.at_ns for tenure in self.tenures[1:]]
        return [
            (tenure.asked_ns, end)
            for tenure, end in zip(self.tenures, [*ends, 2**63], strict=True)
            if tenure.group == group
        ]

    def excused(self) -> list[Span]:
        """When it may stand, in their order: on its way, and while something is done to the group that has it."""
        spans = [(tenure.asked_ns, tenure.at_ns) for tenure in self.tenures]
        for harm in self.harms:
            of_it = (harm.from_ns, harm.to_ns)
            if any(_meet(of_it, span) for span in self.spans_in(harm.group)):
                spans.append(of_it)
        return sorted(spans)


def in_two_groups(history: History) -> Violations:
    """No pipeline is in two groups: whatever a group acknowledged or claimed, the pipeline lived there at some moment of that; and
    once the group to which it moves has, the one before does not."""
    groups = history.groups
    if groups is None:
        return
    seen = [(claim.group, claim.from_ns, claim.to_ns, "claimed it") for claim in groups.claims]
    for tick in history.ticks:
        if tick.home not in groups.homes:
            yield f"in two: tick {tick.number} of {tick.node} was acknowledged by {tick.home!r}, of no group"
            continue
        what = f"acknowledged tick {tick.number} of {tick.node}"
        seen.append((groups.homes[tick.home], tick.handed_ns, tick.at_ns, what))
    spans = {group: groups.spans_in(group) for group, *_ in seen}
    for group, from_ns, to_ns, what in seen:
        if not any(_meet((from_ns, to_ns), span) for span in spans[group]):
            yield f"in two: group {group} {what} from {from_ns} to {to_ns}, when it lived elsewhere"
    for place, (before, after) in enumerate(pairwise(groups.tenures), 2):
        if before.group == after.group:
            continue
        again_ns = min(
            (each.asked_ns for each in groups.tenures[place:] if each.group == before.group),
            default=2**63,
        )  # by then it may be back
        turned = [
            to_ns
            for group, from_ns, to_ns, _ in seen
            if group == after.group and after.asked_ns <= from_ns and to_ns <= after.at_ns
        ]
        for group, from_ns, to_ns, what in seen:
            if group != before.group or to_ns >= again_ns:
                continue
            if min(turned, default=2**63) < from_ns <= after.at_ns:
                yield (
                    f"in two: group {group} {what}, which began at {from_ns}, when group {after.group} had "
                    "acknowledged or claimed already"
                )


def stood_still(history: History) -> Violations:
    """Whatever is done to other groups and other pipelines, announcements of this one go on."""
    groups = history.groups
    if groups is None:
        return
    for still_ns, from_ns, subscriber in still(history):
        if still_ns > groups.most_still_ns:
            yield (
                f"stood still: {subscriber} heard nothing new of the pipeline for {still_ns / 1e9:.1f} s from {from_ns} on, while "
                "it was on its way nowhere and nothing was done to its group"
            )


def still(history: History) -> Iterator[tuple[int, int, str]]:
    """For how long a subscriber heard nothing new, without an excuse, from when on, and which one."""
    groups = history.groups
    assert groups is not None
    heard: dict[str, list[int]] = {}
    for each in history.heard:
        if each.segment is None and each.at_ns > groups.from_ns:
            heard.setdefault(each.subscriber, []).append(each.at_ns)
    excused = groups.excused()
    for subscriber, moments in heard.items():
        for span in pairwise([groups.from_ns, *moments]):
            for from_ns, to_ns in _without(span, excused):
                yield to_ns - from_ns, from_ns, subscriber


def groups_vacuous(history: History) -> Violations:
    """A run in which no group says what it has proves nothing."""
    if history.groups is not None and not history.groups.claims:
        yield "nothing to check: no group has claimed the pipeline"
    if history.groups is not None and not history.groups.tenures:
        yield "nothing to check: it is not recorded where the pipeline lives"


GROUP_RULES = (in_two_groups, stood_still, groups_vacuous)


def _meet(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _without(span: Span, excused: Sequence[Span]) -> Iterator[Span]:
    """What of a span is left without others, which are in their order."""
    from_ns, to_ns = span
    for begin_ns, end_ns in excused:
        if end_ns <= from_ns:
            continue
        if begin_ns >= to_ns:
            break
        if begin_ns > from_ns:
            yield from_ns, begin_ns
        from_ns = end_ns
    if from_ns < to_ns:
        yield from_ns, to_ns
