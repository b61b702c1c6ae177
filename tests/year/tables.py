"""What is kept in memory: every container that can be reached from the parts of a process, by the field that holds it.

Nothing is listed here, so that a table that is new is counted, too.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_OURS = "tracker."
_INT_BYTES = sys.getsizeof(1 << 40)
_MANY = (dict, list, set, frozenset, deque, tuple)


@dataclass(slots=True)
class Table:
    """All containers of one field. entries: of all of them together, those within others too; most: of the largest
    one; size_bytes: with what is in them, up to objects that have fields themselves."""

    entries: int = 0
    most: int = 0
    size_bytes: int = 0

    def add(self, entries: int) -> None:
        self.entries += entries
        self.most = max(self.most, entries)


class Kept:
    """tables: by `Class.field`; objects: how many there are of each class, by its name."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.tables: dict[str, Table] = {}
        self.objects: dict[str, int] = {}
        self._seen: set[int] = set()
        self._waiting: list[tuple[Any, Table]] = [(root, Table()) for root in roots]
        while self._waiting:
            self._look(*self._waiting.pop())

    @property
    def size_bytes(self) -> int:
        """Of all tables together."""
        return sum(table.size_bytes for table in self.tables.values())

    def _look(self, value: Any, table: Table) -> None:
        kind = value.__class__
        if kind is int or kind is float:
            table.size_bytes += _INT_BYTES
            return
        if value is None or kind is bool or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if kind is str or kind is bytes:
            table.size_bytes += sys.getsizeof(value)
        elif isinstance(value, np.ndarray):
            table.add(value.size)
            table.size_bytes += value.nbytes
        elif isinstance(value, array):
            table.add(len(value))
            table.size_bytes += sys.getsizeof(value)
        elif isinstance(value, _MANY):
            self._look_into(value, table)
        if kind.__module__.startswith(_OURS) and not isinstance(value, type):
            self._look_at_fields(value, kind)  # also of a container of ours

    def _look_into(self, value: Any, table: Table) -> None:
        if not isinstance(value, tuple):
            table.add(len(value))
        table.size_bytes += sys.getsizeof(value)
        if isinstance(value, list) and value and value[0].__class__ is value[-1].__class__ is int:
            table.size_bytes += _INT_BYTES * len(value)
            return
        self._waiting += ((each, table) for each in value)
        if isinstance(value, dict):
            self._waiting += ((each, table) for each in value.values())

    def _look_at_fields(self, value: Any, kind: type) -> None:
        self.objects[kind.__name__] = self.objects.get(kind.__name__, 0) + 1
        for name, held in _fields(value, kind):
            table = self.tables.setdefault(f"{kind.__name__}.{name}", Table())
            if held.__class__ is tuple:
                table.add(len(held))
            self._waiting.append((held, table))


def _fields(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for base in kind.__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if hasattr(value, name):
                yield name, getattr(value, name)
