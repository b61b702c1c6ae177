"""What there has to be of moves, or their proof would be one of nothing."""

from __future__ import annotations

from typing import Any

from z3 import And

from tests.proof.groups.faults import ANNOUNCE, FAULTS, GIVEN_UP, MOVED, THERE_AND_BACK, TICK
from tests.proof.groups.invariants import PROMISES
from tests.proof.groups.story import MovingStory
from tests.proof.groups.system import STEPS, goes_on
from tests.proof.mutations import Mutation
from tests.proof.runs import Run
from tests.proof.situations import Sought, of_each_fault, of_each_step
from tests.proof.systems import GROUPS

SIZES = {"group": 2, "version": 3, "move": 2, "letter": 1, "tick": 1, "place": 1}


def of_so_many(mutation: Mutation | None = None, **sizes: int) -> Run:
    """A run out of the beginning, where the pipeline is by placement 1."""
    plants = {} if mutation is None else {mutation.step: mutation.plant}
    run = Run({**SIZES, **sizes}, plants, GROUPS)
    run.formulas += run.universe.same(run.now, GROUPS.beginning(run.universe))
    run.formulas.append(run.now.start() == run.universe.things["version"][0])
    return run


def can_be_taken(step: str) -> Run:
    return Run(SIZES, system=GROUPS).suppose().follow(step)


def _counts_all(run: Run, version: int) -> Run:
    """Ticks that were acknowledged count, and what was told is announced, where the pipeline goes on: in the group of that placement."""
    things = run.universe.things
    ticks, place, v = things["tick"], things["place"][0], things["version"][version - 1]
    now = run.now

    def there(g: Any) -> Any:
        counted = And([And(now.acknowledged(t), now.counted(g, t)) for t in ticks])
        told = And(now.told(place), now.recorded(g, place))
        return And(goes_on(now, g), now.placed(g, v), counted, told)

    run.formulas.append(now.some(there))
    return run


def whole_move() -> Run:
    run = of_so_many(tick=2).follow(
        f"take_tick/t=1 log_tick acknowledge {ANNOUNCE} {MOVED} take_tick/t=2 log_tick acknowledge/t=2"
    )
    run.formulas.append(
        run.now.in_group(run.now.start()) != run.now.in_group(run.universe.things["version"][1])
    )
    return _counts_all(run, 2)


def given_up() -> Run:
    run = of_so_many(tick=2).follow(
        f"take_tick/t=1 log_tick acknowledge {ANNOUNCE} {GIVEN_UP} take_tick/t=2 log_tick acknowledge/t=2"
    )
    return _counts_all(run, 2)


def there_and_back() -> Run:
    run = of_so_many(move=4, letter=2, tick=2).follow(
        f"take_tick/t=1 log_tick acknowledge {MOVED} take_tick/t=2 log_tick acknowledge/t=2 {ANNOUNCE} "
        + THERE_AND_BACK.removeprefix(MOVED)
    )
    return _counts_all(run, 3)


def late_letter() -> Run:
    """Who has read a pipeline for a move that is over asks the group from which it has gone on to begin to take it; that is dropped."""
    run = of_so_many(move=5, letter=2)
    late = "begin_to_come/m=5,l=1 keep_known/m=5,l=1 keep_cells/m=5,l=1 be_ready/m=5 look/m=5,v=3 drop/m=5"
    return run.follow(f"{THERE_AND_BACK} {late} {TICK} {ANNOUNCE}")


def promises_alone() -> Run:
    """Nothing is known but the promises."""
    return Run(SIZES, system=GROUPS).suppose(PROMISES).follow("come").breaks(PROMISES[0])


def mutated(mutation: Mutation) -> Run:
    return of_so_many(mutation, **mutation.sizes).follow(mutation.story).breaks(mutation.breaks)


SITUATIONS = [
    *of_each_step(STEPS, can_be_taken),
    Sought("a whole move", "A pipeline goes to another group.", whole_move, story=MovingStory),
    Sought(
        "a move given up",
        "A pipeline stays, though all of it was kept.",
        given_up,
        story=MovingStory,
    ),
    Sought("there and back", "A pipeline goes, and comes back.", there_and_back, story=MovingStory),
    Sought(
        "a late letter",
        "What was read for a move that is over is kept again, and dropped.",
        late_letter,
        story=MovingStory,
    ),
    Sought(
        "promises of moves alone",
        "Without the other invariants the promises do not keep themselves.",
        promises_alone,
        told=False,
    ),
    *of_each_fault(FAULTS, mutated, MovingStory),
]
