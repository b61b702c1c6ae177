"""What finishing an upgrade waits for, in words and JSON, and when it asks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.waits import HANG_S
from tracker.cli.render.shards import routing_json, upgrade_text
from tracker.client import RefusedError, RoutingInfo, ShardInfo, UnavailableError
from tracker.client.finishing import Finishing
from tracker.core.insight.describe import RoutingDescription, ShardDescription, StandbyDescription
from tracker.core.model import Refusal, RefusalCode


def routing(
    level: int, *speaks: int, standbys: Sequence[StandbyDescription] = (), release: str = "0.1.0"
) -> RoutingInfo:
    """Shards whose processes speak up to these levels (0: they are away)."""
    shards = [
        ShardInfo(ShardDescription(n, bool(each), 0, speaks=each, release=release), f"host-{n}:1")
        for n, each in enumerate(speaks)
    ]
    return RoutingInfo(RoutingDescription(0, (), False, level), tuple(shards), tuple(standbys))


class Asked:
    """A tracker: what it looks like each time it is looked at, and what it answers each time it is asked."""

    def __init__(self, looks: list[RoutingInfo], answers: Sequence[RefusalCode | None]) -> None:
        self._looks, self._answers = looks, [*answers]
        self.asked: list[int] = []

    def routing(self) -> RoutingInfo:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def ask_to_finish(self, level: int) -> None:
        self.asked.append(level)
        code = self._answers.pop(0)
        if code is not None:
            raise RefusedError(Refusal(code, "it has to wait"))


def test_it_asks_when_nothing_is_known_to_be_in_the_way_and_again_while_it_has_to_wait() -> None:
    looks = [
        routing(1, 2, 1),
        routing(1, 2, 0),
        routing(1, 2, 2),
        routing(1, 2, 2),
        routing(2, 2, 2),
    ]
    tracker, said = Asked(looks, [RefusalCode.NOT_READY, None]), list[str]()
    assert Finishing(tracker, said.append).wait(HANG_S).table.level == 2
    assert tracker.asked == [2, 2]
    assert said == [
        "the process of shard 1 of release 0.1.0 speaks feature levels up to 1",
        "shard 1 is away, or is of a release that states no feature level",
        "it has to wait",
    ]


def test_what_is_refused_for_good_is_not_asked_again() -> None:
    tracker = Asked([routing(1, 2)], [RefusalCode.INVALID])
    with pytest.raises(RefusedError):
        Finishing(tracker).wait(HANG_S)


def test_in_time_or_not_at_all() -> None:
    tracker = Asked([routing(1, 2, 1)], [])
    with pytest.raises(
        UnavailableError, match=r"shard 1 .* until it is finished the release before can"
    ):
        Finishing(tracker).wait(0)
    assert not tracker.asked


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (routing(2, 2, 2), "feature level 2"),
        (routing(2, 2, 0), "feature level 2"),
        (routing(1, 2, 2), "feature level 1; the upgrade to 2 can be finished: --finish-upgrade"),
        (
            routing(1, 2, 2, standbys=[StandbyDescription("a:1", 1, "0.1.0")]),
            "feature level 1; the upgrade to 2 waits: the standby at a:1 of release 0.1.0 speaks feature levels up to 1",
        ),
    ],
)
def test_how_far_an_upgrade_is(seen: RoutingInfo, text: str) -> None:
    assert upgrade_text(seen) == text
    shown = routing_json(seen)
    assert (shown["level"], shown["level_to_finish"]) == (seen.table.level, 2)
    assert bool(shown["upgrade_waits_for"]) == ("waits" in text or not seen.shards[-1].state.speaks)
