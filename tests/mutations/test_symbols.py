"""A symbol of a file is found wherever it stands, and its lines are replaced there and nowhere else."""

from __future__ import annotations

import textwrap

import pytest

from tests.mutations.symbols import SymbolError, lines_of, replace_in_symbol, symbols

SOURCE = textwrap.dedent(
    '''
    LIMIT = 3

    class Home:
        """Judges."""

        kept: int = 8

        class Node:
            def commit(self):
                self.durable += 1

        @property
        def commit(self):
            def inner():
                return 1
            return inner()

        async def check(self):
            if self.kept:
                return 1

    def commit():
        return 1
    '''
)


def test_a_symbol_has_the_lines_from_its_decorators_to_its_end() -> None:
    lines = SOURCE.splitlines()
    shown = {
        name: (lines[at.start].strip(), lines[at.stop - 1].strip()) for name, at in symbols(SOURCE)
    }
    assert shown == {
        "LIMIT": ("LIMIT = 3", "LIMIT = 3"),
        "Home": ("class Home:", "return 1"),
        "Home.kept": ("kept: int = 8", "kept: int = 8"),
        "Home.Node": ("class Node:", "self.durable += 1"),
        "Home.Node.commit": ("def commit(self):", "self.durable += 1"),
        "Home.commit": ("@property", "return inner()"),
        "Home.check": ("async def check(self):", "return 1"),
        "commit": ("def commit():", "return 1"),
    }
    assert lines_of(SOURCE, "") == range(len(lines))


def test_lines_are_replaced_in_their_symbol_alone() -> None:
    changed = replace_in_symbol(SOURCE, "commit", "    return 1\n", "    return 2\n")
    assert changed == SOURCE.removesuffix("return 1\n") + "return 2\n"
    gone = replace_in_symbol(SOURCE, "LIMIT", "LIMIT = 3\n", "")
    assert gone == SOURCE.replace("LIMIT = 3\n", "")


def test_indentation_counts_from_the_symbol_so_that_it_may_move() -> None:
    old, new = "    if self.kept:\n        return 1\n", "    return 2\n"
    assert "    async def check(self):\n        return 2\n" in replace_in_symbol(
        SOURCE, "Home.check", old, new
    )
    moved = "async def check(self):\n    if self.kept:\n        return 1\n"
    assert replace_in_symbol(moved, "check", old, new) == "async def check(self):\n    return 2\n"


@pytest.mark.parametrize(
    "symbol", ["Home.nothing", "nothing", "Home.commit.inner", "Home.Node.kept"]
)
def test_a_symbol_that_is_not_there_is_an_error(symbol: str) -> None:
    with pytest.raises(SymbolError, match=f"symbol '{symbol}' is there 0 times, not once"):
        replace_in_symbol(SOURCE, symbol, "    return 1\n", "")


def test_a_symbol_that_is_there_twice_is_an_error() -> None:
    twice = SOURCE + "\ndef commit():\n    return 3\n"
    with pytest.raises(SymbolError, match="symbol 'commit' is there 2 times, not once"):
        replace_in_symbol(twice, "commit", "    return 3\n", "")


@pytest.mark.parametrize(
    ("symbol", "lines", "times"),
    [
        ("Home.check", "    return 1\n", 0),
        ("commit", "    return 1\n", 2),
        ("Home", "return 1\n", 0),
    ],
    ids=["indented otherwise", "twice", "no whole line"],
)
def test_lines_that_are_not_there_once_are_an_error(symbol: str, lines: str, times: int) -> None:
    source = SOURCE + "    return 1\n"
    with pytest.raises(SymbolError, match=f"these lines are there {times} times, not once"):
        replace_in_symbol(source, symbol, lines, "")
