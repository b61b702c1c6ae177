"""A run that the solver has found, in plain English: what happened, step by step, and what is false in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import z3

from tests.proof.logic import LETTERS, variables
from tests.proof.protocol import VOCABULARY
from tests.proof.runs import Moment, Run

HAPPENS = {
    "begin_generation": "{s} begins the generation",
    "begin_later_generation": "{s} begins a later generation",
    "tell_before": "{p}, in the generation before, announces {some}",
    "publish": "{by} publishes {t}, which {does}",
    "accept": "{home} accepts {t}",
    "commit": "{t} is durable at its home, {s}, which applies it",
    "receive": "{s} receives {t}, and applies it",
    "sweep": "{s} empties its cell at {b}, which {p} has announced",
    "grant_front": "{p} grants {f}, and rules out {given}",
    "report": "{s} makes {r}: {says}",
    "keep_pin": "the pin of {f} is durable at {s}",
    "send": "{r} goes out",
    "send_whole": "{r} goes out once more as {w}",
    "hear": "{p} takes {r} of {sender}",
    "hear_whole": "{p} takes {w}, that is {r} of {sender}",
    "announce": "{p} announces {news}",
    "record": "{p} has announced {some} durably",
    "tell": "{p} tells someone that it has announced {b}",
    "snapshot": "{p} takes a snapshot, which lets go of {some}",
    "crash": "{p} crashes, and comes back",
    "bootstrap": "{s} begins with what {q} knows",
    "join": "{s} has joined, as the sequencer logs",
    "give_up": "{s} is given up, as the sequencer logs",
    "count_in": "{p} hears that {s} has joined",
    "give_slots": "a table gives slots to {h}",
    "empty": "{h} owns nothing any more",
    "depart": "{h} logs its last entry",
    "count_out": "{p} applies the last entry of {h}, and announces {some} by that",
}
_QUICK_MS = 3_000


class Told:
    """A run, and the model that a solver has found of it: what happens in it, in words."""

    happens: Mapping[str, str]
    """By step."""

    def __init__(self, run: Run, solver: z3.Solver) -> None:
        self.run, self.universe, self.model = run, run.universe, solver.model()
        self._numbers: dict[str, list[Any]] = {sort: [] for sort in self.universe.things}
        """Things of each sort in the order in which the story comes to them."""

    def lines(self, breaks: str | None = None) -> Iterator[str]:
        """The story; breaks: the invariant that is false in the end."""
        steps = [*map(self._step, self.run.moments)]
        yield from self._world()
        for number, step in enumerate(steps, 1):
            yield f"{number:>3}. {step}"
        yield from self._in_the_end()
        if breaks is not None:
            yield f"False now: {self.run.system.invariants[breaks].says}"
            yield f"Here: {self._broken(breaks)}."

    def _world(self) -> Iterator[str]:
        """What is fixed from the beginning."""
        yield from ()

    def _in_the_end(self) -> Iterator[str]:
        """What there is then."""
        yield from ()

    def _further(self, given: Mapping[str, Any]) -> dict[str, str]:
        """More words of a step, by what takes part in it."""
        return {}

    def _step(self, moment: Moment) -> str:
        words = {
            name: self._set(thing, moment.step.sets[name])
            if name in moment.step.sets
            else self._said(thing)
            for name, thing in moment.given.items()
        }
        words |= self._further(moment.given)
        return self.happens[moment.step.name].format(**words)

    def _broken(self, name: str) -> str:
        body = self.run.system.invariants[name].body
        names = variables(body, 1)
        for things in product(*(self.universe.things[LETTERS[each[0]]] for each in names)):
            if not self._is(body(self.run.now, *things)):
                return ", ".join(map(self._said, things))
        raise AssertionError(f"{name!r} holds in the end")

    def _is(self, formula: Any) -> bool:
        return z3.is_true(self.model.eval(formula, True))

    def _members(self, relation: Any, kind: str) -> list[tuple[Any, ...]]:
        every = product(*(self.universe.things[sort] for sort in kind.split()))
        return [things for things in every if self._is(relation(*things))]

    def _said(self, thing: Any) -> str:
        value = self.model.eval(thing, True)
        (sort,) = [sort for sort, each in self.universe.sorts.items() if each == value.sort()]
        known = self._numbers[sort]
        known += [] if any(each.eq(value) for each in known) else [value]
        number = [each.eq(value) for each in known].index(True) + 1
        return f"{'whole report' if sort == 'whole' else sort} {number}"

    def _set(self, relation: Any, kind: str) -> str:
        return (
            ", ".join(self._said(things[-1]) for things in self._members(relation, kind))
            or "nothing"
        )

    def _listed(self, told: Mapping[str, list[Any]], nothing: str) -> str:
        said = [
            f"{verb} {', '.join(map(self._said, things))}"
            for verb, things in told.items()
            if things
        ]
        return "; ".join(said) or nothing


class Story(Told):
    """A run of one tracker, of which no place reaches more than it must."""

    happens = HAPPENS

    def __init__(self, run: Run, solver: z3.Solver) -> None:
        super().__init__(run, solver)
        solver.set("timeout", _QUICK_MS)
        for name in ("reaches", "promises"):
            for things in self._members(self.universe.fixed[name], VOCABULARY.fixed[name]):
                self._try_without(solver, self.universe.fixed[name](*things))

    def _try_without(self, solver: z3.Solver, fact: Any) -> None:
        solver.push()
        solver.add(z3.Not(fact))
        if solver.check() == z3.sat:
            self.model = solver.model()
        else:
            solver.pop()

    def _world(self) -> Iterator[str]:
        now = self.run.now
        for i in self.universe.things["item"]:
            t, u = now.creator(i), now.consumer(i)
            if self._is(now.published(t)):
                labelled = self._is(now.labelled(i))
                origin = now.labeller(i) if labelled else now.parent(i)
                if self._is(now.hands_over(t)):
                    labelled, origin = False, now.came_of(i)
                late = "late " if self._is(now.late(i)) else ""
                yield (
                    f"{late}{self._said(i)} is at {self._said(now.at(i))} of {self._said(now.owner(i))}, created by "
                    f"{self._said(t)}, {'labelled by' if labelled else 'out of'} {self._said(origin)}, and consumed by "
                    f"{self._said(u)}{'' if self._is(now.published(u)) else ', which does not come'}"
                )
        for a, b in self._members(self.universe.fixed["reaches"], "place place"):
            if not a.eq(b):
                yield f"{self._said(a)} reaches {self._said(b)}"

    def _in_the_end(self) -> Iterator[str]:
        now = self.run.now
        for s, f, a in self._members(now.pin, VOCABULARY.changing["pin"]):
            if self._is(now.pinned(s, f)):
                yield f"The pin of {self._said(f)} at {self._said(s)} rules out {self._said(a)}"

    def _further(self, given: Mapping[str, Any]) -> dict[str, str]:
        now = self.run.now
        words: dict[str, str] = {}
        if "t" in given:
            t = given["t"]
            words |= {"by": self._who(t), "home": self._said(now.home(t)), "does": self._does(t)}
        if "r" in given:
            words["sender"] = self._said(now.sender(given["r"]))
            words["says"] = self._says(given["r"])
        return words

    def _who(self, t: Any) -> str:
        now = self.run.now
        who = self._said(now.home(t) if self._is(now.hands_over(t)) else now.by(t))
        for generation, of in {"before": now.before, "after": now.after}.items():
            if self._is(of(t)):
                return f"{who}, in the generation {generation},"
        return who

    def _does(self, t: Any) -> str:
        now, fixed = self.run.now, self.universe.fixed
        if self._is(now.hands_over(t)):
            return self._hands_over(t)
        items, fronts = self.universe.things["item"], self.universe.things["front"]
        told = {
            "creates": [i for i in items if self._is(now.creator(i) == t)],
            "consumes": [i for i in items if self._is(now.consumer(i) == t)],
            "joins": [f for f in fronts if self._is(now.joins(f) == t)],
            "leaves": [f for f in fronts if self._is(now.leaves(f) == t)],
            "promises to label no more at": [
                a for u, _, a in self._members(fixed["promises"], "tick front place") if self._is(u == t)
            ],
        }  # fmt: skip
        return self._listed(told, "is empty")

    def _hands_over(self, t: Any) -> str:
        now = self.run.now
        moved = [
            f"{self._said(now.came_of(i))} of {self._said(now.owner(now.came_of(i)))} to {self._said(now.owner(i))}, as {self._said(i)}"
            for i in self.universe.things["item"]
            if self._is(z3.And(now.creator(i) == t, z3.Not(now.late(i))))
        ]
        return f"hands over {' and '.join(moved) or 'nothing'}"

    def _says(self, r: Any) -> str:
        fixed, now = self.universe.fixed, self.run.now

        def about(name: str) -> list[Any]:
            rows = self._members(fixed[name], VOCABULARY.fixed[name])
            return [row[-1] for row in rows if self._is(row[0] == r)]

        mine = [i for i in about("says_open") if self._is(now.owner(i) == now.sender(r))]
        says = {
            "has applied": about("says_applied"),
            "has in its cells": mine,
            "tells as touched": about("says_touched"),
            "has pinned": about("says_pinned"),
        }
        return self._listed(says, "nothing has happened")
