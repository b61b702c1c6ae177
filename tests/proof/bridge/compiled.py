"""Formulas of the proof as Python: what a solver is asked of anything, asked of what there is.

A step's conditions, what it changes, and the invariants are taken from `protocol.py` and `invariants.py` as the formulas that the
solvers get, by the same call, and turned into loops over finite sets. So the proof and the bridge cannot differ in what a step is.
A relation is a set (of things, or of tuples of them), a function a table. "For all" is a search for a counterexample: a conjunction is taken guard by
guard, and each loop goes over the smallest thing that gives its variable: an equation, a relation that must hold, else all of a sort.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import z3

from tests.proof.bridge.wider import OUTSIDE, WIDER
from tests.proof.invariants import INVARIANTS
from tests.proof.logic import LETTERS, State, Step, Universe
from tests.proof.protocol import STEPS, VOCABULARY, beginning, fixed_facts, goes_on

TAG = "'"
"""Behind the names of what takes part in a step, so that they are no relation's."""
Facts = Mapping[str, Any]
"""By name each relation, each function, and by sort all that there is: as `things_of` names it."""


def things_of(sort: str) -> str:
    """Under which name `Facts` have all things of a sort."""
    return f"all_{sort}"


class Node(NamedTuple):
    """A formula or a term. kind: and, or, not, same (of truth values), is (of terms), holds, of, it, all, some, true, false; says: the name of a
    relation, a function or a variable, or the variables of a quantifier."""

    kind: str
    says: Any
    parts: tuple[Node, ...]

    @property
    def free(self) -> frozenset[str]:
        return _free(self)


@cache
def _free(node: Node) -> frozenset[str]:
    if node.kind == "it":
        return frozenset([node.says])
    parts = frozenset().union(*(part.free for part in node.parts))
    return parts - {name for name, _ in node.says} if node.kind in ("all", "some") else parts


TRUE, FALSE = Node("true", None, ()), Node("false", None, ())
_CONNECTIVES = {z3.Z3_OP_AND: "and", z3.Z3_OP_OR: "or", z3.Z3_OP_NOT: "not"}


class _Reader:
    """Reads formulas of the solver's library. Each quantified variable gets a name of its own."""

    def __init__(self) -> None:
        self._count = 0

    def read(self, formula: Any, around: tuple[Node, ...] = ()) -> Node:
        """around: what the variables of the quantifiers around it are, outermost first."""
        if z3.is_var(formula):
            return around[-1 - z3.get_var_index(formula)]
        if z3.is_quantifier(formula):
            return self._quantified(formula, around)
        kind = formula.decl().kind()
        parts = tuple(self.read(part, around) for part in formula.children())
        if kind in _CONNECTIVES:
            return Node(_CONNECTIVES[kind], None, parts)
        match kind:
            case z3.Z3_OP_TRUE:
                return TRUE
            case z3.Z3_OP_FALSE:
                return FALSE
            case z3.Z3_OP_IMPLIES:
                return Node("or", None, (negated(parts[0]), parts[1]))
            case z3.Z3_OP_XOR:
                return Node("not", None, (Node("same", None, parts),))
            case z3.Z3_OP_EQ:
                return Node("same" if z3.is_bool(formula.children()[0]) else "is", None, parts)
            case z3.Z3_OP_DISTINCT if len(parts) == 2:
                return Node("not", None, (Node("is", None, parts),))
            case z3.Z3_OP_UNINTERPRETED:
                return self._applied(formula, parts)
        raise AssertionError(f"{formula.decl()} is not read")

    def _quantified(self, formula: Any, around: tuple[Node, ...]) -> Node:
        bound = []
        for place in range(formula.num_vars()):
            self._count += 1
            bound.append((f"x{self._count}", formula.var_sort(place).name().lower()))
        inner = (*around, *(Node("it", name, ()) for name, _ in bound))
        kind = "all" if formula.is_forall() else "some"
        return Node(kind, tuple(bound), (self.read(formula.body(), inner),))

    @staticmethod
    def _applied(formula: Any, parts: tuple[Node, ...]) -> Node:
        name = named(formula.decl().name())
        if z3.is_bool(formula):
            return Node("holds", name, parts)
        return Node("of", name, parts) if parts else Node("it", name, ())


