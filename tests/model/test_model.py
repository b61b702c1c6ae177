"""Short runs of the exhaustive model: small stories whole, and each invariant able to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from tests.model.evictions import IS_RETIRED
from tests.model.explore import explore
from tests.model.invariants import (
    Violation,
    check_announced,
    check_cut,
    check_process,
    check_step,
)
from tests.model.moves import SmallMove, explore_move
from tests.model.script import CUT, STORIES, SYSTEMS, Story, frontier
from tests.model.shards import JOINS, LEAVES, ShardStory
from tests.model.transitions import Facts
from tests.model.world import World
from tests.simulation.faults import FAULTS
from tracker.core.cut.graph import SegmentGraph
from tracker.core.cut.stable import StableCut
from tracker.core.log import EndMove
from tracker.core.log.losses import Move
from tracker.core.model.placements import Placement
from tracker.core.model.slots import FOREVER
from tracker.core.moving import driver
from tracker.core.moving.driver import Ask
from tracker.core.pipeline import pipeline
from tracker.core.process import Process
from tracker.core.replication.replication import Replication
from tracker.core.rescaling.hand_over import HandOver
from tracker.core.shard.shard import ShardPipeline
from tracker.core.shard.vacancies import Vacancies

MOST_STATES = 50_000


@pytest.mark.parametrize(
    "story",
    [
        Story("the worker's first tick, a crash", (2, 0), (2, 1), 1),
        Story("the front's ticks", (0, 0), (2, 0), 0),
        STORIES[0],
        JOINS,
        LEAVES,
        IS_RETIRED,
        Story("an edge is taken away behind the first step of each", (2, 1), (2, 1), 0, change=CUT),
    ],
    ids=lambda story: story.name,
)
def test_every_interleaving_of_a_short_story_holds(story: Story | ShardStory) -> None:
    seen = explore(story, most_states=MOST_STATES)
    assert not seen.violation, seen.trace
    assert seen.whole and seen.states > 100 and seen.ends


ALL_COMMITTED = SmallMove(1, 0, attempts=1, begins=(4, 1))


def test_whatever_happens_to_a_move_it_ends_in_one_group() -> None:
    seen = explore_move(ALL_COMMITTED, most_states=MOST_STATES)
    assert not seen.violation, seen.trace
    assert seen.whole and seen.states > 1_000 and seen.ends


@pytest.mark.parametrize(
    ("fault", "violation"),
    [
        ("the group before goes on, whatever was decided", "it is in both groups"),
        ("nobody ends a move", "the end cannot be reached"),
    ],
)
def test_a_move_that_ends_otherwise_is_found(fault: str, violation: str) -> None:
    def wrong(move: Move, own: int, placement: Placement, there: int | None) -> Iterator[Ask]:
        if "before" in fault:
            yield Ask(own, EndMove(None, "p", move.number, placement.version, here=True))

    with mock.patch.object(driver, "_end", wrong):
        seen = explore_move(ALL_COMMITTED, most_states=MOST_STATES)
    assert seen.violation == violation and seen.trace


def test_the_stories_are_told_to_the_end_by_one_of_their_interleavings() -> None:
    for story in STORIES:
        world = World(story)
        state = world.initial()
        while True:
            steps = [take for name, take in world.steps(state) if "crashes" not in name]
            if not steps:
                break
            state = world.renumbered(steps[-1]())
        due = frontier(story.last, story.last, story.change)
        assert [facts.said for facts in world.facts(state)] == [due] * story.shards


def test_what_one_shard_told_before_it_was_durable_has_to_be_found_again() -> None:
    story = STORIES[0]
    assert (story.shards, story.crashes) == (1, 2)
    with mock.patch.object(Process, "_resume", lambda *_: None):
        seen = explore(story, most_states=MOST_STATES)
    assert "had said" in seen.violation, (
        "recovery leaves it to what comes next, and says less until then"
    )


def test_an_edge_that_counts_no_more_at_once_is_found() -> None:
    story = next(story for story in STORIES if story.change == CUT and story.shards == 2)
    with mock.patch.object(pipeline, "united", lambda spec, _: SegmentGraph(spec)):
        seen = explore(story, most_states=MOST_STATES)
    assert "announces" in seen.violation and seen.trace


@pytest.mark.parametrize(
    ("story", "where", "what", "violation"),
    [
        (replace(JOINS, crashes=0, last=(2, 1)), StableCut, "need", "shard 1 could announce"),
        (LEAVES, HandOver, "give_cells", "is another shard's"),
        (LEAVES, ShardPipeline, "take_cells", "due is"),
        (LEAVES, Replication, "split_by", "due is"),
        (IS_RETIRED, Vacancies, "evicted", f"announces {FOREVER} for segment 0"),
    ],
    ids=[
        "a newcomer announces before it has heard all that count it",
        "nothing is handed over",
        "what is handed over is dropped",
        "a home goes on splitting by the table before",
        "eviction is taken for leaving",
    ],
)
def test_what_a_process_leaves_out_when_shards_and_fronts_come_and_go_is_found(
    story: ShardStory, where: type, what: str, violation: str
) -> None:
    with mock.patch.object(where, what, lambda *_: None):
        seen = explore(story, most_states=MOST_STATES)
    assert violation in seen.violation and seen.trace


def test_cells_on_their_way_that_hold_nothing_are_found() -> None:
    """The vector passes their hand-over as if they had arrived."""

    def without_touching(move: Callable[..., None]) -> Callable[..., None]:
        def moves(*what: Any) -> None:
            with mock.patch.object(ShardPipeline, "_touch", lambda *_: None):
                move(*what)

        return moves

    with (
        mock.patch.object(ShardPipeline, "give_cells", without_touching(ShardPipeline.give_cells)),
        mock.patch.object(ShardPipeline, "take_cells", without_touching(ShardPipeline.take_cells)),
    ):
        seen = explore(LEAVES, most_states=MOST_STATES)
    assert "in flight at its M" in seen.violation and seen.trace


def test_a_planted_fault_is_found() -> None:
    with FAULTS["no-duplicate-check"]():
        story = Story("the worker's first tick, a crash", (2, 0), (2, 1), 1)
        seen = explore(story, most_states=MOST_STATES)
    assert seen.violation and seen.trace


@pytest.fixture(scope="module")
def facts() -> list[Facts]:
    """Of both processes, when the front's item is there and nothing else."""
    world = World(Story("the front's ticks are done", (2, 0), (2, 1), 0))
    return world.facts(world.initial())


