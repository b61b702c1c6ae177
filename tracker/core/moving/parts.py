"""What a pipeline that moves is, as plain data: all shards' parts put together, and dealt to other shards.

A pipeline at rest has said all that it has to say in the group that it leaves: every shard has applied all that any home
had logged of it. So what all of them must know is the same at each; what is a shard's own (cells, names, nodes, ledgers)
lies side by side; and what was announced by any is announced. The shards of the other group begin with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tracker.core.log.sizes import (
    CELL_BYTES,
    given_up_bytes,
    node_bytes,
    pieces,
    staged_bytes,
    unit_bytes,
)
from tracker.core.log.steps import LateEntry
from tracker.core.model import Cells, Dropped
from tracker.core.model import durable as d
from tracker.core.model.routing import RoutingTable
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.core.shard.cells import kept_items, shown_items
from tracker.core.shard.shard import FrontState, KeyState

MAX_PIECES = 100_000
"""Of a part: what a shard keeps of one pipeline that comes is bounded by the pipeline's own limits, cut into pieces."""
MAX_PIECE_BYTES = 1024 * 1024
"""Of what a piece has, about; a larger thing is alone in its piece."""
_LONG = ("cells", "units", "nodes", "staged", "written_off")
"""What grows with what is open, and is cut into pieces."""
_ORDER: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("units", lambda unit: (unit.segment, unit.slot, unit.name)),
    ("nodes", lambda node: (node.evicted, "" if node.evicted else node.key.node_id)),
    ("staged", lambda staged: (staged[0], staged[1].key)),
)
"""Of what a process may keep in another order when it comes back: by what it is ordered. Nodes that are gone, and what was written
off, stay in the order in which they came to be: the first are forgotten first."""

Thing = TypeVar("Thing")


def put_together(parts: Mapping[int, PipelineSnapshot]) -> PipelineSnapshot:
    """A whole pipeline at rest, from the part of each shard of its group. Cells and names that belong to a shard are its alone,
    so that none is there twice."""
    known = [parts[shard] for shard in sorted(parts)]
    first = known[0]
    durable = [part.durable or part.published for part in known]
    announced = _highest(durable)
    return _with(
        first,
        runs=(),
        published=_highest([part.published for part in known]),
        durable=announced if first.restarts else (),
        departed_floors=_highest([part.departed_floors for part in known]),
        history=_of_the_furthest(known),
        restarts=_restarts(known),
        begun=any(part.begun for part in known),
        activated=(),
        keys=_keys(known),
        fronts=_fronts(known),
        cells=Cells.concatenate(part.cells for part in known),
        units=_all(part.units for part in known),
        early_units=_all(part.early_units for part in known),
        nodes=_all(part.nodes for part in known),
        staged=_all(part.staged for part in known),
        written_off=_all(part.written_off for part in known),
        late=_late(known),
        written_off_items=_items(known),
    )


def dealt(whole: PipelineSnapshot, table: RoutingTable, shard: int) -> PipelineSnapshot:
    """What a shard of the group that a pipeline moves to has of it. Ledgers that are of no slot go to its registrar."""
    name = whole.spec.name
    cells = whole.cells
    if len(cells):
        cells = cells.select(table.owners(cells.slots, name) == shard)
    counts = table.registrar(name) == shard
    return _with(
        whole,
        cells=cells,
        units=tuple(u for u in whole.units if table.names_keeper(name, u.segment) == shard),
        early_units=tuple(u for u in whole.early_units if table.names_keeper(name, u[0]) == shard),
        nodes=tuple(n for n in whole.nodes if table.home(name, n.key.node_id) == shard),
        staged=tuple(s for s in whole.staged if table.home(name, s[0]) == shard),
        written_off=tuple(w for w in whole.written_off if table.owner(w.slot, name) == shard),
        late=whole.late if counts else (),
        written_off_items=whole.written_off_items if counts else (),
        restarts=whole.restarts
        if counts
        else tuple(replace(each, cells=()) for each in whole.restarts),
    )


