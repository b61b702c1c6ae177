"""What a run with changes is held against: made-up tables and histories, each with one thing wrong."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from examples.flights.expected import Expected, RouteTotals
from tests.change.judging import Batch, Pause, Tables, longest_pause, wrong_tables
from tests.change.pipeline import BEFORE, GROWN, LATE_MIN, PULSE, SHRUNK
from tests.change.run import Happened
from tracker.core.home.registration import check_spec
from tracker.core.pipeline.change import check_change, numbered

ADDED_NS, REMOVED_NS, COMPLETE_NS = 15, 25, 28
MALFORMED = 8


def flight(row: int) -> dict[str, Any]:
    """Those with odd rows are late."""
    return {"row": row, "dep_delay_min": LATE_MIN if row % 2 else 0}


def batch(at_ns: int, *rows: int) -> Batch:
    return Batch(at_ns, [flight(row) for row in rows])


TRUTH = Expected(
    defaultdict(RouteTotals, {("UA", "EWR", "IAH"): RouteTotals(MALFORMED)}), {MALFORMED}
)
SOUND = Tables(
    enriched=[batch(10, 0, 1), batch(14, 2), batch(20, 3, 4), batch(30, 5, 6, 7)],
    carriers=[batch(12, 0, 1), batch(27, 2, 3, 4)],
    delayed=[batch(22, 3), batch(40, 5, 7)],
    malformed=[MALFORMED],
    letters=[3, 5, 7],
)


def wrong(**changes: Any) -> list[str]:
    return wrong_tables(replace(SOUND, **changes), TRUTH, (ADDED_NS, REMOVED_NS), COMPLETE_NS)


def test_a_sound_run_is_not_wrong() -> None:
    assert wrong() == []


SPOILED = {
    "a flight is not enriched": ({"enriched": SOUND.enriched[1:]}, "enriched or malformed: 2"),
    "a malformed row is in the ledger twice": ({"malformed": [8, 8]}, "dead letters: 1 flights are there twice"),
    "the removed table lacks a flight of before": ({"carriers": SOUND.carriers[:1]}, "carriers: 3 flights are missing"),
    "it has one of afterwards": (
        {"carriers": [*SOUND.carriers, batch(27, 5)]}, "carriers: 1 flights are not of this table",
    ),
    "it has one twice": ({"carriers": [*SOUND.carriers, batch(27, 0)]}, "carriers: 1 flights are there twice"),
    "it grows when it had been complete": (
        {"carriers": [batch(12, 0, 1), batch(29, 2, 3, 4)]}, "carriers: 1 batches were committed",
    ),
    "the added table lacks a late flight": ({"delayed": SOUND.delayed[1:]}, "delayed: 1 flights are missing"),
    "it has one of before": (
        {"delayed": [*SOUND.delayed, batch(41, 1)]}, "delayed: 1 flights are not of this table",
    ),
    "a letter is lost on the new edge": ({"letters": [3, 5]}, "letters of delayed flights: 1"),
    "nothing came to be late": (
        {"enriched": [batch(10, *range(8))], "delayed": [], "letters": [],
         "carriers": [batch(12, *range(8))]}, "nothing to check",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), SPOILED.values(), ids=SPOILED)
def test_what_is_wrong_is_said(changes: dict[str, Any], said: str) -> None:
    assert any(each.startswith(said) for each in wrong(**changes)), wrong(**changes)


def beat(subscriber: str, at_s: float, min_time: int = 1) -> dict[str, Any]:
    return {
        "kind": "heard", "subscriber": subscriber, "segment": PULSE, "min_time": min_time,
        "at_ns": int(at_s * 1e9),
    }  # fmt: skip


def test_the_longest_pause_of_any_subscriber_counts_where_something_happens() -> None:
    happened = [
        Happened("added", 1 * 10**9, 2 * 10**9),
        Happened("killed", 5 * 10**9, 6 * 10**9),
        Happened("restarted", 2 * 10**9, 5 * 10**9, to_tracker=False),
        Happened("removed", 9 * 10**9, 10 * 10**9),
    ]
    heard = [beat("a", at) for at in (0, 1, 2, 4.5, 5.2, 7, 8, 10)]
    heard += [beat("b", at / 4) for at in range(44)]
    assert longest_pause(heard, happened, meanwhile=True) == Pause(2.0, ("removed",))
    assert longest_pause(heard, happened, meanwhile=False) == Pause(2.5)
    assert longest_pause(heard[8:], happened, meanwhile=True).seconds == 0.25


def test_the_pipelines_are_those_that_a_change_may_lead_to() -> None:
    check_spec(BEFORE)
    grown = numbered(BEFORE, GROWN)
    check_change(BEFORE, grown)
    shrunk = numbered(grown, SHRUNK)
    check_change(grown, shrunk)
    assert shrunk.removed == ("carriers",) and shrunk.segments == GROWN.segments
