"""The mutations: `*.toml` files of this directory, and copies of the code with one of them applied.

A mutation says which rule it breaks and how, and which lines it replaces: in a file, within a symbol
(`Class.method`, a function, an assigned name), so that code may move and change around them.

    rule = 3
    what = "Ticks are acknowledged before they are durable."

    [[replace]]
    file = "tracker/core/admission/sessions.py"
    symbol = "Sessions.submit"
    old = '''
        self._journal.append_home(entry)
    '''
    new = '''
        self._journal.append_home(entry)
        self._effects.append(TicksDurable(event.session, event.number))
    '''

`old` and `new` are whole lines, indented as seen from the symbol's first one. Without `symbol` they
are lines of the file (imports, say). Several replacements are made in their order. What does not fit
exactly once is an error: after the code that it breaks has changed, a mutation is made anew, not
dropped.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.summary import ROOT
from tests.mutations.symbols import WHOLE_FILE, SymbolError, replace_in_symbol

HERE = Path(__file__).resolve().parent
PRODUCTION = ("tracker", "local_tracker")
"""Packages that mutations may change."""
_COPIED = (*PRODUCTION, "tests/simulation", "tests/core", "tests/mutations")
"""What the simulator runs, and the hunt itself."""


class MutationError(Exception):
    """A mutation that cannot be read or applied; says which, and why."""


@dataclass(frozen=True)
class Replacement:
    """Lines of a symbol, and what takes their place."""

    file: str
    """Relative to the project's root."""
    symbol: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """One fault: the number of the rule that it breaks, and in a sentence how."""

    name: str
    rule: int
    what: str
    replacements: tuple[Replacement, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Changed files, relative to the project's root."""
        return tuple(sorted({replacement.file for replacement in self.replacements}))


def read_mutation(path: Path) -> Mutation:
    """The mutation of a file. Raises MutationError."""
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise MutationError(f"{path.name} is no TOML: {error}") from None
    rule, what = _taken(path, data, "rule", int), _taken(path, data, "what", str)
    tables = _taken(path, data, "replace", list)
    if data:
        raise MutationError(f"{path.name}: {', '.join(data)} is not known")
    if not what.endswith("."):
        raise MutationError(f"{path.name}: what it breaks is a sentence: {what!r}")
    if not tables:
        raise MutationError(f"{path.name} replaces nothing")
    return Mutation(
        path.stem, rule, what, tuple(_replacement(path, dict(table)) for table in tables)
    )


def _replacement(path: Path, data: dict[str, Any]) -> Replacement:
    file = _taken(path, data, "file", str)
    old, new = (_taken(path, data, key, str) for key in ("old", "new"))
    symbol = _taken(path, {"symbol": WHOLE_FILE, **data}, "symbol", str)
    data.pop("symbol", None)
    if data:
        raise MutationError(f"{path.name}: {', '.join(data)} is not known")
    if not file.startswith(tuple(f"{package}/" for package in PRODUCTION)):
        raise MutationError(
            f"{path.name} changes {file}; it may change {', '.join(PRODUCTION)} alone"
        )
    if not old.strip() or old == new:
        raise MutationError(f"{path.name} changes nothing in {symbol or file}")
    if not old.endswith("\n") or (new and not new.endswith("\n")):
        raise MutationError(f"{path.name}: what it replaces in {symbol or file} are whole lines")
    return Replacement(file, symbol, old, new)


def _taken(path: Path, data: dict[str, Any], key: str, kind: type) -> Any:
    """A value that must be there, taken out of a table. Raises MutationError."""
    value = data.pop(key, None)
    if not isinstance(value, kind):
        raise MutationError(f"{path.name}: {key} must be there, and {kind.__name__}: {value!r}")
    return value


def all_mutations() -> list[Mutation]:
    """All of this directory, by name."""
    return [read_mutation(path) for path in sorted(HERE.glob("*.toml"))]


def copy_code(target: Path, source: Path = ROOT) -> None:
    """Copies what a hunt needs from `source` to the directory `target`, which is made."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.toml", "*.pyc")
    for place in _COPIED:
        shutil.copytree(source / place, target / place, ignore=leave_out)
    for module in ("__init__.py", "inside.py"):
        shutil.copy(source / "tests" / module, target / "tests" / module)


def apply_mutation(mutation: Mutation, target: Path) -> None:
    """Applies a mutation to the copy in `target`, whole or not at all. Raises MutationError."""
    for file, text in changed(mutation, target).items():
        (target / file).write_text(text)


def changed(mutation: Mutation, root: Path) -> Mapping[str, str]:
    """The new texts of the files under `root` that a mutation changes. Raises MutationError."""
    texts: dict[str, str] = {}
    for each in mutation.replacements:
        try:
            if each.file not in texts:
                texts[each.file] = (root / each.file).read_text()
            texts[each.file] = replace_in_symbol(texts[each.file], each.symbol, each.old, each.new)
        except (FileNotFoundError, SyntaxError, SymbolError) as error:
            raise MutationError(
                f"{mutation.name} does not apply, the code has changed: {each.file}: {error}"
            ) from None
    return texts
