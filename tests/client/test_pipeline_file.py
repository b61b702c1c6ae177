"""Pipeline files and moments as people write them."""

from __future__ import annotations

import pytest

from tracker.client.moments import parse_duration_ns, parse_slot
from tracker.client.pipeline_file import begins_now, group_named, load_pipeline
from tracker.core.model import Edge, PipelineSpec, SilentFront
from tracker.core.model.slots import HIGHEST_SLOT
from tracker.errors import InvalidError

SMALL = "name: p\nsegments: [a, b]\nfronts: 1\n"


def test_what_is_not_said_takes_its_default() -> None:
    assert load_pipeline(SMALL) == PipelineSpec("p", ("a", "b"), front_count=1)


def test_everything_can_be_said() -> None:
    text = """
    name: p
    segments: [a, b]
    edges:
      - a -> b + 5
      - {from: b, to: a}
    fronts: [f, g]
    open: true
    start: 2013-01-01T05:00:00+05:00
    slack: 1s
    horizon_slots: 9
    silent_front: evict
    evict_after: 1.5s
    max_open_cells: 1
    max_open_units: 2
    max_nodes: 3
    max_staged: 4
    """
    assert load_pipeline(text) == PipelineSpec(
        "p", ("a", "b"), (Edge("a", "b", 5), Edge("b", "a", 0)), ("f", "g"), 0, True,
        1_356_998_400, 10**9, 9, SilentFront.EVICT, 1_500, 1, 2, 3, 4,
    )  # fmt: skip


@pytest.mark.parametrize("start", ["2013-01-01", "2013-01-01T00:00:00", "'2013-01-01 00:00'"])
def test_a_start_is_a_moment_however_yaml_reads_it(start: str) -> None:
    assert load_pipeline(SMALL + f"start: {start}\n").start_slot == 135_699_840_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1", "is not YAML"),
        ("3", "must hold one mapping with name, segments and fronts; it holds 3"),
        ("segments: [a]\nfronts: 1", "name: is missing"),
        (SMALL.replace("p", "5", 1), "name: .*string"),
        (SMALL + "colour: red", r"colour: there is no such setting; there are name, .*slack"),
        (SMALL + "edges: [a]", r"edges.0: an edge is written `from -> to`"),
        (SMALL + "edges: [{from: a, too: b}]", r"edges.0.too: .* there are from, to, delay"),
        (SMALL + "edges: [a -> c]", "segment 'c', which is not among its segments"),
        (SMALL.replace("1", "true"), "fronts: fronts are a list of names, or a number"),
        (SMALL.replace("1", "0"), "declares no front and is not open"),
        (SMALL + "open: 1", "open: .*boolean"),
        (SMALL + "start: 5", "start: start is slot:N, an ISO date or time"),
        (SMALL + "start: soon", "start: 'soon' is not a moment"),
        (SMALL + "start: slot:99999999999999999999", "slots are -9223372036854775808 to"),
        (SMALL + "slack: 10", "slack: .*string"),
        (SMALL + "slack: ten ms", "slack: 'ten ms' is not a duration"),
        (SMALL + "slack: 0ms", "slack: must be longer than nothing"),
        (SMALL + "silent_front: shout", "silent_front: .*'hold' or 'evict'.*'shout'"),
        (SMALL + "silent_front: evict", "evict_after_ms must be positive"),
        (SMALL + "max_nodes: -1", "max_nodes is -1; it must be positive"),
        (SMALL + "group: 256", "group: .*less than 256.*256"),
        (SMALL + "group: one", "group: .*integer"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidError, match=f"(?s)^file.yaml.*{says}"):
        load_pipeline(text, "file.yaml")


FILE = """\
name: p
segments:
  - a
  - b
edges:
  - a -> b
  - from: b
    to: a
fronts: [f, {name: g, silent_front: hold}]
"""
ANOTHER = FILE + "silent_front: evict\nslack: 10ms\n"


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        ("- b", "- 5", "line 4, column 5: segments.1: "),
        ("a -> b", "a", "line 6, column 5: edges.0: "),
        ("to: a", "to: 7", "line 8, column 9: edges.1.to: "),
        ("to: a", "too: a", "line 8, column 5: edges.1.too: "),
        ("to: a", "to: c", "line 7, column 5: pipeline 'p': edge 'b' -> 'c' names segment 'c'"),
        ("hold", "shout", "line 9, column 37: fronts.1.silent_front: "),
        ("name: p", "named: p", "line 1, column 1: named: "),
        ("name: p\n", "", "line 1, column 1: name: is missing"),
        ("[f,", "[f, f,", "line 9, column 9: pipeline 'p': "),
        ("- b", "- a", "line 3, column 3: pipeline 'p': "),
        ("evict\n", "evict\nevict_after: soon\n", "line 11, column 14: evict_after: "),
        ("", "", "line 10, column 15: pipeline 'p': silent fronts are to be evicted after 0 ms"),
        ("evict\nslack: 10ms", "hold\nslack: 10y", "line 11, column 8: slack: '10y' is not"),
        ("evict\n", "hold\nmax_nodes: -1\n", "line 11, column 12: pipeline 'p': max_nodes"),
        ("evict\n", "hold\nstart: soon\n", "line 11, column 8: start: 'soon'"),
        ("- a\n", "- [a\n", "line 3, column 5"),
    ],
)
def test_what_is_wrong_is_found_by_its_line_and_column(right: str, wrong: str, place: str) -> None:
    with pytest.raises(InvalidError) as error:
        load_pipeline(ANOTHER.replace(right, wrong, 1) if right else ANOTHER, "p.yaml")
    assert str(error.value).startswith("p.yaml") and place in str(error.value)
    assert "Model" not in str(error.value) and "unicode string" not in str(error.value)


def test_a_start_of_now_is_the_moment_of_registering() -> None:
    assert begins_now(SMALL + "start: now\n") and begins_now(SMALL + "start: ' now '\n")
    assert not begins_now(SMALL) and not begins_now(SMALL + "start: 2026-03-01\n")


def test_a_group_is_where_a_new_pipeline_is_to_live_and_nothing_of_the_pipeline() -> None:
    assert group_named(SMALL + "group: 0\n") == 0 and group_named(SMALL) is None
    assert load_pipeline(SMALL + "group: 3\n") == load_pipeline(SMALL)


@pytest.mark.parametrize(
    ("text", "down", "up"),
    [
        ("slot:-5", -5, -5),
        ("1970-01-01T00:00:01", 100, 100),
        ("1970-01-01T00:00:01.000001Z", 100, 101),
        ("1969-12-31T23:59:59.999", -1, 0),
        ("1970-01-01T01:00:00+01:00", 0, 0),
        ("1970-01-02", 8_640_000, 8_640_000),
    ],
)
def test_a_moment_is_a_slot_rounded_down_or_up(text: str, down: int, up: int) -> None:
    assert parse_slot(text, 10_000_000, 1) == down
    assert parse_slot(text, 10_000_000, 1, up=True) == up


def test_a_slot_that_no_item_can_have_is_refused() -> None:
    assert parse_slot(f"slot:{HIGHEST_SLOT}", 1, 1) == HIGHEST_SLOT
    with pytest.raises(ValueError, match="slots are"):
        parse_slot(f"slot:{HIGHEST_SLOT + 1}", 1, 1)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("10ms", 10**7), ("1.5s", 1_500_000_000), (" 2 h ", 7_200 * 10**9), ("1d", 86_400 * 10**9)],
)
def test_durations_have_a_unit(text: str, nanoseconds: int) -> None:
    assert parse_duration_ns(text) == nanoseconds
