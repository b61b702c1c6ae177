"""Whether formulas lie where both solvers decide: each says `sat` or `unsat` in the end, and never `unknown`.

Leave out the quantifiers, and things are named by constants and by functions of them, where "for each tick there is a shard" is a function, too. If no
function leads, by way of others, from a sort back to itself, then there are finitely many names, and that is all that a solver has to look
at (the stratified part of effectively propositional logic).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import z3

Edges = set[tuple[str, str]]
_BOTH = (z3.Z3_OP_EQ, z3.Z3_OP_XOR, z3.Z3_OP_ITE, z3.Z3_OP_IFF)


def cycle(formulas: Iterable[Any]) -> list[str]:
    """Sorts that lead back to themselves; none where the formulas can be decided."""
    edges: Edges = set()
    seen: set[tuple[int, bool, tuple[str, ...]]] = set()
    for formula in formulas:
        _walk(formula, True, (), edges, seen)
    return _back_to_itself(edges)


def _walk(
    formula: Any, positive: bool, around: tuple[str, ...], edges: Edges,
    seen: set[tuple[int, bool, tuple[str, ...]]],
) -> None:  # fmt: skip
    """Collects from which sort to which a function leads. around: the sorts of all that is "for all" around it."""
    key = (formula.get_id(), positive, around)
    if key in seen:
        return
    seen.add(key)
    if z3.is_quantifier(formula):
        sorts = [formula.var_sort(k).name() for k in range(formula.num_vars())]
        if formula.is_forall() == positive:
            around = tuple(sorted({*around, *sorts}))
        else:
            edges |= {(each, sort) for each in around for sort in sorts}
        _walk(formula.body(), positive, around, edges, seen)
    elif z3.is_bool(formula) and any(map(z3.is_bool, formula.children())):
        kind = formula.decl().kind()
        for place, part in enumerate(formula.children()):
            flips = kind == z3.Z3_OP_NOT or (kind == z3.Z3_OP_IMPLIES and place == 0)
            _walk(part, positive != flips, around, edges, seen)
            if kind in _BOTH:
                _walk(part, positive == flips, around, edges, seen)
    else:
        _terms(formula, edges)


def _terms(term: Any, edges: Edges) -> bool:
    """Collects the functions of what is quantified; returns whether the term has any of that in it."""
    if z3.is_var(term):
        return True
    parts = [_terms(part, edges) for part in term.children()]
    has_some = any(parts)
    if has_some and not z3.is_bool(term):
        edges |= {(part.sort().name(), term.sort().name()) for part in term.children()}
    return has_some


def _back_to_itself(edges: Edges) -> list[str]:
    reached = {sort: {end for begin, end in edges if begin == sort} for sort, _ in edges}
    for _ in reached:
        for ends in reached.values():
            ends |= {further for end in ends for further in reached.get(end, ())}
    return sorted(sort for sort, ends in reached.items() if sort in ends)
