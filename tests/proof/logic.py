"""The language of the proof: sorts, states, steps and invariants, as formulas of first-order logic.

A `Universe` is either unbounded (sorts are whatever they are: what is `unsat` there holds for any number of shards, nodes, ticks,
items) or bounded (so many of each: what is `sat` there is a situation that can be shown). Formulas are written once:
`every` quantifies in the one and lists all cases in the other. A variable says its sort by its first letter (`LETTERS`).

A `State` gives each relation its meaning at one moment. A `Step` says when it can happen and what is different
afterwards; all else stays as it is, so nobody has to say so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import z3

Formula = Any
Relation = Callable[..., Formula]

LETTERS = {
    "s": "shard", "p": "shard", "q": "shard", "h": "shard", "n": "node", "f": "front", "t": "tick", "u": "tick", "i": "item",
    "j": "item", "a": "place", "b": "place", "r": "report", "w": "whole",
    "g": "group", "k": "group", "v": "version", "m": "move", "l": "letter",
}  # fmt: skip
"""By the first letter of a variable its sort."""
_fresh = count()


def variables(body: Callable[..., Any], skipped: int = 0) -> list[str]:
    """The names of what a formula speaks of, by its parameters."""
    return [*inspect.signature(body).parameters][skipped:]


@dataclass(frozen=True)
class Vocabulary:
    """What can be spoken of: `fixed` never changes, `changing` relations do. By name the sorts of the arguments,
    and of a function behind an arrow its value's."""

    fixed: Mapping[str, str]
    changing: Mapping[str, str]


class Universe:
    """So many things of each sort, or any number of each."""

    def __init__(self, vocabulary: Vocabulary, sizes: Mapping[str, int] | None = None) -> None:
        self.vocabulary, self.bounded = vocabulary, sizes is not None
        self.sorts: dict[str, Any] = {}
        self.things: dict[str, list[Any]] = {}
        for sort in dict.fromkeys(LETTERS.values()):
            if sizes is None:
                self.sorts[sort] = z3.DeclareSort(sort.capitalize())
            elif sort in sizes:
                number = next(_fresh)
                names = [f"{sort}{k}_{number}" for k in range(1, sizes[sort] + 1)]
                self.sorts[sort], self.things[sort] = z3.EnumSort(f"{sort}_{number}", names)
        self.fixed = {name: self.symbol(name, kind) for name, kind in vocabulary.fixed.items()}

    def symbol(self, name: str, kind: str) -> Any:
        """An uninterpreted function or relation."""
        arguments, _, value = kind.partition("->")
        result = self.sorts[value.strip()] if value else z3.BoolSort()
        return z3.Function(name, *(self.sorts[sort] for sort in arguments.split()), result)

    def constants(self, names: list[str], tag: str = "") -> list[Any]:
        """One thing for each name, of which nothing else is known."""
        return [z3.Const(f"{name}{tag}", self.sorts[LETTERS[name[0]]]) for name in names]

    def every(self, body: Callable[..., Formula], names: list[str] | None = None) -> Formula:
        """For all things that `body` speaks of, by the names of its parameters, or these."""
        return self._quantified(z3.ForAll, z3.And, body, names)

    def some(self, body: Callable[..., Formula]) -> Formula:
        """For some things that `body` speaks of."""
        return self._quantified(z3.Exists, z3.Or, body, None)

    def _quantified(
        self, quantifier: Any, list_of: Any, body: Callable[..., Formula], names: list[str] | None
    ) -> Formula:
        bound = self.constants(variables(body) if names is None else names, f"!{next(_fresh)}")
        formula = body(*bound)
        if self.bounded:
            return list_of([*self._cases(formula, bound)])
        return quantifier(bound, formula) if bound else formula

    def _cases(self, formula: Formula, bound: list[Any]) -> Iterator[Formula]:
        """A formula with each thing that there is for each of these. It is said once, and the solver's library fills in the rest: in Python all
        cases would take many times as long."""
        for things in product(
            *(self.things[each.sort().name().partition("_")[0]] for each in bound)
        ):
            yield z3.substitute(formula, *zip(bound, things, strict=True))

    def beginning(self, **there: Relation) -> State:
        """Nothing has happened, and no relation holds but what is there."""
        nothing = {name: lambda *_: z3.BoolVal(False) for name in self.vocabulary.changing}
        return State(self, {**nothing, **there})

    def state(self, tag: str) -> State:
        """Any state at all."""
        changing = self.vocabulary.changing.items()
        return State(self, {name: self.symbol(f"{name}@{tag}", kind) for name, kind in changing})

    def same(self, one: State, other: State) -> Iterator[Formula]:
        """Every relation is the same in both."""
        for name, kind in self.vocabulary.changing.items():
            if one.meanings[name] is not other.meanings[name]:
                bound = [
                    z3.Const(f"{sort}!{k}", self.sorts[sort]) for k, sort in enumerate(kind.split())
                ]
                yield from self._cases(
                    one.meanings[name](*bound) == other.meanings[name](*bound), bound
                )


