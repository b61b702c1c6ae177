"""Recovered is live: what a process has after recovery is what was durable in the one that died.

The process that died lived through the records: it judged, appended and applied them one by one. Before
it is compared, it applies what its store held when it died and it had not heard of. Every field of every
state machine is compared, so that one that is added and forgotten by snapshots or by recovery is found:
but those that their component declares to be forgotten, or to be ahead of what is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from tests import inside
from tests.simulation.checkers import Failure
from tracker.core.cut.combiner import Combiner
from tracker.core.cut.graph import SegmentGraph
from tracker.core.home.home import HomePipeline
from tracker.core.model import Cells
from tracker.core.model.durable import Declared, declarations
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process
from tracker.core.shard.cells import CellTable
from tracker.core.shard.names import UnitNames
from tracker.core.shard.shard import FrontState, ShardPipeline
from tracker.core.shard.written_off import WrittenOffLedger

GIVEN = {"config", "_config", "_effects"}
"""What a component is given and keeps no state in."""
SAVED_WHOLE = {FrontState}
"""What snapshots hold as it is: each field of it is durable."""
PLAIN = {int, str, bytes, bool, float, type(None), np.int64, np.uint64}
"""What is compared as it is."""
TABLES = {CellTable, Cells, np.ndarray, UnitNames, RoutingTable}
"""What is compared by its contents, however it is laid out."""
FOLLOWING = {SegmentGraph, Combiner}
"""What follows from the specification, and what was heard: not compared."""
ORDERED = {(HomePipeline, "nodes"), (WrittenOffLedger, "cells")}
"""Tables whose order decides who is forgotten first."""


@dataclass(frozen=True)
class Died:
    """A process that died, and the last position that its store held then."""

    process: Process
    durable: int


def check_recovered(died: Died, recovered: inside.JustRecovered, now_ns: int) -> bool:
    """Raises Failure where a process that has just recovered differs from the one that died; returns
    whether that one had lost nothing, so that all could be compared."""
    process = died.process
    inside.apply_up_to(process, died.durable, now_ns)
    whole = process.position == died.durable
    before, after = _tree(process, whole), _tree(recovered, whole)
    if before != after:
        path, was, found = next(_differences("", before, after))
        raise Failure(
            "broken",
            f"shard {process.shard} has forgotten or invented something when it came back:{path} "
            f"was {was!r} and is {found!r}",
        )
    return whole


def _differences(path: str, was: Any, found: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two trees differ, and what is there in each."""
    if was == found:
        return
    if not (isinstance(was, dict) and isinstance(found, dict)):
        yield path, was, found
        return
    for key in [*was, *(key for key in found if key not in was)]:
        where = f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"
        yield from _differences(where, was.get(key, "not there"), found.get(key, "not there"))


def _tree(value: Any, whole: bool) -> Any:
    """Every value that is compared: dictionaries in dictionaries, by the names of fields and by keys."""
    kind = _kind(value)
    if kind in PLAIN:
        return value
    if kind in TABLES:
        return _contents(value)
    if kind in FOLLOWING:
        return None
    if isinstance(value, dict):
        tree = {
            key: each if type(each) in PLAIN else _tree(each, whole) for key, each in value.items()
        }
        if kind is dict:
            return tree
        if kind is OrderedDict:
            return {"entries": tree, "order": [*value]}
        return {"entries": tree, "fields": _fields(value, whole)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if is_dataclass(kind) or kind.__module__.startswith("tracker."):
        return _fields(value, whole)
    if isinstance(value, (list, tuple)) or hasattr(value, "popleft"):
        return [_tree(each, whole) for each in value]
    return value


def _fields(value: Any, whole: bool) -> dict[str, Any]:
    """The fields of an object that are compared. Raises Failure for one of which nothing is declared."""
    kind = _kind(value)
    is_component = kind in inside.COMPONENTS
    tree = {}
    for name, said in _names(kind, *getattr(value, "__dict__", ())):
        if said is not None and (said.is_forgotten or (said.ahead and not whole)):
            continue
        held = getattr(value, name)
        if is_component and type(held) in inside.COMPONENTS:
            continue  # compared once, as the process holds it
        if said is None and (is_component or _declared(kind)) and kind not in SAVED_WHOLE:
            raise Failure(
                "broken", f"{kind.__name__}.{name} is not declared: does it survive a crash?"
            )
        if name == "units" and kind is ShardPipeline:
            held = {segment: names for segment, names in held.items() if len(names) or names.early}
        if (kind, name) in ORDERED:
            tree[f"{name} in order"] = [*held]
        tree[name] = held if type(held) in PLAIN else _tree(held, whole)
    if kind is HomePipeline and whole:
        tree["waiting"] = sorted(_waiting(value))
    return tree


def _kind(value: Any) -> type:
    return Process if isinstance(value, Process) else type(value)


@cache
def _declared(kind: type) -> Mapping[str, Declared]:
    return declarations(kind) if is_dataclass(kind) else {}


@cache
def _names(kind: type, *of_the_object: str) -> tuple[tuple[str, Declared | None], ...]:
    """The fields of an object, those in its dictionary and those in slots of its class, with what is declared of each."""
    names = [*of_the_object]
    for base in kind.__mro__:
        slots = getattr(base, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    said = _declared(kind)
    return tuple(
        (name, said.get(name)) for name in names if not name.startswith("__") and name not in GIVEN
    )


def _waiting(home: HomePipeline) -> Iterator[tuple[str, str]]:
    """The fronts that wait for their grant; those that have gone may still be listed."""
    for node_id, front in home.waiting:
        if node_id in home.nodes and front in home.nodes[node_id].fronts:
            yield node_id, front


def _contents(value: Any) -> Any:
    """What a table holds, however it is laid out."""
    if isinstance(value, CellTable):
        return value.open_cells().rows(), value.open_items
    if isinstance(value, Cells):
        return sorted(value.rows())
    if isinstance(value, UnitNames):
        return sorted((unit.slot, unit.name) for unit in value.units(0)), sorted(value.early)
    if isinstance(value, RoutingTable):
        return value.version, value.entries, sorted(value.pipelines.items())
    return value.tolist()
