"""A place that an evicted front has left holds its segment, unless nobody could label anything in it; a new segment waits for
its first front, unless it was fed by what its pipeline was where a front joined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.oracle import VACANT, frontier
from tests.simulation.world import World
from tracker.core.model import Edge, PipelineSpec, SilentFront
from tracker.core.model.slots import FOREVER

FIRST, LATE = ("first", "a"), ("late", "b")
SPEC = PipelineSpec(
    "p", ("work", "aside", "behind"), (Edge("aside", "behind", 3),), fronts=("a",),
    silent_front=SilentFront.EVICT, evict_after_ms=12,
)  # fmt: skip
ASIDE = {1, 2}


@pytest.fixture
def world() -> World:
    """A pipeline that has begun, with a front in `work` that may label from 5 on."""
    world = World(SPEC)
    world.front_joins(FIRST, 0)
    world.front_granted(FIRST, 5)
    return world


def test_a_place_that_was_left_vacant_is_not_done(world: World) -> None:
    world.front_joins(LATE, 1)
    world.front_evicted("late", keeps_places=True)
    assert frontier(world) == [5, VACANT, VACANT + 3]


def test_nobody_labels_anything_where_a_process_had_not_heard_of_the_front(world: World) -> None:
    """It says complete before that is evicted, or behind it."""
    world.front_joins(LATE, 1)
    world.called_complete(ASIDE, known={FIRST})
    world.front_evicted("late", keeps_places=True)
    assert frontier(world) == [5, FOREVER, FOREVER]
    assert not world.vacant_segments()

    world = World(SPEC)
    world.front_joins(FIRST, 0)
    world.front_joins(LATE, 1)
    world.front_evicted("late", keeps_places=True)
    world.called_complete(ASIDE, known={FIRST})
    assert frontier(world)[1:] == [FOREVER, FOREVER]


def test_nor_does_who_joins_what_was_called_complete_before(world: World) -> None:
    world.called_complete(ASIDE, known={FIRST})
    world.front_joins(LATE, 1)
    world.front_evicted("late", keeps_places=True)
    assert frontier(world) == [5, FOREVER, FOREVER]


def test_an_eviction_completes_nothing_at_a_process_that_knows_of_it(world: World) -> None:
    world.front_joins(LATE, 1)
    world.front_evicted("late", keeps_places=True)
    world.called_complete(ASIDE, known={FIRST, LATE})
    assert frontier(world)[1] == VACANT, "what it says is false"


@pytest.mark.parametrize("slot", [7, FOREVER])
def test_who_was_let_in_leaves_a_place_whoever_says_what(world: World, slot: int) -> None:
    """Every process had to know of it then; but it is let in at the end of time where one had not."""
    world.front_joins(LATE, 1)
    world.front_granted(LATE, slot)
    world.front_forgets(LATE)
    world.called_complete(ASIDE, known={FIRST})
    world.front_evicted("late", keeps_places=True)
    assert frontier(world)[1] == (VACANT if slot < FOREVER else FOREVER)


@pytest.mark.parametrize(("by", "waits"), [(1, False), (2, True)])
def test_who_joins_before_its_home_goes_by_a_cut_has_fed_what_is_cut_apart(
    world: World, by: int, *, waits: bool
) -> None:
    """The home of the front says in its log by which change it went."""
    grown = replace(SPEC, segments=(*SPEC.segments, "new", "behind new"))
    fed = replace(grown, edges=(*SPEC.edges, Edge("new", "behind new", 1)))
    world.change(fed, 1)
    world.change(grown, 2)
    assert world.waiting == {3, 4}
    world.front_joins(LATE, 3)
    world.joins_by(by, [3])
    assert world.waiting == ({4} if waits else set())


def test_who_joins_as_a_segment_is_to_be_removed_feeds_it_if_it_stays(world: World) -> None:
    world.change(replace(SPEC, segments=(*SPEC.segments, "new")), 1)
    assert world.waiting == {3}
    world.joins_by(1, [3])
    assert not world.waiting
