"""How the min time of one segment bounds another's, on every shape of graph."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.graphs import reachable_lows
from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT


def spec_of(segments: str, *edges: tuple[str, str, int]) -> PipelineSpec:
    return PipelineSpec("p", tuple(segments), tuple(Edge(*edge) for edge in edges))


CHAIN = spec_of("abc", ("a", "b", 0), ("b", "c", 5))
FORK = spec_of("abc", ("a", "b", 2), ("a", "c", 7))
JOIN = spec_of("abc", ("a", "c", 1), ("b", "c", 10))
DIAMOND = spec_of("abcd", ("a", "b", 1), ("a", "c", 4), ("b", "d", 9), ("c", "d", 2))
SELF_LOOP = spec_of("ab", ("a", "a", 3), ("a", "b", 0))
ZERO_CYCLE = spec_of("abc", ("a", "b", 0), ("b", "a", 0), ("b", "c", 0))
SLOW_CYCLE = spec_of("abc", ("a", "b", 2), ("b", "c", 2), ("c", "a", 2))
APART = spec_of("abc", ("a", "b", 0))


@pytest.mark.parametrize(
    ("spec", "own", "expected"),
    [
        # What is behind holds what is ahead, by the delay between them.
        (CHAIN, [10, 20, 30], [10, 10, 15]),
        (CHAIN, [10, FOREVER, FOREVER], [10, 10, 15]),
        # What is ahead does not hold what is behind.
        (CHAIN, [50, FOREVER, 1], [50, 50, 1]),
        (FORK, [10, FOREVER, FOREVER], [10, 12, 17]),
        # A join waits for the slower of its ways.
        (JOIN, [10, 0, FOREVER], [10, 0, 10]),
        (JOIN, [5, 0, FOREVER], [5, 0, 6]),
        # Of two ways to one segment the shorter counts.
        (DIAMOND, [0, FOREVER, FOREVER, FOREVER], [0, 1, 4, 6]),
        (DIAMOND, [FOREVER, 0, FOREVER, FOREVER], [FOREVER, 0, FOREVER, 9]),
        # A segment's own low holds it whatever its loop's delay.
        (SELF_LOOP, [10, 40], [10, 10]),
        # In a cycle of zero delay all wait for the slowest.
        (ZERO_CYCLE, [30, 10, FOREVER], [10, 10, 10]),
        (ZERO_CYCLE, [30, 40, 5], [30, 30, 5]),
        # A cycle with delay: an item needs time to come round.
        (SLOW_CYCLE, [10, FOREVER, FOREVER], [10, 12, 14]),
        (SLOW_CYCLE, [FOREVER, 10, 11], [13, 10, 11]),
        # What cannot be reached is not held.
        (APART, [10, FOREVER, FOREVER], [10, 10, FOREVER]),
        (APART, [FOREVER, FOREVER, 3], [FOREVER, FOREVER, 3]),
        # Overflow is forever, and slots may be negative.
        (
            CHAIN,
            [HIGHEST_SLOT, HIGHEST_SLOT - 2, FOREVER],
            [HIGHEST_SLOT, HIGHEST_SLOT - 2, FOREVER],
        ),
        (CHAIN, [LOWEST_SLOT, 0, 0], [LOWEST_SLOT, LOWEST_SLOT, LOWEST_SLOT + 5]),
    ],
)
def test_min_times(spec: PipelineSpec, own: list[int], expected: list[int]) -> None:
    assert SegmentGraph(spec).min_times(own) == expected
    assert reachable_lows(spec, own) == expected


@st.composite
def specs(draw: st.DrawFn) -> PipelineSpec:
    size = draw(st.integers(1, 16))
    names = tuple(f"s{n}" for n in range(size))
    delays = st.integers(0, 5) | st.sampled_from([2**58 - 1, 2**58])
    ends = st.sampled_from(names)
    edges = draw(st.lists(st.builds(Edge, ends, ends, delays), max_size=2 * size))
    return PipelineSpec("p", names, tuple(edges))


owns = st.integers(-20, 20) | st.sampled_from([LOWEST_SLOT, LOWEST_SLOT + 1, HIGHEST_SLOT, FOREVER])


@settings(max_examples=300, deadline=None)
@given(specs(), st.data())
def test_any_graph_agrees_with_repeating_its_edges(spec: PipelineSpec, data: st.DataObject) -> None:
    size = len(spec.segments)
    own = data.draw(st.lists(owns, min_size=size, max_size=size))
    assert SegmentGraph(spec).min_times(own) == reachable_lows(spec, own)


@settings(max_examples=300, deadline=None)
@given(specs(), st.data())
def test_a_pin_is_the_lowest_slot_that_breaks_no_announcement(
    spec: PipelineSpec, data: st.DataObject
) -> None:
    """An item put in at the pin appears nowhere below what was announced; one lower would. In another segment that is complete none
    can appear."""
    size = len(spec.segments)
    slots = st.integers(-20, 20) | st.just(FOREVER)
    announced = data.draw(st.lists(slots, min_size=size, max_size=size))
    segment = data.draw(st.integers(0, size - 1))
    pin = SegmentGraph(spec).pin(announced, segment)

    def breaks(slot: int) -> bool:
        own = [slot if u == segment else FOREVER for u in range(size)]
        lows = reachable_lows(spec, own)
        return any(
            lows[u] < announced[u] for u in range(size) if u == segment or announced[u] != FOREVER
        )

    assert not breaks(pin)
    assert pin == LOWEST_SLOT or breaks(pin - 1)


def test_distances_and_reach() -> None:
    graph = SegmentGraph(DIAMOND)
    assert graph.distance(0, 3) == 6
    assert graph.distance(3, 0) == FOREVER
    assert graph.distance(2, 2) == 0
    assert graph.reached_from(0) == [0, 1, 2, 3]
    assert graph.reached_from(3) == [3]


def test_what_leads_into_a_segment_is_what_reaches_it() -> None:
    graph = SegmentGraph(DIAMOND)
    assert graph.ways_into(3) == [(0, 6), (1, 9), (2, 2), (3, 0)]
    assert graph.ways_into(0) == [(0, 0)]


@settings(max_examples=200, deadline=None)
@given(specs())
def test_ways_into_a_segment_are_the_distances_to_it(spec: PipelineSpec) -> None:
    graph = SegmentGraph(spec)
    for target in range(graph.size):
        distances = [(u, graph.distance(u, target)) for u in range(graph.size)]
        assert graph.ways_into(target) == [way for way in distances if way[1] != FOREVER]


@settings(max_examples=200, deadline=None)
@given(specs(), st.data())
def test_what_any_of_some_segments_lead_to(spec: PipelineSpec, data: st.DataObject) -> None:
    graph = SegmentGraph(spec)
    sources = data.draw(st.sets(st.integers(0, graph.size - 1)))
    each = {v for u in sources for v in graph.reached_from(u)}
    assert graph.all_reached_from(sources) == each


def test_a_long_chain_costs_memory_by_its_edges() -> None:
    """It has been a number for each pair of segments, found when the pipeline was registered."""
    names = tuple(f"s{n}" for n in range(1_000))
    edges = tuple(Edge(*pair, 3) for pair in itertools.pairwise(names))
    tracemalloc.start()
    try:
        graph = SegmentGraph(PipelineSpec("p", names, edges))
        assert graph.min_times([7, *[FOREVER] * 999])[999] == 7 + 3 * 999
        assert graph.pin([10] * 1_000, 998) == 10
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000 * len(names)
    assert graph.distance(0, 999) == 3 * 999 and graph.distance(999, 0) == FOREVER
    assert graph.reached_from(997) == [997, 998, 999]