def read(formula: Any) -> Node:
    """A formula as it is meant."""
    return _Reader().read(formula)


def named(symbol: str) -> str:
    """What a symbol of the solver is called in Python."""
    return re.sub(r"\W", "_", symbol.replace(TAG, "_given").partition("@")[0])


def negated(node: Node) -> Node:
    return node.parts[0] if node.kind == "not" else Node("not", None, (node,))


def _conjuncts(node: Node) -> list[Node]:
    """What has to hold, part by part, with negations pushed inwards."""
    match node.kind:
        case "and":
            return [each for part in node.parts for each in _conjuncts(part)]
        case "true":
            return []
        case "not":
            (inner,) = node.parts
            match inner.kind:
                case "not":
                    return _conjuncts(inner.parts[0])
                case "or":
                    return [each for part in inner.parts for each in _conjuncts(negated(part))]
                case "and":
                    return [Node("or", None, tuple(negated(part) for part in inner.parts))]
                case "all":
                    return [Node("some", inner.says, (negated(inner.parts[0]),))]
                case "false":
                    return []
                case "true":
                    return [FALSE]
                case "same":
                    one, other = inner.parts
                    return [_either((one, negated(other)), (negated(one), other))]
    return [node]


def _either(*both: tuple[Node, Node]) -> Node:
    return Node("or", None, tuple(Node("and", None, pair) for pair in both))


