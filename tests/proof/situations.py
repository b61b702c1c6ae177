"""What there has to be, or the proof would be one of nothing: steps that can be taken, a run that announces, faults that are found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

from tests.proof.invariants import PROMISES
from tests.proof.mutations import (
    BOTH,
    CAUGHT_UP,
    COUNTED,
    GONE,
    HEARD,
    JOINED,
    MUTATIONS,
    TICK,
    Mutation,
)
from tests.proof.protocol import STEPS
from tests.proof.runs import Run
from tests.proof.story import Story, Told

TIMEOUT_MS = 300_000
WHOLE_RUN = f"""
tell_before begin_generation {JOINED} {BOTH} {BOTH} {CAUGHT_UP} record tell sweep snapshot crash report hear_whole announce
begin_later_generation
"""
"""Every step that there is but those by which shards come: a pipeline is restarted, a front joins, labels an item, a worker consumes it, and a place is announced, recorded and told; a process crashes, comes
back, announces again, and hears of the next restart."""

NEWCOMER = f"{COUNTED} give_slots {JOINED} {BOTH} {BOTH} {HEARD} record tell"
"""A shard begins and joins, and announces what was in its own cells."""
LEAVER = f"{JOINED} {BOTH} {BOTH} {CAUGHT_UP} record tell/p=2 {GONE} {BOTH} report announce/p=1 record tell/p=1"
"""A shard that has kept an item announces, and leaves; and the other one goes on by itself."""
LATE = f"{JOINED} publish {BOTH} {CAUGHT_UP} record {TICK} sweep"


@dataclass(frozen=True)
class Sought:
    """A situation to look for. breaks: the invariant that is false in its end; told: whether its story is worth telling, and story: how."""

    name: str
    says: str
    run: Callable[[], Run]
    breaks: str | None = None
    told: bool = True
    story: Callable[[Run, z3.Solver], Told] = Story


@dataclass(frozen=True)
class Situation:
    """What came of it."""

    name: str
    says: str
    said: str
    seconds: float
    story: tuple[str, ...]

    @property
    def found(self) -> bool:
        return self.said == "sat"


def can_be_taken(step: str) -> Run:
    return Run().suppose().follow(step)


def whole_run() -> Run:
    """Something is announced behind an item that was there, and that another node has consumed."""
    run = Run({"report": 5}).begin(restarted=True).follow(WHOLE_RUN)
    now, i = run.now, run.universe.things["item"][0]
    run.formulas += [now.some(lambda p: now.told(p, now.at(i))), *_was_there(run, i)]
    run.formulas.append(z3.Not(now.late(i)))
    return run


def _was_there(run: Run, i: Any) -> list[Any]:
    """A front has labelled the item, and another node has consumed it."""
    now, t, u = run.now, run.now.creator(i), run.now.consumer(i)
    return [
        now.labelled(i),
        now.published(t),
        now.by(t) != now.by(u),
        now.by(t) == now.by(now.joins(now.labeller(i))),
    ]


def leaver() -> Run:
    """A shard that owns an item, which another node consumes, announces the place behind it and leaves; another one announces more."""
    sizes = {"report": 5, "whole": 2, "item": 3, "tick": 5, "place": 3}
    run = Run(sizes).begin(rescaled=True).follow(LEAVER)
    now, (i, j, *_) = run.now, run.universe.things["item"]
    p, s = run.universe.things["shard"]
    more = z3.And(now.told(p, now.at(j)), z3.Not(now.told(s, now.at(j))), z3.Not(now.late(j)))
    run.formulas += [now.told(s, now.at(i)), now.owner(i) == s, *_was_there(run, i), more]
    run.formulas += [z3.Not(now.late(i)), now.published(now.creator(j))]
    return run


def something_late() -> Run:
    """What an evicted front has published, and nobody accepts, is consumed behind min time."""
    run = Run({"report": 4}).begin().follow(LATE)
    before, now, i = run.moments[-2].after, run.now, run.universe.things["item"][0]
    run.formulas += [
        now.abandoned(now.creator(i)),
        before.open(i),
        z3.Not(now.open(i)),
        *_was_there(run, i),
    ]
    return run


def newcomer() -> Run:
    """A shard that has joined owns an item, which another node consumes, and announces the place behind it."""
    run = Run({"report": 4, "whole": 2}).begin(rescaled=True, joining=1).follow(NEWCOMER)
    now, i = run.now, run.universe.things["item"][0]
    s = run.universe.things["shard"][1]
    run.formulas += [now.told(s, now.at(i)), now.owner(i) == s, *_was_there(run, i)]
    run.formulas.append(z3.Not(now.late(i)))
    return run


def promise_alone() -> Run:
    """Nothing is known but the promises."""
    return Run().suppose(PROMISES).follow("announce").breaks(PROMISES[0])


def mutated(mutation: Mutation) -> Run:
    run = Run(mutation.sizes, {mutation.step: mutation.plant})
    run.begin(
        restarted=mutation.restarted, rescaled=mutation.stage == "d", joining=mutation.joining
    )
    return run.follow(mutation.story).breaks(mutation.breaks)


def of_each_step(steps: Iterable[str], run: Callable[[str], Run]) -> Iterator[Sought]:
    """That it can be taken."""
    says = "It can be taken in a state that the invariants admit."
    return (Sought(step, says, partial(run, step), told=False) for step in steps)


def of_each_fault(
    faults: Mapping[str, Mutation],
    run: Callable[[Mutation], Run],
    story: Callable[[Run, z3.Solver], Told] = Story,
) -> Iterator[Sought]:
    """That it breaks what it is to break."""
    for each in faults.values():
        says = f"({each.stage}, rule {each.rule}) {each.says}"
        yield Sought(each.name, says, partial(run, each), each.breaks, story=story)


SITUATIONS = [
    *of_each_step(STEPS, can_be_taken),
    Sought("a whole run", "Something is announced, and told.", whole_run),
    Sought("a newcomer", "A shard joins, and announces behind what it has kept.", newcomer),
    Sought("a leaver", "A shard announces, and leaves; another one goes on from there.", leaver),
    Sought("something late", "A sweep takes what is late out of its cell.", something_late),
    Sought(
        "a promise alone",
        "Without the other invariants promise 1 does not keep itself.",
        promise_alone,
        told=False,
    ),
    *of_each_fault(MUTATIONS, mutated),
]


def search(sought: Sought) -> Situation:
    """Has a solver look for a situation. What it finds is checked: a model is held against every formula."""
    began = time.monotonic()
    run = sought.run()
    solver = z3.Solver()
    solver.set("timeout", TIMEOUT_MS)
    solver.add(*run.formulas)
    said = str(solver.check())
    story: tuple[str, ...] = ()
    if said == "sat":
        model = solver.model()
        assert all(z3.is_true(model.eval(formula, True)) for formula in run.formulas)
        story = tuple(sought.story(run, solver).lines(sought.breaks)) if sought.told else ()
    return Situation(sought.name, sought.says, said, round(time.monotonic() - began, 1), story)
