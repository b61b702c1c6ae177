"""Each edge names the tests and mutations that show it, and they are there."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "edges.md"
NUMBERS = range(1, 22)


def rows() -> list[list[str]]:
    """The cells of each row, but for those that name the columns."""
    lines = [
        line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!what happened )", line)
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def functions(path: str) -> set[str]:
    """The names of those that a file defines."""
    tree = ast.parse((ROOT / path).read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_edge_has_a_row_with_a_test() -> None:
    found = {int(number) for row in rows() for number in re.findall(r"^(\d+)\. ", row[0])}
    assert found == {*NUMBERS}
    for row in rows():
        assert len(row) == 3
        assert re.search(r"`tests/[\w/]+\.py", row[2]), f"no test stands in: {row[0]}"


def test_the_tests_and_mutations_that_it_names_exist() -> None:
    mutations = ROOT / "tests" / "mutations"
    known = {path.stem for path in mutations.glob("*.toml")}
    for shell in mutations.glob("shells/*.toml"):
        known |= tomllib.loads(shell.read_text()).keys()
    for row in rows():
        for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[2]):
            assert (ROOT / path).is_file(), path
            assert not name or name in functions(path), f"{path} has no {name}"
        _, _, found = row[2].partition("mutation")
        for name in re.findall(r"`([\w-]+)`", found):
            assert name in known, f"no mutation {name}"