def test_an_early_announcement_is_a_violation(facts: list[Facts]) -> None:
    check_announced(facts, frontier((2, 0), (2, 1)))
    early = replace(facts[1], said=(1, 0))
    with pytest.raises(Violation, match="announces 1 for segment 0"):
        check_announced([facts[0], early], frontier((2, 0), (2, 1)))


def test_an_announcement_that_goes_back_is_a_violation(facts: list[Facts]) -> None:
    before = [facts[0], replace(facts[1], said=(1, 0))]
    with pytest.raises(Violation, match="now says"):
        check_step(before, facts)


def test_a_wrong_cell_is_a_violation(facts: list[Facts]) -> None:
    for shard, each in enumerate(facts):
        check_process(shard, each, SYSTEMS[2])
        with pytest.raises(Violation, match="due is"):
            check_process(shard, replace(each, cells={(1, 1): 7}), SYSTEMS[2])


def test_a_cut_ahead_of_a_shard_is_a_violation(facts: list[Facts]) -> None:
    check_cut(facts)
    ahead = replace(facts[0], cut=tuple(number + 1 for number in facts[0].cut))
    with pytest.raises(Violation, match="applied by all"):
        check_cut([ahead, facts[1]])


def test_a_candidate_beyond_an_item_in_flight_is_a_violation(facts: list[Facts]) -> None:
    for shard, each in enumerate(facts):
        with pytest.raises(Violation, match="in flight at its M"):
            check_process(shard, replace(each, candidates=[1, 0]), SYSTEMS[2])
