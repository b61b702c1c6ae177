"""The short form of `python -m tests.proof.bridge`: schedules of each kind, what finds a fault, and that formulas are asked as they are meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
import z3

from tests.core.driver import MS, Cluster
from tests.proof.bridge import compiled
from tests.proof.bridge.compiled import Node, kind_of, things_of
from tests.proof.bridge.planted import planted
from tests.proof.bridge.runs import SCALES, hold
from tests.proof.bridge.wider import OUTSIDE, WIDER
from tests.proof.invariants import INVARIANTS
from tests.proof.logic import Step, Universe
from tests.proof.obligations import Proof, by_z3
from tests.proof.protocol import STEPS, VOCABULARY
from tracker.core.log import Entries, ShardReport, Wake
from tracker.core.model import PipelineSpec

SIZES = dict.fromkeys(compiled.sorts(), 2)


def test_every_step_of_a_run_is_one_of_the_system() -> None:
    held = [hold(schedule) for schedule in range(len(SCALES))]
    assert [each.problem for each in held if each.problem] == []
    taken = sum((each.taken for each in held), Counter[str]())
    assert {"announce", "record", "tell", "crash", "hear_whole", "count_in"} <= taken.keys()


@pytest.mark.parametrize("name", WIDER)
def test_a_wider_step_keeps_every_invariant(name: str) -> None:
    # Under the name of the other one, by which the proof knows which of its steps needs the induction.
    obligations = [*Proof().kept_by(replace(WIDER[name], name=name))]
    assert len(obligations) >= len(INVARIANTS)
    assert [each.name for each in obligations if by_z3(each)[0] != "unsat"] == []


@pytest.mark.parametrize(
    ("fault", "schedule", "says"),
    [
        ("announcement-said-before-logged", 3, "no step explains what is announced"),
        (
            "consumption-does-not-touch",
            3,
            "report {'s': 1, 'r': 'report 1 of shard 1, run 3'} is not allowed: 'it tells what was touched'",
        ),
        (
            "front-missing-at-a-shard-left-out",
            1,
            "announce {'p': 0} is not allowed: 'fronts that some shard has hold it'",
        ),
        (
            "published-rule",
            70,
            "announce {'p': 1} is not allowed: 'fronts that have left outside M hold it'",
        ),
        ("leaving-does-not-touch", 1, "is not allowed: 'it tells what was touched'"),
    ],
)
def test_a_fault_in_the_core_is_a_step_that_is_not_allowed(
    fault: str, schedule: int, says: str
) -> None:
    assert hold(schedule).problem is None
    with planted(fault):
        problem = hold(schedule).problem
    assert problem is not None and says in problem


class _TwoShards(Cluster):
    """Two shards, of which the second one hears what a test lets it hear."""

    def hear(self, kind: type) -> None:
        """The first frame of this kind arrives, before those on the way to it."""
        link = self.links[0, 1]
        frame = next(each for each in link if isinstance(each.body, kind))
        link.remove(frame)
        link.appendleft(frame)
        self.deliver(0, 1, 1)
        self.report()

    def report(self) -> None:
        self.now_ns += 20 * MS
        self.handle(1, Wake())


def test_a_snapshot_keeps_a_pin_that_is_ahead_of_what_is_announced() -> None:
    """The step `keep_pin_ahead`, which nobody has shown to be inside of the proof. When there is none any more, it can go."""
    cluster, spec = _TwoShards(2), PipelineSpec("p", ("a",), fronts=("F",))
    cluster.register(spec)
    ids = cluster.ids_at(0)
    front, other = cluster.front(spec, next(ids), F=0), cluster.node(spec, next(ids))
    front.begin(heartbeats={"F": 5})
    cluster.commit(0)
    cluster.hear(Entries)
    cluster.commit(1)
    other.begin(joins={"G": 0})
    cluster.commit(0)
    cluster.hear(Entries)  # of the joining, which is not durable at the second shard ...
    cluster.hear(ShardReport)  # ... and so stands before what it announces by this
    cluster.commit(1, 1)
    cluster.report()  # which pins the front behind that, though it is not durable
    cluster.take_snapshot(1)
    cluster.restart(1)
    pipeline = cluster.pipeline(1)
    assert [state.pin for state in pipeline.shard.fronts.values()] == [0, 5]
    assert pipeline.announced == [0]


# --- formulas are asked as they are meant ---------------------------------------------------------


def _facts(random: Random) -> dict[str, Any]:
    """Two things of each sort, and any relations and functions."""
    facts: dict[str, Any] = {things_of(sort): [*range(size)] for sort, size in SIZES.items()}
    for name, kind in {**VOCABULARY.fixed, **VOCABULARY.changing}.items():
        sorts = kind_of(name)
        rows = [row if len(row) > 1 else row[0] for row in product(*(range(SIZES[s]) for s in sorts))]  # fmt: skip
        if "->" in kind:
            facts[name] = {row: random.randrange(2) for row in rows}
        else:
            facts[name] = {row for row in rows if random.random() < 0.5}
    return facts


def _is_so(node: Node, facts: Mapping[str, Any], known: Mapping[str, int]) -> Any:
    """What a formula comes to, or a term, case by case."""
    match node.kind:
        case "all" | "some":
            names = [name for name, _ in node.says]
            cases = product(*(facts[things_of(sort)] for _, sort in node.says))
            each = (_is_so(node.parts[0], facts, {**known, **dict(zip(names, case, strict=True))}) for case in cases)  # fmt: skip
            return all(each) if node.kind == "all" else any(each)
        case "it":
            return known[node.says] if node.says in known else facts[node.says]
        case "true" | "false":
            return node.kind == "true"
    parts = [_is_so(part, facts, known) for part in node.parts]
    match node.kind:
        case "and":
            return all(parts)
        case "or":
            return any(parts)
        case "not":
            return not parts[0]
        case "same" | "is":
            return parts[0] == parts[1]
    key = tuple(parts) if len(parts) > 1 else parts[0]
    return key in facts[node.says] if node.kind == "holds" else facts[node.says][key]


@pytest.mark.parametrize("seed", range(10))
def test_invariants_are_asked_as_they_are_meant(seed: int) -> None:
    now, facts = Universe(VOCABULARY).state("now"), _facts(Random(seed))
    for each in INVARIANTS.values():
        formula = each.everywhere(now)
        asked = compiled.counterexample(formula)(facts) is None
        assert asked == _is_so(compiled.read(formula), facts, {}), each.name


def _taking_part(step: Step, random: Random) -> dict[str, Any]:
    """Things, and sets of them, that take part in a step."""
    given: dict[str, Any] = {name: random.randrange(2) for name in step.participants}
    for name, kind in step.sets.items():
        rows = product(range(2), repeat=len(kind.split()))
        given[name] = {row if len(row) > 1 else row[0] for row in rows if random.random() < 0.5}
    return {compiled.named(f"{name}{compiled.TAG}"): thing for name, thing in given.items()}


@pytest.mark.parametrize("seed", range(10))
def test_steps_are_asked_as_they_are_meant(seed: int) -> None:
    universe, random = Universe(VOCABULARY), Random(seed)
    now, all_facts = universe.state("now"), _facts(random)
    for step in (*STEPS.values(), *WIDER.values(), *OUTSIDE.values()):
        facts = all_facts | _taking_part(step, random)
        _, effect = step.take(now, compiled.TAG)
        for condition, formula in effect.when.items():
            asked = compiled.counterexample(formula)(facts) is None
            assert asked == _is_so(compiled.read(formula), facts, {}), (step.name, condition)
        for name, relation in effect.then.items():
            sorts = kind_of(name)
            things = [z3.Const(f"out{k}", universe.sorts[sort]) for k, sort in enumerate(sorts)]
            formula = compiled.read(relation(*things))
            meant = {
                row if len(row) > 1 else row[0]
                for row in product(*(range(SIZES[sort]) for sort in sorts))
                if _is_so(formula, facts, {f"out{k}": at for k, at in enumerate(row)})
            }
            assert compiled.members(relation(*things), things)(facts) == meant, (step.name, name)
