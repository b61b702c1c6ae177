"""What a scheduler is told of a real tracker: complete periods from its position on, and partitions made too early."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.schedulers.shop import BEGIN, SPEC, Shop, open_shop
from tests.waits import HANG_S
from tracker.client import RefusedError
from tracker.consumers.periods.cut import Cut
from tracker.consumers.periods.due import Plan, partition_key
from tracker.consumers.periods.made import Made, judge
from tracker.consumers.periods.position import Recorded
from tracker.core.model.slots import FOREVER

HOUR = 3_600
LONG_AGO_S = 0.0
NEVER = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Three hours are complete."""
    with open_shop(tmp_path_factory.mktemp("shop")) as opened:
        for _ in range(3):
            opened.complete_hour()
        opened.await_complete(HANG_S)
        yield opened


def test_periods_are_given_from_a_position_on_and_the_same_from_an_older_one(shop: Shop) -> None:
    plan = Plan.of(shop.target, "orders", "load", "1h")
    found = plan.look(shop.target, None, most=2)
    assert [partition_key(each) for each in found.periods] == [
        "2026-03-01T00:00:00", "2026-03-01T01:00:00",
    ]  # fmt: skip
    rest = plan.look(shop.target, Recorded(found.position, found.generation, {}), most=24)
    assert [each.from_slot for each in rest.periods] == [SPEC.start_slot + 2 * HOUR]
    assert (
        plan.look(shop.target, Recorded(rest.position, rest.generation, {}), most=24).periods == []
    )
    again = plan.look(shop.target, None, most=24).periods
    assert [each.key for each in again] == [each.key for each in found.periods + rest.periods]


def test_it_begins_behind_a_moment(shop: Shop) -> None:
    since = BEGIN + timedelta(minutes=30)
    plan = Plan.of(shop.target, "orders", None, "1h", since)
    assert plan.begin == SPEC.start_slot + HOUR


def test_what_cannot_be_is_refused(shop: Shop) -> None:
    with pytest.raises(RefusedError, match="returns"):
        Plan.of(shop.target, "returns", None, "1h")
    with pytest.raises(ValueError, match="no segment 'store'; it has load"):
        Plan.of(shop.target, "orders", "store", "1h")
    with pytest.raises(ValueError, match="not whole slots"):
        Plan.of(shop.target, "orders", None, "1500ms")


def test_of_a_complete_pipeline_the_periods_that_it_passed_and_then_the_rest() -> None:
    plan = Plan("orders", None, Cut(10, 5, 10**9), 0)
    found = plan.due(0, FOREVER, lambda slot: slot <= 25, most=24)
    assert [(each.from_slot, each.to_slot) for each in found.periods] == [
        (0, 10), (10, 20), (20, FOREVER),
    ]  # fmt: skip
    assert plan.due(found.position, FOREVER, lambda slot: False, most=24).periods == []


def test_lateness_holds_a_period_back() -> None:
    plan = Plan("orders", None, Cut(10, 5, 10**9), 0)
    assert plan.due(0, 14, lambda slot: False, most=24).periods == []
    assert len(plan.due(0, 15, lambda slot: False, most=24).periods) == 1


def test_partitions_that_were_made_too_early_are_named(shop: Shop) -> None:
    ends = [BEGIN + timedelta(hours=n) for n in (1, 2, 4)]
    made = [
        Made("too early", ends[0], LONG_AGO_S), Made("right", ends[1], NEVER), Made("not yet", ends[2], NEVER),
    ]  # fmt: skip
    found = judge(shop.target, "orders", "load", made)
    assert (found.early, found.open) == (["too early"], ["not yet"])
    assert judge(shop.target, "orders", "load", []).open == []


def test_its_reports_are_noted_by_the_program_of_the_pages(shop: Shop) -> None:
    subprocess.run([shop.directory / "bin" / "report-hour", "an-hour"], check=True, timeout=HANG_S)
    (noted,) = shop.history()
    assert noted.hour == "an-hour" and noted.at_ns > shop.completed[-1][1]
