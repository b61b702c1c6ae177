"""Where a class, a function or a name stands in a file of Python, found by its qualified name."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

WHOLE_FILE = ""
"""The symbol that stands for all of a file."""


class SymbolError(Exception):
    """A symbol that is not there, or text that is not in it once; says which."""


def _named(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Classes, their methods and attributes, functions and assigned names. What is within a function
    belongs to the function."""
    for node in body:
        match node:
            case ast.ClassDef():
                yield prefix + node.name, node
                yield from _named(node.body, f"{prefix}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + node.name, node
            case ast.Assign():
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                yield from ((prefix + name, node) for name in names)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def symbols(source: str) -> list[tuple[str, range]]:
    """The qualified names in a source, each with its lines, which are numbered from 0."""
    return [
        (name, range(_first_line(node) - 1, node.end_lineno or node.lineno))
        for name, node in _named(ast.parse(source).body, "")
    ]


def lines_of(source: str, symbol: str) -> range:
    """The lines of a symbol, decorators with it; they are numbered from 0. Raises SymbolError if it is
    not there, or there more than once."""
    if symbol == WHOLE_FILE:
        return range(len(source.splitlines()))
    found = [lines for name, lines in symbols(source) if name == symbol]
    if len(found) != 1:
        raise SymbolError(f"symbol {symbol!r} is there {len(found)} times, not once")
    return found[0]


def replace_in_symbol(source: str, symbol: str, old: str, new: str) -> str:
    """The source with whole lines of a symbol replaced. Their indentation counts from the symbol's own,
    so that they are found wherever it stands. Raises SymbolError unless they are there exactly once."""
    lines = source.splitlines(keepends=True)
    within = lines_of(source, symbol)
    first = lines[within.start] if within else ""
    indent = first[: len(first) - len(first.lstrip())] if symbol else ""
    wanted, put = _indented(old, indent), _indented(new, indent)
    places = [
        place
        for place in range(within.start, within.stop - len(wanted) + 1)
        if lines[place : place + len(wanted)] == wanted
    ]
    if len(places) != 1:
        where = f"symbol {symbol!r}" if symbol else "the file"
        raise SymbolError(f"in {where} these lines are there {len(places)} times, not once:\n{old}")
    lines[places[0] : places[0] + len(wanted)] = put
    return "".join(lines)


def _indented(text: str, indent: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return [line if not line.strip() else indent + line for line in lines]