class _Writer:
    """Writes one Python function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.searches: list[str] = []
        """The functions that its quantifiers are."""
        self.names: set[str] = set()
        """Relations, functions, sorts and participants that it asks for."""
        self._count = 0

    # --- what is decided -----------------------------------------------------------------------

    def said(self, node: Node, indent: int) -> str:
        """A formula as an expression, of which all variables are known; searches that it needs are written before."""
        match node.kind:
            case "true" | "false":
                return node.kind.capitalize()
            case "and" | "or":
                quick_first = sorted(node.parts, key=_has_search)
                return "(" + f" {node.kind} ".join(self.said(p, indent) for p in quick_first) + ")"
            case "not":
                return f"(not {self.said(node.parts[0], indent)})"
            case "same" | "is":
                return f"({self.said(node.parts[0], indent)} == {self.said(node.parts[1], indent)})"
            case "holds":
                if not node.parts:
                    return self._name(node.says)
                arguments = ", ".join(self.said(part, indent) for part in node.parts)
                key = f"({arguments})" if len(node.parts) > 1 else arguments
                return f"({key} in {self._name(node.says)})"
            case "of":
                return f"{self._name(node.says)}[{self.said(node.parts[0], indent)}]"
            case "it":
                return node.says if node.says.startswith("x") else self._name(node.says)
        return self._search_of(node, indent)

    def _name(self, name: str) -> str:
        self.names.add(name)
        return name

    def _search_of(self, node: Node, indent: int) -> str:
        """A quantifier is a function of what is around it: it is asked only where that is."""
        self._count += 1
        name = f"search_{self._count}"
        inside = [each for each in sorted(node.free) if each.startswith("x")]
        body = node.parts[0] if node.kind == "some" else negated(node.parts[0])
        inner = _Writer()
        inner.names, inner._count = self.names, self._count * 1000
        inner.write(f"def {name}({', '.join(inside)}):", 1)
        inner.search(dict(node.says), _conjuncts(body), frozenset(inside), 2, "return True")
        inner.write("return False", 2)
        self.searches.extend(inner.searches + inner.lines)
        call = f"{name}({', '.join(inside)})"
        return call if node.kind == "some" else f"(not {call})"

    def write(self, line: str, indent: int) -> None:
        self.lines.append("    " * indent + line)

    # --- what is searched ----------------------------------------------------------------------

    def search(
        self, unbound: Mapping[str, str], conjuncts: list[Node], bound: frozenset[str], indent: int, found: str,
    ) -> None:  # fmt: skip
        """Loops over what makes all of these hold, and does `found` there. unbound: by variable its sort."""
        todo, unbound = list(conjuncts), dict(unbound)
        while ready := [each for each in todo if not each.free & unbound.keys()]:
            guard = min(ready, key=_has_search)
            todo.remove(guard)
            self.write(f"if {self.said(guard, indent)}:", indent)
            indent += 1
        if not todo:
            self._found(unbound, indent, found)
            return
        for each in todo:
            if (given := _given_by(each, unbound)) is not None:
                name, term = given
                todo.remove(each)
                del unbound[name]
                self.write(f"{name} = {self.said(term, indent)}", indent)
                self.search(unbound, todo, bound | {name}, indent, found)
                return
        if atoms := [each for each in todo if _is_source(each, unbound)]:
            self._over(min(atoms, key=lambda a: len(a.free & unbound.keys())), todo, unbound, bound, indent, found)  # fmt: skip
            return
        if choices := [each for each in todo if each.kind == "or"]:
            choice = min(choices, key=lambda each: len(each.parts))
            todo.remove(choice)
            for part in choice.parts:
                self.search(unbound, [*todo, *_conjuncts(part)], bound, indent, found)
            return
        if searched := [each for each in todo if each.kind == "some"]:
            (inner, *_) = searched
            todo.remove(inner)
            more = {**unbound, **dict(inner.says)}
            self.search(more, [*todo, *_conjuncts(inner.parts[0])], bound, indent, found)
            return
        name = next(name for name in unbound if any(name in each.free for each in todo))
        self.write(f"for {name} in {self._name(things_of(unbound.pop(name)))}:", indent)
        self.search(unbound, todo, bound | {name}, indent + 1, found)

    def _found(self, unbound: Mapping[str, str], indent: int, found: str) -> None:
        for name, sort in unbound.items():
            if re.search(rf"\b{name}\b", found):
                self.write(f"for {name} in {self._name(things_of(sort))}:", indent)
                indent += 1
        self.write(found, indent)

    def _over(
        self, atom: Node, todo: list[Node], unbound: dict[str, str], bound: frozenset[str], indent: int, found: str,
    ) -> None:  # fmt: skip
        """Loops over a relation that must hold."""
        todo.remove(atom)
        targets, checks = [], []
        for place, part in enumerate(atom.parts):
            if part.kind == "it" and part.says in unbound:
                targets.append(part.says)
                del unbound[part.says]
                bound |= {part.says}
            else:
                self._count += 1
                held = f"y{place}_{self._count}"
                targets.append(held)
                checks.append(f"{held} == {self.said(part, indent)}")
        over = f"({', '.join(targets)})" if len(targets) > 1 else targets[0]
        self.write(f"for {over} in {self._name(atom.says)}:", indent)
        if checks:
            self.write(f"if {' and '.join(checks)}:", indent + 1)
        self.search(unbound, todo, bound, indent + 1 + bool(checks), found)


def _has_search(node: Node) -> bool:
    return node.kind in ("all", "some") or any(map(_has_search, node.parts))


def _given_by(node: Node, unbound: Mapping[str, str]) -> tuple[str, Node] | None:
    """The variable that an equation gives, and what it is."""
    if node.kind == "is":
        for one, other in (node.parts, node.parts[::-1]):
            if one.kind == "it" and one.says in unbound and not other.free & unbound.keys():
                return one.says, other
    return None


def _is_source(node: Node, unbound: Mapping[str, str]) -> bool:
    """Whether a loop over a relation gives a variable."""
    if node.kind != "holds":
        return False
    plain = [p.says for p in node.parts if p.kind == "it" and p.says in unbound]
    others = [p for p in node.parts if not (p.kind == "it" and p.says in unbound)]
    return len({*plain}) == len(plain) > 0 and not any(p.free & unbound.keys() for p in others)


def _function(
    unbound: Mapping[str, str], conjuncts: list[Node], found: str, first: list[str], last: str
) -> Callable[[Facts], Any]:
    writer = _Writer()
    writer.search(unbound, conjuncts, frozenset(), 1, found)
    fetched = [f"    {name} = facts[{name!r}]" for name in sorted(writer.names)]
    lines = ["def ask(facts):", *fetched, *writer.searches, *first, *writer.lines, last]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    asked: Callable[[Facts], Any] = space["ask"]
    return asked


def counterexample(formula: Any) -> Callable[[Facts], Any]:
    """Asks of what there is whether a formula holds: None if so, else the things of which it does not, as far as it is of all."""
    node = read(formula)
    unbound: dict[str, str] = {}
    while node.kind == "all":
        unbound |= dict(node.says)
        node = node.parts[0]
    names = "".join(f"{name}, " for name in unbound)
    return _function(unbound, _conjuncts(negated(node)), f"return ({names})", [], "    return None")


def members(formula: Any, things: list[Any]) -> Callable[[Facts], set[Any]]:
    """Asks for all things of which a formula holds, which speaks of them by these constants."""
    bound = {f"x0{k}": thing.sort().name().lower() for k, thing in enumerate(things)}
    outer = dict(zip((named(str(thing)) for thing in things), bound, strict=True))
    node = _renamed(read(formula), outer)
    key = f"({', '.join(bound)})" if len(bound) > 1 else "".join(bound)
    return _function(bound, _conjuncts(node), f"y_all.add({key})", ["    y_all = set()"], "    return y_all")  # fmt: skip


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    if node.kind == "it":
        return Node("it", names.get(node.says, node.says), ())
    return Node(node.kind, node.says, tuple(_renamed(part, names) for part in node.parts))


# --- what is asked --------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskedStep:
    """A step: by condition what asks whether it is met, and by relation what asks for it afterwards."""

    name: str
    participants: list[str]
    sets: Mapping[str, str]
    when: Mapping[str, Callable[[Facts], Any]]
    then: Mapping[str, Callable[[Facts], set[Any]]]

    def given(self, things: Mapping[str, Any]) -> dict[str, Any]:
        return {named(name + TAG): thing for name, thing in things.items()}


@cache
def _system() -> tuple[Universe, State]:
    universe = Universe(VOCABULARY)
    return universe, universe.state("now")


@cache
def asked_step(name: str) -> AskedStep:
    return ask_of(STEPS[name], *_system())


@cache
def asked_wider(name: str) -> list[AskedStep]:
    """Those that are wider than it: first what is proven."""
    return [ask_of(steps[name], *_system()) for steps in (WIDER, OUTSIDE) if name in steps]


def ask_of(step: Step, universe: Universe, now: State) -> AskedStep:
    """What is asked of a step, by the formulas that the solvers get."""
    _, effect = step.take(now, TAG)
    of_items = {name: universe.every(body, ["i"]) for name, body in effect.of_items.items()}
    then = {}
    for name, relation in effect.then.items():
        things = _things(universe, name)
        then[name] = members(relation(*things), things)
    when = {name: counterexample(formula) for name, formula in {**effect.when, **of_items}.items()}
    return AskedStep(step.name, step.participants, step.sets, when, then)


@cache
def asked_beginning() -> dict[str, Callable[[Facts], set[Any]]]:
    """By relation what asks for it when nothing has happened yet; what is left of before is called `left_` something."""
    universe, _ = _system()
    first = beginning(universe)
    return {
        name: members(first.meanings[name](*things), things)
        for name in VOCABULARY.changing
        for things in [_things(universe, name)]
    }


def _things(universe: Universe, relation: str) -> list[Any]:
    """What a relation is asked of."""
    sorts = VOCABULARY.changing[relation].split()
    return [z3.Const(f"out{k}", universe.sorts[sort]) for k, sort in enumerate(sorts)]


@cache
def asked_facts() -> dict[str, Callable[[Facts], Any]]:
    """What is taken for granted of the graph, and of nodes' tables."""
    universe, now = _system()
    facts = {name: counterexample(formula) for name, formula in fixed_facts(now).items()}
    return facts | {"what goes on": counterexample(universe.every(lambda i: goes_on(now, i)))}


@cache
def asked_invariants() -> dict[str, Callable[[Facts], Any]]:
    _, now = _system()
    return {name: counterexample(each.everywhere(now)) for name, each in INVARIANTS.items()}


def kind_of(relation: str) -> list[str]:
    """The sorts of a relation's arguments."""
    kinds = {**VOCABULARY.fixed, **VOCABULARY.changing}
    return kinds[relation].partition("->")[0].split()


def sorts() -> Iterable[str]:
    return dict.fromkeys(LETTERS.values())
