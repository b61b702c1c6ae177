"""Runs of the system with so many of everything: situations that there are, to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from z3 import And, Implies, Not

from tests.proof.logic import LETTERS, Effect, Formula, State, Step, System, Universe
from tests.proof.systems import PROTOCOL

Plant = Callable[[State, Effect, Mapping[str, Any]], Effect]
"""What becomes of a step when a fault is planted in it: by the state, what it was, and who takes part."""
SMALL = {
    "shard": 2, "node": 2, "front": 1, "tick": 4, "item": 2, "place": 2, "report": 3, "whole": 1,
    "group": 2, "version": 3, "move": 2, "letter": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """A step of a run, with what takes part in it, and the state behind it."""

    step: Step
    given: Mapping[str, Any]
    after: State


class Run:
    """Steps one after the other, out of the beginning or of any state of which the invariants hold."""

    def __init__(
        self,
        sizes: Mapping[str, int] | None = None,
        plants: Mapping[str, Plant] | None = None,
        system: System = PROTOCOL,
    ) -> None:
        self.system = system
        self.universe = Universe(system.vocabulary, {**SMALL, **(sizes or {})})
        self.plants = plants or {}
        self.formulas: list[Formula] = []
        self.moments: list[Moment] = []
        self.first = self.now = self.universe.state("0")
        self.formulas += system.facts(self.now).values()
        of_items = system.of_items
        if of_items is not None:
            self.formulas.append(self.now.every(lambda i: of_items(self.now, i)))

    def begin(self, *, restarted: bool = False, rescaled: bool = False, joining: int = 0) -> Run:
        """Out of the beginning: of the first generation, which all have begun, and nothing is announced; or of one that some have
        still to begin. rescaled: slots and nodes may move. joining: so many shards are not there yet."""
        now = self.now
        self.formulas += self.universe.same(now, self.system.beginning(self.universe))
        if not restarted:
            self.formulas.append(
                now.every(lambda s, b: And(now.began(s) == now.there(s), Not(now.base(b))))
            )
        shards = self.universe.things["shard"]
        there = len(shards) - joining
        self.formulas += [
            now.there(s) if k < there else Not(now.there(s)) for k, s in enumerate(shards)
        ]
        if not rescaled:
            self.formulas.append(now.every(lambda t: Not(now.hands_over(t))))
            stays = lambda t, u: Implies(now.by(t) == now.by(u), now.home(t) == now.home(u))  # noqa: E731
            self.formulas.append(now.every(stays))
        return self

    def suppose(self, names: Sequence[str] | None = None) -> Run:
        """Out of any state of which these invariants hold, or all."""
        known = self.system.invariants
        self.formulas += [known[name].everywhere(self.now) for name in names or known]
        return self

    def follow(self, schedule: str) -> Run:
        """Steps by their names, and behind a slash, where it is said, the numbers of what takes part: `hear/p=1,r=2`."""
        for word in schedule.split():
            name, _, said = word.partition("/")
            self._take(name, dict(pair.split("=") for pair in said.split(",") if pair))
        return self

    def _take(self, name: str, said: Mapping[str, str]) -> None:
        number = len(self.moments) + 1
        step = self.system.steps[name]
        given, effect = step.take(self.now, f"_{number}")
        if name in self.plants:
            effect = self.plants[name](self.now, effect, given)
        for parameter, place in said.items():
            things = self.universe.things[LETTERS[parameter[0]]]
            self.formulas.append(given[parameter] == things[int(place) - 1])
        items = self.universe.things["item"]
        of_items = [asked(i) for asked in effect.of_items.values() for i in items]
        after = self.universe.state(str(number))
        changes = self.universe.same(after, self.now.then(**effect.then))
        self.formulas += [*effect.when.values(), *of_items, *changes]
        self.moments.append(Moment(step, given, after))
        self.now = after

    def breaks(self, name: str) -> Run:
        """In the end an invariant does not hold."""
        self.formulas.append(Not(self.system.invariants[name].everywhere(self.now)))
        return self

    def ends(self, body: Callable[..., Formula]) -> Run:
        """In the end this holds of some things."""
        self.formulas.append(self.now.some(lambda *things: body(self.now, *things)))
        return self
