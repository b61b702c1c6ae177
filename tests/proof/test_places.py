"""Places stand for segments and slots as `SegmentGraph` has them (rules 7, 8 and 12)."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import add_delay
from tracker.core.pipeline.change import united

SEGMENTS, SLOTS = "abc", range(-1, 4)
PLACES = [*product(range(len(SEGMENTS)), SLOTS)]
Place = tuple[int, int]

edges = st.tuples(st.sampled_from(SEGMENTS), st.sampled_from(SEGMENTS), st.integers(0, 3))
graphs = st.lists(edges, max_size=5, unique_by=lambda edge: edge[:2]).map(
    lambda chosen: PipelineSpec("p", tuple(SEGMENTS), tuple(Edge(*edge) for edge in chosen))
)
lows = st.lists(st.sampled_from(SLOTS), min_size=len(SEGMENTS), max_size=len(SEGMENTS))


def reaches(graph: SegmentGraph, a: Place, b: Place) -> bool:
    """What the proof calls by that name."""
    return add_delay(a[1], graph.distance(a[0], b[0])) <= b[1]


@given(graphs)
def test_a_place_reaches_itself_and_what_is_reached_by_what_it_reaches(spec: PipelineSpec) -> None:
    graph = SegmentGraph(spec)
    assert all(reaches(graph, a, a) for a in PLACES)
    for a, b, further in product(PLACES, repeat=3):
        if reaches(graph, a, b) and reaches(graph, b, further):
            assert reaches(graph, a, further)


@given(graphs)
def test_a_place_reaches_where_its_items_may_go_along_an_edge(spec: PipelineSpec) -> None:
    graph, number = SegmentGraph(spec), {name: place for place, name in enumerate(spec.segments)}
    for edge, slot in product(spec.edges, SLOTS):
        for entered in range(slot + edge.delay, slot + edge.delay + 3):
            assert reaches(graph, (number[edge.source], slot), (number[edge.target], entered))


@given(graphs, lows)
def test_min_times_announce_the_places_that_nothing_reaches(
    spec: PipelineSpec, own: list[int]
) -> None:
    graph = SegmentGraph(spec)
    min_times = graph.min_times(own)
    held = [a for a in PLACES if a[1] >= own[a[0]]]
    for segment, slot in PLACES:
        announced = slot < min_times[segment]
        assert announced == (not any(reaches(graph, a, (segment, slot)) for a in held))


@given(graphs, graphs, lows)
def test_nothing_leads_into_what_an_old_and_a_new_graph_announce(
    before: PipelineSpec, after: PipelineSpec, own: list[int]
) -> None:
    """By no edge of either one from outside, and nothing that is held is among it."""
    gone = tuple(edge for edge in before.edges if edge not in after.edges)
    min_times = united(after, gone).min_times(own)
    announced = {(u, t) for u, t in PLACES if t < min_times[u]}
    assert all(t < own[u] for u, t in announced)
    for edge, t, entered in product(before.edges + after.edges, SLOTS, SLOTS):
        source, target = SEGMENTS.index(edge.source), SEGMENTS.index(edge.target)
        if t + edge.delay <= entered and (target, entered) in announced:
            assert (source, t) in announced


@given(graphs, lows, st.sampled_from(range(len(SEGMENTS))))
def test_a_pin_rules_out_the_places_that_reach_announced_ones(
    spec: PipelineSpec, announced: list[int], fed: int
) -> None:
    graph = SegmentGraph(spec)
    pin = graph.pin(announced, fed)
    told = [(segment, below - 1) for segment, below in enumerate(announced)]
    for slot in SLOTS:
        assert (slot < pin) == any(reaches(graph, (fed, slot), b) for b in told)
