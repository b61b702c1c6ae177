"""The schedule that the protocol's page draws: it is what the rules answer, and no shorter one will do."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.docs.schedule import (
    FRONT,
    PICTURE,
    SCRIPT,
    SLOT_OF_B,
    WORKER,
    Heard,
    picture,
    schedules,
    shortest,
    told,
)


@pytest.fixture(scope="module")
def story() -> list[Heard]:
    return shortest()


def test_the_picture_is_of_the_schedule_that_the_search_finds(story: list[Heard]) -> None:
    assert PICTURE.read_text() == picture(story), "run python -m tests.docs.schedule"


def test_the_published_rule_announces_the_slot_of_an_item_either_way(story: list[Heard]) -> None:
    last = story[-1]
    assert (last.published, last.dropping, last.by_cut_rule) == (2, 2, SLOT_OF_B)
    assert [(heard.tick.node, heard.tick.number, heard.shard) for heard in story] == [
        (FRONT, 1, 0), (FRONT, 1, 1), (FRONT, 2, 1), (WORKER, 1, 1), (WORKER, 1, 0),
    ]  # fmt: skip


def test_without_the_second_promise_only_reports_that_are_dropped_fool_the_rule(
    story: list[Heard],
) -> None:
    without = tuple(
        (heard.tick.node, heard.shard)
        for heard in story
        if (heard.tick.node, heard.tick.number) != (FRONT, 2)
    )
    last = told(without)[-1]
    assert (last.published, last.dropping, last.by_cut_rule) == (SLOT_OF_B, 2, SLOT_OF_B)


def test_the_cut_rule_announces_the_slot_of_the_item_in_the_end_and_no_more() -> None:
    deliveries = 2 * sum(map(len, SCRIPT.values()))
    every = [*chain.from_iterable(schedules(length) for length in range(1, deliveries + 1))]
    said = {schedule: told(schedule)[-1].by_cut_rule for schedule in every}
    assert max(said.values()) == SLOT_OF_B
    assert {said[schedule] for schedule in schedules(deliveries)} == {SLOT_OF_B}
