"""Latency is measured from the last commit that an announcement needed, and from no other."""

from __future__ import annotations

import math

import pytest

from examples.latency import notification_latencies_ms, percentile
from tests.check.sound import Line, heard, line, tick
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER

MS = 1_000_000
SPEC = PipelineSpec("p", ("read", "sum"), (Edge("read", "sum", 1),), fronts=("F",), start_slot=5)


def promise(at_ns: int, number: int, slot: int) -> Line:
    return tick(at_ns, "F", number) | {"promises": [["F", slot]]}


def leave(at_ns: int, number: int) -> Line:
    return tick(at_ns, "F", number) | {"leaves": ["F"]}


def consume(at_ns: int, number: int, segment: str, slot: int) -> Line:
    return tick(at_ns, "query", number, consumed=[[segment, slot, 1]])


def latencies(*lines: Line) -> list[float]:
    return notification_latencies_ms(SPEC, {"F": "read"}, lines)


def test_the_last_consumption_below_counts() -> None:
    lines = [promise(1 * MS, 1, 9), consume(5 * MS, 1, "read", 7), consume(20 * MS, 2, "read", 8)]
    assert latencies(*lines, heard(8 * MS, "read", 8)) == [3.0]
    assert latencies(*lines, heard(26 * MS, "read", 9)) == [6.0]


def test_the_first_sufficient_promise_counts() -> None:
    lines = [promise(1 * MS, 1, 6), promise(4 * MS, 2, 8), promise(9 * MS, 3, 9)]
    assert latencies(*lines, heard(6 * MS, "read", 7)) == [2.0]


def test_an_edge_shifts_what_is_needed_by_its_delay() -> None:
    lines = [promise(1 * MS, 1, 9), consume(5 * MS, 1, "read", 7), consume(6 * MS, 2, "sum", 8)]
    assert latencies(*lines, heard(10 * MS, "sum", 8)) == [9.0]
    assert latencies(*lines, heard(10 * MS, "sum", 9)) == [4.0]


def test_leaving_promises_everything() -> None:
    lines = [promise(1 * MS, 1, 9), leave(7 * MS, 2)]
    assert latencies(*lines, heard(8 * MS, "read", FOREVER)) == [1.0]


def test_the_start_and_the_pipeline_as_a_whole_are_not_measured() -> None:
    assert latencies(promise(1, 1, 9), heard(2, "read", 5), heard(3, None, 6)) == []


def test_the_order_of_the_lines_does_not_matter() -> None:
    lines = [
        line("header", 0),
        promise(1 * MS, 1, 9),
        consume(5 * MS, 1, "read", 7),
        heard(8 * MS, "read", 8),
    ]
    assert latencies(*lines[::-1]) == latencies(*lines) == [3.0]


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 2), (75, 3), (99, 4), (100, 4)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    assert percentile([4, 2, 3, 1], percent) == expected


def test_of_no_values_there_is_no_percentile() -> None:
    assert math.isnan(percentile([], 50))
