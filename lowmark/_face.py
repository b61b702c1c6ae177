"""The names of a module of the public face, each declared once: by its import for type checkers.

A module of the face holds nothing but imports under `if TYPE_CHECKING:`, which only type checkers and editors carry
out. Here they are read from the module's own source, and each is carried out when its name is first used. So a name
stands in one line, and a program loads what it uses alone. (A stub beside the module, as `lazy_loader` reads it, is no
way here: executors import the face out of a zip.)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

from lowmark._shadows import import_ours, source_of


def of(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a module of the face. Raises ImportError where its source can't be
    had, since the names stand nowhere else."""
    where = declared(_source(module))

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = _imported(where[name], name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *where})

    return sorted(where), get, names


def declared(source: str) -> dict[str, str]:
    """By each name that a module of the face imports for type checkers, the module that it comes from."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _source(module: str) -> str:
    spec = sys.modules[module].__spec__
    source = source_of(spec) if spec else None
    if not source:
        raise ImportError(
            f"the source of {module} is not there: install lowmark whole", name=module
        )
    return source


def _imported(module: str, name: str) -> Any:
    """A name of a module; or, where it is one, the module below it."""
    value = getattr(import_ours(module), name, None)
    return import_ours(f"{module}.{name}") if value is None else value
