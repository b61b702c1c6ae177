"""What there has to be of changes, or their proof would be one of nothing."""

from __future__ import annotations

from z3 import And, Not

from tests.proof.changes.faults import (
    ACTIVE,
    BOTH_TOLD,
    CHANGED,
    FAULTS,
    KNOWN,
    LABELLED,
    LET_GO,
)
from tests.proof.changes.invariants import PROMISES
from tests.proof.changes.story import ChangingStory
from tests.proof.changes.system import STEPS
from tests.proof.mutations import Mutation
from tests.proof.runs import Run
from tests.proof.situations import Sought, of_each_fault, of_each_step
from tests.proof.systems import CHANGES

SIZES = {
    "shard": 2, "node": 2, "front": 1, "tick": 3, "item": 2, "place": 2, "report": 4, "version": 2,
}  # fmt: skip


def begun(run: Run) -> Run:
    """Out of the beginning, by the first version."""
    run.formulas += run.universe.same(run.now, CHANGES.beginning(run.universe))
    run.formulas.append(run.now.original() == run.universe.things["version"][0])
    return run


def of_so_many(mutation: Mutation | None = None, **sizes: int) -> Run:
    """A run out of the beginning, where all fronts and places are there from the first version on."""
    plants = {} if mutation is None else {mutation.step: mutation.plant}
    run = begun(Run({**SIZES, **sizes}, plants, CHANGES))
    now = run.now
    run.formulas.append(now.every(lambda f, a: And(now.old(f), now.has(now.original(), a))))
    return run


def can_be_taken(step: str) -> Run:
    return Run(SIZES, system=CHANGES).suppose().follow(step)


def whole_change() -> Run:
    """An item has come along a new edge, and is open; announced is what it was made of, and what an old edge led to from where it is."""
    along = f"{ACTIVE} judge/t=2 log_judged/t=2 pass_on/s=1,t=2 {LET_GO} announce_by_edges/p=1 record_all/p=1"
    run = of_so_many(place=3).follow(f"{LABELLED} {KNOWN} {BOTH_TOLD} {along}")
    now, (i, j), (v, v2) = run.now, run.universe.things["item"], run.universe.things["version"]
    p, a, b = run.universe.things["shard"][0], now.at(i), now.at(j)
    run.formulas += [
        now.creator(i) != now.creator(j), now.parent(j) == i, now.came(now.creator(j)), now.recorded(p, a),
        now.leads(v2, a, b), Not(now.leads(v, a, b)), Not(now.came(now.consumer(j))),
    ]  # fmt: skip
    old = lambda a2: And(now.recorded(p, a2), now.leads(v, b, a2), Not(now.leads(v2, b, a2)))  # noqa: E731
    run.formulas.append(now.some(old))
    return run


def one_after_another() -> Run:
    """A second change follows, when the first one is over at the registrar, and is over too; an edge that the first one had taken away is there again."""
    second = """
    decide_change/v=3,v2=2 apply_change/s=1,v=3 apply_change/s=2,v=3
    make_report/s=1,r=5 send_report/r=5 take_report/p=2,r=5 make_report/s=2,r=6 send_report/r=6 take_report/p=1,r=6
    activate/h=1,v=3 log_activation/h=1,v=3 receive_activation/s=2,h=1,v=3
    activate/h=2,v=3 log_activation/h=2,v=3 receive_activation/s=1,h=2,v=3
    make_report/s=2,r=7 send_report/r=7 take_report/p=1,r=7 make_report/s=1,r=8 let_go/p=1,v=3 announce_by_edges/p=1
    """
    run = of_so_many(version=3, report=8, tick=2, item=1).follow(f"{CHANGED} {second}")
    now, (v, v2, v3) = run.now, run.universe.things["version"]
    back = lambda a, b: And(  # noqa: E731
        a != b, now.leads(v, a, b), Not(now.leads(v2, a, b)), now.leads(v3, a, b)
    )
    run.formulas.append(now.some(back))
    return run


def new_segment() -> Run:
    """A front joins what a change has added, is granted, and labels an item there."""
    joins = """
    put_out/t=1 judge_labels/t=1 log_judged/t=1 pass_on/s=2,t=1
    make_report/s=2,r=3 record_all/p=2 send_report/r=3 take_report/p=1,r=3 make_report/s=1,r=4 record_all/p=1
    grant_by_pins/h=1 put_out/t=2 judge_labels/t=2
    """
    run = begun(Run(SIZES, system=CHANGES)).follow(f"{KNOWN} {BOTH_TOLD} {ACTIVE} {joins}")
    now, i, (v, v2) = run.now, run.universe.things["item"][0], run.universe.things["version"]
    new = And(now.has(v2, now.at(i)), Not(now.has(v, now.at(i))))
    run.formulas += [now.accepted(now.creator(i)), now.labels(now.creator(i)), new]
    return run


def promises_alone() -> Run:
    """Nothing is known but the promises."""
    return Run(SIZES, system=CHANGES).suppose(PROMISES).follow("judge").breaks(PROMISES[0])


def mutated(mutation: Mutation) -> Run:
    return of_so_many(mutation, **mutation.sizes).follow(mutation.story).breaks(mutation.breaks)


SITUATIONS = [
    *of_each_step(STEPS, can_be_taken),
    Sought(
        "a whole change",
        "An item comes along a new edge, and an old one counts no more.",
        whole_change,
        story=ChangingStory,
    ),
    Sought(
        "one change after another",
        "Two changes follow one another.",
        one_after_another,
        story=ChangingStory,
    ),
    Sought(
        "a new segment",
        "A front joins what a change has added.",
        new_segment,
        story=ChangingStory,
    ),
    Sought(
        "promises of changes alone",
        "Without the other invariants the promises do not keep themselves.",
        promises_alone,
        told=False,
    ),
    *of_each_fault(FAULTS, mutated, ChangingStory),
]
