"""Recovered is live: what a process has after recovery is what was durable in the one that died.

The process that died lived through the records: it judged, appended and applied them one by one. Before
it is compared, it applies what its store held when it died and it had not heard of. Every field of every
state machine is compared, so that one that is added and forgotten by snapshots or by recovery is found:
but those that their component declares to be forgotten, or to be ahead of what is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from tests import inside
from tests.simulation.checkers import Failure
from tracker.core.cut.combiner import Combiner
from tracker.core.cut.graph import SegmentGraph
from tracker.core.home.home import HomePipeline
from tracker.core.model import Cells
from tracker.core.model.durable import declarations
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
    before, after = (dict(_fields("", each, whole)) for each in (process, recovered))
    for path in sorted(before.keys() | after.keys()):
        was, found = before.get(path, "not there"), after.get(path, "not there")
        if was != found:
            raise Failure(
                "broken",
                f"shard {process.shard} has forgotten or invented something when it came back:{path} "
                f"was {was!r} and is {found!r}",
            )
    return whole


def _fields(path: str, value: Any, whole: bool) -> Iterator[tuple[str, Any]]:
    """Every value that is compared, by where it is."""
    kind = _kind(value)
    if isinstance(value, (SegmentGraph, Combiner)):
        return  # follows from the specification; is what was heard
    if isinstance(value, (CellTable, Cells, np.ndarray, UnitNames, RoutingTable)):
        yield path, _contents(value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield f"{path} has {key!r}", True
            yield from _fields(f"{path}[{key!r}]", each, whole)
        if isinstance(value, OrderedDict):
            yield f"{path} in order", [*value]
        elif kind is not dict:
            yield from _fields_of_object(path, value, whole)
    elif isinstance(value, (set, frozenset)):
        yield path, sorted(value)
    elif hasattr(kind, "__dataclass_fields__") or kind.__module__.startswith("tracker."):
        yield from _fields_of_object(path, value, whole)
    elif isinstance(value, (list, tuple)) or hasattr(value, "popleft"):
        yield f"{path} length", len(value)
        for place, each in enumerate(value):
            yield from _fields(f"{path}[{place}]", each, whole)
    else:
        yield path, value


def _fields_of_object(path: str, value: Any, whole: bool) -> Iterator[tuple[str, Any]]:
    kind = _kind(value)
    said = declarations(kind) if is_dataclass(kind) else {}
    for name in _names(value):
        held = getattr(value, name)
        if name in GIVEN or (kind in inside.COMPONENTS and type(held) in inside.COMPONENTS):
            continue  # compared once, as the process holds it
        if name not in said and (said or kind in inside.COMPONENTS) and kind not in SAVED_WHOLE:
            raise Failure(
                "broken", f"{kind.__name__}.{name} is not declared: does it survive a crash?"
            )
        if name in said and (said[name].is_forgotten or (said[name].ahead and not whole)):
            continue
        if name == "units" and kind is ShardPipeline:
            held = {segment: names for segment, names in held.items() if len(names) or names.early}
        if (kind, name) in ORDERED:
            yield f"{path}.{name} in order", [*held]
        yield from _fields(f"{path}.{name}", held, whole)
    if kind is HomePipeline and whole:
        yield f"{path}.waiting", sorted(_waiting(value))


def _kind(value: Any) -> type:
    return Process if isinstance(value, Process) else type(value)


def _names(value: Any) -> list[str]:
    names = [*getattr(value, "__dict__", ())]
    for base in type(value).__mro__:
        slots = getattr(base, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return [name for name in names if not name.startswith("__")]


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
