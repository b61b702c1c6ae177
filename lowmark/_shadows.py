"""Whether the packages below the public face are Lowmark's: `tracker`, `fronts` and `acker` are common names.

Programs have a `tracker.py` beside them, which Python finds first, and the package index has others of
these names, which write over ours in the same directory. So each of our packages holds a mark, which is
read from the source that Python would import; nothing is imported for that.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PACKAGES = ("tracker", "local_tracker", "fronts", "acker")
MARK = '__part_of__ = "lowmark"'
"""Stands in the `__init__.py` of each."""


def warn_if_hidden() -> None:
    """Warns whoever imports the public face, in one line, of packages that are not ours."""
    foreign = foreign_packages()
    if foreign:
        warnings.warn(_explain(foreign), RuntimeWarning, stacklevel=3)


def import_ours(module: str) -> ModuleType:
    """Imports a module of one of our packages. Raises ImportError, which says what to do where a package
    that is not ours is in the way; what is not ours is not run for it if that can be told before."""
    foreign = foreign_packages()
    if {"tracker", module.partition(".")[0]} & foreign.keys():
        raise ImportError(_explain(foreign), name=module)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in foreign:
            raise ImportError(_explain(foreign), name=module) from error
        raise


def foreign_packages() -> dict[str, str]:
    """Where what is not ours was found, by name. A package that is nowhere is not foreign."""
    found = {name: _foreign(name) for name in PACKAGES}
    return {name: where for name, where in found.items() if where is not None}


def source_of(spec: ModuleSpec) -> str | None:
    """The source of a module that may be imported; None where there is byte code alone, empty where it is no Python."""
    of_loader: Callable[[str], str | None] | None = getattr(spec.loader, "get_source", None)
    if of_loader is not None:
        return of_loader(spec.name)
    # pytest imports by a loader of its own what came with a plugin, and that one gives no source.
    origin = spec.origin or ""
    return Path(origin).read_text(encoding="utf-8") if origin.endswith(".py") else ""


def _explain(foreign: dict[str, str]) -> str:
    hidden = ", ".join(f"{name!r} by {where}" for name, where in foreign.items())
    return (
        f"Lowmark's own packages are hidden ({hidden}): rename what is yours, or uninstall what "
        f"brought it and install lowmark again"
    )


def _foreign(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # in sys.modules without a spec: somebody has put it there by hand
        return "a module made while running"
    if spec is None:
        return None
    try:
        source = source_of(spec)
    except (ImportError, OSError, SyntaxError):
        source = ""
    # Without a source (byte code alone) nobody can tell, and nobody is blamed.
    if source is None or MARK in source:
        return None
    return spec.origin or ", ".join(spec.submodule_search_locations or ()) or "something unknown"
