"""Mutations of the shells around the core: `*.toml` files of this directory, one for each room of the code.

The simulator runs the core alone. What stands around it (fronts, local trackers, clients, consumers, files, the
service, Spark's composing) is shown by tests, so a fault there names the few that find it:

    [promised-before-created]
    what = "A front promises slots beyond what its tick creates, in the same tick."
    file = "fronts/core.py"
    symbol = "FrontCore._creating_tick"
    old = '''
        promise = max(self.promised, min(batch.low for batch in self._waiting))
    '''
    new = '''
        promise = max(self.promised, max(batch.high for batch in self._waiting))
    '''
    tests = ["tests/fronts/test_core.py::test_publish_then_commit_and_only_a_later_tick_promises_beyond"]

`old` and `new` are whole lines, indented as seen from the symbol's first one (`tests.mutations.symbols`). What does
not fit exactly once, and a test that there is not, is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.mutation import MutationError
from tests.mutations.symbols import SymbolError, replace_in_symbol, symbols

HERE = Path(__file__).resolve().parent
_CHANGED = ("fronts/", "local_tracker/", "tracker/")
_FIELDS = {"what", "file", "symbol", "old", "new", "tests"}


@dataclass(frozen=True, slots=True)
class ShellMutation:
    """One fault, and the tests that are to find it: paths of pytest, without parameters."""

    name: str
    what: str
    file: str
    """Relative to the project's root."""
    symbol: str
    old: str
    new: str
    tests: tuple[str, ...]

    def changed(self, root: Path) -> str:
        """The new text of its file. Raises MutationError where it does not fit."""
        try:
            return replace_in_symbol(
                (root / self.file).read_text(), self.symbol, self.old, self.new
            )
        except (FileNotFoundError, SyntaxError, SymbolError) as error:
            raise MutationError(
                f"{self.name} does not apply, the code has changed: {self.file}: {error}"
            ) from None


def all_shell_mutations(directory: Path = HERE) -> list[ShellMutation]:
    """All of a directory, in the order of its files. Raises MutationError."""
    return [
        _mutation(name, row)
        for path in sorted(directory.glob("*.toml"))
        for name, row in tomllib.loads(path.read_text()).items()
    ]


def _mutation(name: str, row: dict[str, str | list[str]]) -> ShellMutation:
    if row.keys() != _FIELDS:
        raise MutationError(
            f"{name} has {', '.join(sorted(row))}; it needs {', '.join(sorted(_FIELDS))}"
        )
    what, file, symbol, old, new = (
        str(row[key]) for key in ("what", "file", "symbol", "old", "new")
    )
    if not what.endswith("."):
        raise MutationError(f"{name}: what it breaks is a sentence: {what!r}")
    if not file.startswith(_CHANGED):
        raise MutationError(f"{name} changes {file}; it may change {', '.join(_CHANGED)} alone")
    if not old.strip() or old == new:
        raise MutationError(f"{name} changes nothing in {symbol}")
    if not row["tests"]:
        raise MutationError(f"{name} names no test")
    return ShellMutation(name, what, file, symbol, old, new, tuple(row["tests"]))


def missing_tests(mutations: Iterable[ShellMutation], root: Path) -> list[str]:
    """The tests that are named and that there are not, each with the mutations that name it."""
    known: dict[str, set[str]] = {}
    missing: dict[str, list[str]] = {}
    for mutation in mutations:
        for test in mutation.tests:
            file, *inside = test.split("::")
            if file not in known:
                path = root / file
                known[file] = _tests_of(path) if path.exists() else set()
            if ".".join(inside) not in known[file]:
                missing.setdefault(test, []).append(mutation.name)
    return [f"{test}, which is to find {', '.join(names)}" for test, names in missing.items()]


def _tests_of(path: Path) -> set[str]:
    """Functions and methods of a file, and "" for all of it."""
    return {"", *(name for name, _ in symbols(path.read_text()))}