class State:
    """What each relation is at one moment: `state.applied(s, t)`."""

    def __init__(self, universe: Universe, meanings: Mapping[str, Relation]) -> None:
        self.universe, self.meanings = universe, meanings

    def __getattr__(self, name: str) -> Relation:
        if name in self.meanings:
            return self.meanings[name]
        if name in self.universe.fixed:
            return self.universe.fixed[name]
        raise AttributeError(name)

    def every(self, body: Callable[..., Formula]) -> Formula:
        return self.universe.every(body)

    def some(self, body: Callable[..., Formula]) -> Formula:
        return self.universe.some(body)

    def then(self, **changes: Relation) -> State:
        """The same, but for these relations."""
        return State(self.universe, {**self.meanings, **changes})


@dataclass(frozen=True)
class Effect:
    """When a step can happen, condition by condition, and what each relation that it changes is afterwards. of_items:
    conditions on single items, which a proof asks of the items alone that it speaks of."""

    when: Mapping[str, Formula]
    then: Mapping[str, Relation]
    of_items: Mapping[str, Callable[[Any], Formula]] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A step: `body` takes the state, and what takes part in it. sets: by parameter the sorts of a set that may be any."""

    name: str
    body: Callable[..., Effect]
    sets: Mapping[str, str]

    @property
    def participants(self) -> list[str]:
        return [name for name in variables(self.body, 1) if name not in self.sets]

    def take(self, now: State, tag: str = "") -> tuple[dict[str, Any], Effect]:
        """The step out of a state, by things and sets of which nothing else is known; these, by name."""
        given = dict(
            zip(self.participants, now.universe.constants(self.participants, tag), strict=True)
        )
        sets = {name: now.universe.symbol(f"{name}{tag}", kind) for name, kind in self.sets.items()}
        given |= sets
        return given, self.body(now, **given)


@dataclass(frozen=True)
class Invariant:
    """What holds in every state, in a sentence, of all things that `body` speaks of."""

    name: str
    says: str
    body: Callable[..., Formula]

    def of(self, now: State, *things: Any) -> Formula:
        return self.body(now, *things)

    def everywhere(self, now: State) -> Formula:
        return now.universe.every(lambda *things: self.body(now, *things), variables(self.body, 1))


@dataclass
class Invariants:
    """Those of one system, as its modules declare them: by name, and the names of those that are promised to users."""

    known: dict[str, Invariant] = field(default_factory=dict)
    promises: list[str] = field(default_factory=list)

    def invariant(self, body: Callable[..., Formula]) -> Invariant:
        """An invariant; what it says is its docstring."""
        name = body.__name__.replace("_", " ")
        made = self.known[name] = Invariant(name, (body.__doc__ or "").strip(), body)
        return made

    def promise(self, body: Callable[..., Formula]) -> Invariant:
        """One that is promised to users."""
        made = self.invariant(body)
        self.promises.append(made.name)
        return made


@dataclass(frozen=True)
class Lemma:
    """What is shown of each item by induction, where a step is taken, and used for all invariants there. of: by the state, who takes part, a place
    and an item; before: whether the first of two items comes before the other."""

    step: str
    says: str
    of: Callable[[State, Mapping[str, Any], Any, Any], Formula]
    before: Callable[[State, Any, Any], Formula]


@dataclass(frozen=True)
class System:
    """A transition system, with all that is to be shown of it. facts: what is taken for granted. of_items: what is too, of an item, and a
    proof asks of the items alone that it speaks of. comes_of: the invariant that says so of an item and its parent, whose parent has one too:
    a proof asks for it of such items alone as well, so that there is no end of parents."""

    vocabulary: Vocabulary
    steps: Mapping[str, Step]
    invariants: Mapping[str, Invariant]
    beginning: Callable[[Universe], State]
    facts: Callable[[State], Mapping[str, Formula]]
    of_items: Callable[[State, Any], Formula] | None = None
    comes_of: str | None = None
    lemma: Lemma | None = None