def in_pieces(
    part: PipelineSnapshot, most_bytes: int = MAX_PIECE_BYTES
) -> Iterator[PipelineSnapshot]:
    """A part in pieces of about that size: the first has all that is short, and each further one some of what is long, in an order
    that is the same after a crash: the other group knows pieces by their numbers."""
    part = _with(part, **{name: tuple(sorted(getattr(part, name), key=by)) for name, by in _ORDER})
    empty = {"cells": Cells.empty(), "units": (), "nodes": (), "staged": (), "written_off": ()}
    yield _with(part, **empty)
    bare = _with(part, **empty, **dict.fromkeys(_SHORT, ()), changed=None, before=None, held=None)
    number = max(1, most_bytes // CELL_BYTES)
    for start in range(0, len(part.cells), number):
        yield _with(bare, cells=part.cells.between(start, min(start + number, len(part.cells))))
    for units in pieces(part.units, unit_bytes, most_bytes):
        yield _with(bare, units=units)
    for nodes in pieces(part.nodes, node_bytes, most_bytes):
        yield _with(bare, nodes=nodes)
    for staged in pieces(part.staged, staged_bytes, most_bytes):
        yield _with(bare, staged=staged)
    for given_up in pieces(part.written_off, given_up_bytes, most_bytes):
        yield _with(bare, written_off=given_up)


def of_pieces(kept: Sequence[d.Snapshot]) -> PipelineSnapshot:
    """The part that was cut into these pieces, in their order."""
    first = kept[0]
    assert isinstance(first, PipelineSnapshot)
    return _with(
        first,
        cells=Cells.concatenate(piece.cells for piece in kept),
        units=_all(piece.units for piece in kept),
        nodes=_all(piece.nodes for piece in kept),
        staged=_all(piece.staged for piece in kept),
        written_off=_all(piece.written_off for piece in kept),
    )


_SHORT = tuple(
    name
    for name, kind in PipelineSnapshot.__annotations__.items()
    if name not in _LONG and getattr(kind, "__origin__", None) is tuple
)


def _with(part: PipelineSnapshot, **changed: Any) -> PipelineSnapshot:
    return replace(part, **changed)


def _all(things: Iterable[tuple[Thing, ...]]) -> tuple[Thing, ...]:
    return tuple(each for some in things for each in some)


def _highest(slots: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """By segment number the largest; a shard may not have any."""
    return tuple(map(max, zip(*(some for some in slots if some), strict=True)))


def _keys(known: Sequence[PipelineSnapshot]) -> tuple[KeyState, ...]:
    keys: dict[Any, KeyState] = {}
    for part in known:
        for state in part.keys:
            before = keys.get(state.key)
            number = state.number if before is None else max(state.number, before.number)
            keys[state.key] = replace(state, number=number)
    return tuple(keys.values())


def _fronts(known: Sequence[PipelineSnapshot]) -> tuple[FrontState, ...]:
    """Each with the largest of its pins, once every shard has pinned it: its grant is none less. Else it is pinned anew, by
    what all have announced."""
    fronts: dict[Any, list[FrontState]] = {}
    for part in known:
        for state in part.fronts:
            fronts.setdefault((state.node_id, state.front), []).append(state)
    merged = []
    for states in fronts.values():
        pins = [state.pin for state in states if state.pin is not None]
        promised = [state.promised for state in states if state.promised is not None]
        merged.append(
            replace(
                states[0],
                pin=max(pins) if len(pins) == len(known) else None,
                promised=max(promised, default=None),
            )
        )
    return tuple(merged)


def _of_the_furthest(known: Sequence[PipelineSnapshot]) -> tuple[Any, ...]:
    """Of each segment the history of the shard that has announced most there."""
    segments = range(len(known[0].published))
    furthest = [max(known, key=lambda part: part.published[segment]) for segment in segments]
    return tuple(
        kept
        for segment, part in zip(segments, furthest, strict=True)
        for kept in part.history
        if kept.segment == segment
    )


def _restarts(known: Sequence[PipelineSnapshot]) -> tuple[Dropped, ...]:
    """How its generations began: nowhere below where it began at any shard, with what all of them dropped. A shard may have
    gone from one to the next but one."""
    begun: dict[int, list[Dropped]] = {}
    for part in known:
        for dropped in part.restarts:
            begun.setdefault(dropped.restart.generation, []).append(dropped)
    return tuple(
        Dropped(each[0].restart, max(d.floor for d in each), _all(d.cells for d in each))
        for _, each in sorted(begun.items())
    )


def _late(known: Sequence[PipelineSnapshot]) -> tuple[LateEntry, ...]:
    late: dict[int, LateEntry] = {}
    for part in known:
        for entry in part.late:
            before = late.get(entry.segment, LateEntry(entry.segment))
            late[entry.segment] = LateEntry(
                entry.segment,
                shown_items(before.items + entry.items),
                shown_items(before.cells + entry.cells),
                max(before.last_slot, entry.last_slot),
            )
    return tuple(late.values())


def _items(known: Sequence[PipelineSnapshot]) -> tuple[tuple[int, int], ...]:
    items: dict[int, int] = {}
    for part in known:
        for segment, number in part.written_off_items:
            items[segment] = kept_items(items.get(segment, 0) + number)
    return tuple(items.items())
