"""What has to be shown, formula by formula, and the solvers that show it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from tests.proof.logic import LETTERS, Effect, Invariant, Lemma, Step, System, Universe, variables
from tests.proof.mutations import Mutation
from tests.proof.systems import PROTOCOL

TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Obligation:
    """Formulas that cannot hold all at once."""

    name: str
    formulas: tuple[Any, ...] = field(repr=False)


@dataclass(frozen=True)
class Proven:
    """What the solvers said of an obligation, and how long it took them; cvc5 need not have been asked."""

    name: str
    z3: str
    z3_s: float
    cvc5: str | None = None
    cvc5_s: float = 0.0


def holds(proven: Proven) -> bool:
    return {proven.z3, proven.cvc5} <= {"unsat", None}


class Proof:
    """All obligations, of any number of anything. planted: a fault in one of the steps; then those alone that it may break.
    only: the steps that are looked at, instead of all. system: what is proven."""

    def __init__(
        self,
        planted: Mutation | None = None,
        only: Collection[str] = (),
        system: System = PROTOCOL,
    ) -> None:
        self.system, self.universe = system, Universe(system.vocabulary)
        self.now = self.universe.state("now")
        self.planted = planted
        steps = only or system.steps if planted is None else [planted.step]
        self.steps = [step for name, step in system.steps.items() if name in steps]
        self.facts = [*system.facts(self.now).values()]
        self.held = {
            name: each.everywhere(self.now)
            for name, each in system.invariants.items()
            if name != system.comes_of
        }

    def obligations(self) -> Iterator[Obligation]:
        if self.planted is None:
            yield from self.at_the_beginning()
        for step in self.steps:
            yield from self.kept_by(step)

    def formulas(self) -> Iterable[Any]:
        """All that any of the obligations says, each once."""
        said = [formula for each in self.obligations() for formula in each.formulas]
        return {formula.get_id(): formula for formula in said}.values()

    def at_the_beginning(self) -> Iterator[Obligation]:
        """Every invariant holds when nothing has happened."""
        first = self.system.beginning(self.universe)
        for each in self.system.invariants.values():
            false = z3.Not(each.of(first, *self._things(each)))
            yield Obligation(f"beginning: {each.name}", (*self.facts, false))

    def kept_by(self, step: Step) -> Iterator[Obligation]:
        """Where all invariants hold, each of them holds behind the step. One that says the same behind it rests on itself alone."""
        given, effect = step.take(self.now)
        if self.planted is not None:
            effect = self.planted.plant(self.now, effect, given)
        afterwards = self.now.then(**effect.then)
        taking_part = _items(step.participants, [given[name] for name in step.participants])
        lemmas, lemma = [], self.system.lemma
        if lemma is not None and lemma.step == step.name:
            yield self._least_counterexample(lemma, effect, given)
            lemmas = [self.now.every(lambda b, i: lemma.of(self.now, given, b, i))]
        for each in self.system.invariants.values():
            things = self._things(each)
            items = _items(variables(each.body, 1), things) + taking_part
            of_items = [asked(i) for asked in effect.of_items.values() for i in items]
            said, says = each.of(self.now, *things), each.of(afterwards, *things)
            if said.eq(says) and each.name != self.system.comes_of:
                premises = (self.held[each.name],)
            else:
                premises = (*self._premises(items), *lemmas, *effect.when.values(), *of_items)
            yield Obligation(f"{step.name}: {each.name}", (*premises, z3.Not(says)))

    def _least_counterexample(
        self, lemma: Lemma, effect: Effect, given: Mapping[str, Any]
    ) -> Obligation:
        """A lemma, by induction: an item of which it is false, though it is true of all that come before."""
        now = self.now
        b, i = self.universe.constants(["b", "i"], "_it")
        before = now.every(
            lambda j: z3.Implies(lemma.before(now, j, i), lemma.of(now, given, b, j))
        )
        premises = (*self._premises([i]), *effect.when.values())
        false = z3.Not(lemma.of(now, given, b, i))
        return Obligation(f"{lemma.step}: {lemma.says}", (*premises, before, false))

    def _things(self, each: Invariant) -> list[Any]:
        return self.universe.constants(variables(each.body, 1), "_it")

    def _premises(self, items: list[Any]) -> list[Any]:
        of_items, comes_of = self.system.of_items, self.system.comes_of
        said = [] if of_items is None else [of_items(self.now, i) for i in items]
        if comes_of is not None:
            said += [self.system.invariants[comes_of].of(self.now, i) for i in items]
        return [*self.facts, *self.held.values(), *said]


def _items(names: list[str], things: list[Any]) -> list[Any]:
    return [thing for name, thing in zip(names, things, strict=True) if LETTERS[name[0]] == "item"]


def by_z3(obligation: Obligation, timeout_ms: int = TIMEOUT_MS) -> tuple[str, float]:
    began = time.monotonic()
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.add(*obligation.formulas)
    return str(solver.check()), round(time.monotonic() - began, 3)


def by_cvc5(obligation: Obligation, timeout_ms: int = TIMEOUT_MS) -> tuple[str, float]:
    """The same formulas, asked of another solver."""
    import cvc5

    solver = z3.Solver()
    solver.add(*obligation.formulas)
    text = f"(set-logic ALL)\n{solver.to_smt2()}"
    began = time.monotonic()
    other = cvc5.Solver(cvc5.TermManager())
    other.setOption("full-saturate-quant", "true")
    other.setOption("tlimit-per", str(timeout_ms))
    parser = cvc5.InputParser(other)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, obligation.name)
    symbols, said = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(other, symbols)
    return said.strip(), round(time.monotonic() - began, 3)
