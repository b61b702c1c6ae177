"""The clock, the fronts by hand, and the assertions: what passes, what fails, and what a failure says."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas
import pyarrow
import pytest
from pyspark.sql import Row

import tracker
from lowmark.testing import (
    EmbeddedTracker,
    HandFront,
    ManualClock,
    assert_complete,
    assert_nothing_lost,
)
from tests.waits import HANG_S
from tracker.client.pipeline_file import load_pipeline
from tracker.errors import RefusedError

START = datetime(2026, 3, 1, tzinfo=UTC)
PIPELINE = """
name: orders
segments: [price, store]
edges: [price -> store]
fronts: [shop]
start: 2026-03-01
"""
AT_ONCE_S = 0.01  # expires: what is asserted does not come to be so


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as started:
        yield started


@pytest.fixture
def shop(embedded: EmbeddedTracker, request: pytest.FixtureRequest) -> Iterator[HandFront]:
    spec = load_pipeline(PIPELINE.replace("orders", request.node.name))
    embedded.register(spec)
    with HandFront(embedded.target, spec.name, "shop", "price") as front:
        yield front


Complete = Callable[..., None]


@pytest.fixture
def complete(embedded: EmbeddedTracker, request: pytest.FixtureRequest) -> Complete:
    def assert_of_this(
        until: datetime | str, segment: str | None = None, timeout_s: float = HANG_S
    ) -> None:
        assert_complete(embedded.target, request.node.name, until, segment, timeout_s=timeout_s)

    return assert_of_this


# --- complete -------------------------------------------------------------------------------------


def test_what_was_promised_and_is_done_is_complete(shop: HandFront, complete: Complete) -> None:
    item = shop.let_in("2026-03-01T09:30")
    shop.promise("2026-03-01T10:00")
    item.done()
    complete("2026-03-01T10:00")
    complete(START + timedelta(hours=10))


def test_an_open_item_is_named(shop: HandFront, complete: Complete) -> None:
    item = shop.let_in("2026-03-01T09:30")
    shop.promise("2026-03-01T10:00")
    complete("2026-03-01T09:30")
    with pytest.raises(
        AssertionError, match=r"is not complete up to 2026-03-01T10:00 after 0.01 s"
    ) as failed:
        complete("2026-03-01T10:00", timeout_s=AT_ONCE_S)
    assert "price: min time 2026-03-01 09:30" in str(failed.value), failed.value
    item.done()
    complete("2026-03-01T10:00")


def test_an_item_counts_where_it_is(shop: HandFront, complete: Complete) -> None:
    item = shop.let_in("2026-03-01T09:30")
    shop.promise("2026-03-01T10:00")
    item.move_to("store")
    complete("2026-03-01T10:00", "price")
    with pytest.raises(AssertionError, match=r"segment 'store' of .* is not complete"):
        complete("2026-03-01T10:00", "store", timeout_s=AT_ONCE_S)


def test_a_front_that_has_left_promises_everything(shop: HandFront, complete: Complete) -> None:
    shop.let_in(START).done()
    shop.leave()
    complete("2027-01-01")


def test_an_item_below_min_time_is_refused(shop: HandFront, complete: Complete) -> None:
    shop.promise("2026-03-01T10:00")
    complete("2026-03-01T10:00")
    with pytest.raises(RefusedError):
        shop.let_in("2026-03-01T09:59")


def test_a_segment_that_there_is_not_is_refused(shop: HandFront) -> None:
    item = shop.let_in(START)
    with pytest.raises(Exception, match="has no segment 'ship'"):
        item.move_to("ship")


def test_what_an_earlier_run_of_a_front_has_left_open_stays_open(
    shop: HandFront, embedded: EmbeddedTracker, request: pytest.FixtureRequest, complete: Complete
) -> None:
    shop.let_in("2026-03-01T09:30")
    shop.close()
    with HandFront(embedded.target, request.node.name, "shop", "price") as again:
        item = again.let_in("2026-03-01T09:30")
        again.promise("2026-03-01T10:00")
        for _ in range(2):
            with pytest.raises(AssertionError, match=r"is not complete up to 2026-03-01T10:00"):
                complete("2026-03-01T10:00", timeout_s=AT_ONCE_S)
            item.done()


# --- rows -----------------------------------------------------------------------------------------


def test_rows_in_another_order_are_the_same() -> None:
    assert_nothing_lost([{"a": 1, "b": 2}, {"a": 2, "b": 3}], [{"b": 3, "a": 2}, {"b": 2, "a": 1}])
    assert_nothing_lost([(1, "x"), (1, "x")], iter([[1, "x"], (1, "x")]))
    assert_nothing_lost([], [])


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        ([1, 2, 3], [1, 3], "of 3 rows 1 lost: 2"),
        ([1, 2], [1, 2, 2, 2], "of 2 rows 2 doubled: 2, 2"),
        ([1], [1, {"a": 5}], 'of 1 rows 1 not expected: {"a": 5}'),
        ([1, 1, 2], [1, 4], "of 3 rows 2 lost: 1, 2; 1 not expected: 4"),
        (range(9), [], "of 9 rows 9 lost: 0, 1, 2 and 6 more"),
        ([(1, START)], [], f'of 1 rows 1 lost: [1, "{START!r}"]'),
    ],
)  # fmt: skip
def test_what_differs_is_said(expected: list[object], found: list[object], said: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_nothing_lost(expected, found)
    assert str(failed.value) == said


def test_what_gives_out_its_columns_is_not_compared_by_these() -> None:
    frames = [pandas.DataFrame({"a": values}) for values in ([1, 2], [7])]
    for expected, found in (
        frames,
        ([{"a": 1}], frames[1]),
        ([], pyarrow.table({})),
        ({"a": 1},) * 2,
    ):
        with pytest.raises(TypeError, match=r"gives out its columns and not its rows: pass those"):
            assert_nothing_lost(expected, found)
    assert_nothing_lost([{"a": 1}, {"a": 2}], frames[0].to_dict("records"))


Xy = namedtuple("Xy", "x y")
Yx = namedtuple("Yx", "y x")


SPARK_ROW: Any = Row


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (SPARK_ROW("a", "a")(1, 2), SPARK_ROW("a", "a")(9, 2)),
        (Xy(1, 2), Yx(1, 2)),
    ],
    ids=["two columns of a name", "tuples with names"],
)  # fmt: skip
def test_no_column_is_left_out_or_taken_for_another(expected: object, found: object) -> None:
    assert_nothing_lost([expected], [expected])
    with pytest.raises(AssertionError, match=r"of 1 rows 1 lost: .*; 1 not expected"):
        assert_nothing_lost([expected], [found])
    assert_nothing_lost([Xy(1, 2), (1, 2)], [{"y": 2, "x": 1}, SPARK_ROW(1, 2)])


# --- the clock ------------------------------------------------------------------------------------


def test_the_clock_stands_until_it_is_moved() -> None:
    clock = ManualClock()
    assert clock() == clock()
    clock.advance("1.5h")
    later = ManualClock()
    later.move_to(START)
    assert later.now == START
    later.advance(timedelta(seconds=1))
    later.advance("10ms")
    assert later() == round(START.timestamp()) * 10**9 + 1_010_000_000


def test_the_clock_goes_back_only_before_it_is_read() -> None:
    clock = ManualClock()
    clock.move_to("2026-03-01")
    clock.move_to("2025-01-01T00:00:00+01:00")
    assert clock() == clock()
    clock.move_to(clock.now)
    with pytest.raises(
        ValueError, match=r"read at 2024-12-31T23:00:00.* not to go back to 2024-01-01"
    ):
        clock.move_to("2024-01-01")
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(timedelta(seconds=-1))
    assert clock.now == datetime(2024, 12, 31, 23, tzinfo=UTC)
