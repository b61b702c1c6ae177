"""Digests that are equal for equal state machines, in whatever order their tables were filled."""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import numpy as np

from tests import inside
from tracker.core.model import NodeKey, PipelineSpec
from tracker.core.model.routing import RoutingTable

_LEFT_OUT = {"routing", "config", "graph", "declared", "remaining", "spec", "_routing", "_owners", "_config", "_effects"} | {
    "_wake_ns", "last_report_ns", "announced_due_ns", "check_ns",
    "progress_ns", "front_heard_ns", "last_heard_ns", "last_alive_ns", "silent_ns", "suspected",
    "_joining_since_ns", "moved_cells", "_bootstraps", "_handled_ns", "_checked_ns", "_deaf_until_ns", "_store_mark",
    "_segment_span", "_lowest_slots", "_highest_slot", "_slowest", "_by_home",
}  # fmt: skip
"""Fields that never differ, are emptied before anything looks, are kept of others once they were asked
for, or hold moments that only matter after a time that never passes in the model."""
_AS_THEY_ARE = {int, str, bytes, float, bool, type(None)}


def digest(value: Any) -> bytes:
    """16 bytes that name a value."""
    return blake2b(repr(_plain(value)).encode(), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """Nested tuples: tables in the order of their keys, objects as their fields."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is tuple or kind is list or kind is deque:
        return tuple([e if type(e) in _AS_THEY_ARE else _plain(e) for e in value])
    if kind is dict or kind is OrderedDict:
        return _table(value)
    if kind is set or kind is frozenset:
        return sorted([repr(_plain(each)) for each in value])
    if kind is np.ndarray:
        return value.tobytes()
    if isinstance(value, Enum):
        return value.name
    if kind in _VALUES:
        return kind.__name__, _known_values.setdefault(value, len(_known_values))
    names = _field_names(kind)
    fields = getattr(value, "__dict__", None)
    if fields is not None:
        names += tuple(name for name in fields if name not in _LEFT_OUT)
    held = [getattr(value, name) for name in names]
    if kind in inside.COMPONENTS:  # they know one another: each counts as the process holds it
        held = [each for each in held if type(each) not in inside.COMPONENTS]
    table = _table(value) if isinstance(value, dict) else ()
    return (
        kind.__name__, *table, *[e if type(e) in _AS_THEY_ARE else _plain(e) for e in held]
    )  # fmt: skip


def _table(value: dict[Any, Any]) -> list[tuple[str, Any]]:
    return sorted([(repr(_plain(k)), _plain(v)) for k, v in value.items()], key=itemgetter(0))


def _field_names(kind: type) -> tuple[str, ...]:
    known = _names.get(kind)
    if known is None:
        names: list[str] = []
        for base in kind.__mro__:
            slots = getattr(base, "__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        own = [n for n in names if n not in ("__dict__", "__weakref__") and n not in _LEFT_OUT]
        known = _names[kind] = tuple(own)
    return known


_names: dict[type, tuple[str, ...]] = {}
_VALUES = {RoutingTable, PipelineSpec, NodeKey}
_known_values: dict[Any, int] = {}
"""Of these there are few, and each is known by a number."""
