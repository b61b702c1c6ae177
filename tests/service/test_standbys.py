"""A process that waits for a shard states its release, and an upgrade is not finished while it is an older one's."""

from __future__ import annotations

import pytest

from tracker.core.insight.describe import StandbyDescription
from tracker.core.model import RefusalCode, Refused
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.service.rpc.standbys import HEARD_S, MAX_STANDBYS, Standbys

BEFORE = NEWEST_LEVEL - 1


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def heard(*standbys: StandbyDescription) -> tuple[Standbys, Clock]:
    """As of a moment at which every standby has had time to say that it waits."""
    clock = Clock()
    known = Standbys(clock)
    clock.now_s += HEARD_S
    for standby in standbys:
        known.hear(standby)
    return known, clock


def test_an_older_one_is_waited_for_and_named_until_it_is_another_release_or_gone() -> None:
    older = StandbyDescription("a:1", BEFORE, "0.1.0")
    known, clock = heard(older, StandbyDescription("b:1", NEWEST_LEVEL, "0.2.0"))
    with pytest.raises(Refused, match=r"standby at a:1, of release 0.1.0, speaks") as refused:
        known.check_speak(NEWEST_LEVEL, ())
    assert refused.value.refusal.code is RefusalCode.NOT_READY
    known.check_speak(BEFORE, ())
    known.check_speak(
        NEWEST_LEVEL, ["a:1"]
    )  # it has a shard by now, whose link says what it speaks
    clock.now_s += HEARD_S + 0.1
    known.check_speak(NEWEST_LEVEL, ())
    known.hear(older)
    known.hear(StandbyDescription("a:1", NEWEST_LEVEL, "0.2.0"))
    known.check_speak(NEWEST_LEVEL, ())


def test_who_has_just_begun_to_serve_knows_of_none_and_waits() -> None:
    clock = Clock()
    known = Standbys(clock)
    with pytest.raises(Refused, match="standbys may not have stated their release"):
        known.check_speak(NEWEST_LEVEL, ())
    clock.now_s += HEARD_S
    known.check_speak(NEWEST_LEVEL, ())


def test_no_more_than_so_many_are_remembered() -> None:
    many = [StandbyDescription(f"host-{n}:1", BEFORE, "") for n in range(MAX_STANDBYS + 2)]
    known, _ = heard(*many)
    assert {s.address for s in known.waiting()} == {s.address for s in many[2:]}
