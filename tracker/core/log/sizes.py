"""About how many bytes things take on the wire, at most: by this, entries and frames are kept small.

Nobody needs the exact number: what counts is that it is never less than what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tracker.core.log import (
    GroupKnown,
    HomeEntry,
    KeyProgress,
    KeyTick,
    PipelineChanged,
    PipelineRegistered,
    Placed,
    ReceivedEntries,
    Record,
    Staged,
    TickColumns,
    TickRun,
    Told,
    WrittenOff,
    losses,
    steps,
)
from tracker.core.log.losses import PipelineKnown, ShardsKnown, WithoutLost
from tracker.core.model import (
    Batch,
    Cells,
    NodeKey,
    PipelineSpec,
    StagedContribution,
    Unit,
    WrittenOffCell,
)
from tracker.core.model.nodes import NodeSnapshot
from tracker.core.model.placements import Placement
from tracker.core.model.routing import RoutingTable

CELL_BYTES = 28
_NUMBER_BYTES = 11
"""Of an int64 and what it is."""
_PART_BYTES = 8
"""What a part of a message takes beside what is in it."""
ENTRY_BYTES = 256
"""Of an entry beside what can be long."""

Thing = TypeVar("Thing")


def pieces(
    things: Iterable[Thing],
    bytes_of: Callable[[Thing], int],
    most_bytes: int,
    most: int | None = None,
) -> Iterator[tuple[Thing, ...]]:
    """The things in their order, as many together as so many bytes take, and `most` of them; a larger one is
    alone."""
    piece: list[Thing] = []
    size = 0
    for thing in things:
        added = bytes_of(thing)
        is_full = most is not None and len(piece) >= most
        if piece and (is_full or size + added > most_bytes):
            yield tuple(piece)
            piece, size = [], 0
        piece.append(thing)
        size += added
    if piece:
        yield tuple(piece)


def text_bytes(text: str) -> int:
    return _PART_BYTES + (len(text) if text.isascii() else 4 * len(text))


def cells_bytes(cells: Cells) -> int:
    return 5 * _PART_BYTES + CELL_BYTES * len(cells)


def unit_bytes(unit: Unit) -> int:
    return _PART_BYTES + text_bytes(unit.name) + 2 * _NUMBER_BYTES


def given_up_bytes(cell: WrittenOffCell) -> int:
    return _PART_BYTES + text_bytes(cell.node_id) + 7 * _NUMBER_BYTES


def node_bytes(node: NodeSnapshot) -> int:
    grants = sum(
        _PART_BYTES + text_bytes(pin.node_id) + text_bytes(pin.front) + 4 * _NUMBER_BYTES
        for pin in node.grants
    )
    return (
        _PART_BYTES + _key_bytes(node.key) + text_bytes(node.kind) + text_bytes(node.owner)
        + (4 + len(node.consumes) + len(node.creates)) * _NUMBER_BYTES + 2 * _PART_BYTES
        + sum(map(_batch_bytes, node.batches)) + grants
        + sum(_PART_BYTES + text_bytes(held.name) + 4 * _NUMBER_BYTES for held in node.holds)
    )  # fmt: skip


def staged_bytes(staged: tuple[str, StagedContribution]) -> int:
    node_id, c = staged
    names = (node_id, c.query, c.run, c.operator)
    cells = cells_bytes(c.created) + cells_bytes(c.consumed)
    return 2 * _PART_BYTES + sum(map(text_bytes, names)) + 5 * _NUMBER_BYTES + cells


def summary_bytes(words: steps.DepartureSummary) -> int:
    numbers = 3 + len(words.announced) + 4 * len(words.late) + 2 * len(words.written_off_items)
    parts = 3 + len(words.late) + len(words.written_off_items)
    return text_bytes(words.pipeline) + numbers * _NUMBER_BYTES + parts * _PART_BYTES


def known_bytes(known: PipelineKnown) -> int:
    specs = _spec_bytes(known.spec) + (_spec_bytes(known.changed) if known.changed else 0)
    listed = 5 * len(known.open) + 3 * len(known.before)
    parts = len(known.open) + len(known.before)
    return specs + 2 * ENTRY_BYTES + parts * _PART_BYTES + listed * _NUMBER_BYTES


def placed_bytes(placement: Placement) -> int:
    return _PART_BYTES + text_bytes(placement.pipeline) + 4 * _NUMBER_BYTES


def entry_bytes(entry: Told) -> int:
    """Of a whole entry; the part that a shard gets is not larger. Or of a run as it is told."""
    return ENTRY_BYTES + _long_bytes(entry)


def kept_bytes(entry: Told) -> int:
    """About what an entry takes while it is kept. A tick as it came says that by itself."""
    if entry.__class__ is KeyTick and (told := entry.tick.content.told) is not None:
        return ENTRY_BYTES + len(told)
    return entry_bytes(entry)


def record_bytes(record: Record) -> int:
    """About what a record takes while it is kept, and in the store."""
    if record.__class__ is HomeEntry:  # most are
        return kept_bytes(record.entry)
    match record:
        case ReceivedEntries():
            return sum(map(kept_bytes, record.entries))
        case Staged():
            return sum(staged_bytes((record.node_id, c)) for c in record.contributions)
    return ENTRY_BYTES


def progress_bytes(progress: KeyProgress) -> int:
    promises = sum(text_bytes(h.front) + _PART_BYTES + _NUMBER_BYTES for h in progress.heartbeats)
    named = text_bytes(progress.pipeline) + _key_bytes(progress.key)
    return _PART_BYTES + named + _NUMBER_BYTES + promises


def owned_bytes(run: TickRun) -> int:
    """Of what a run has for one shard alone, beside the keys, which all are told."""
    parts = sum(_NUMBER_BYTES + entry_bytes(part) for _, part in run.parts)
    return sum(map(_columns_bytes, run.columns)) + parts


def _columns_bytes(columns: TickColumns) -> int:
    lists = 5 * (_PART_BYTES + _NUMBER_BYTES * len(columns))
    cells = cells_bytes(columns.created) + cells_bytes(columns.consumed)
    return _PART_BYTES + text_bytes(columns.pipeline) + lists + cells


def _long_bytes(entry: Told) -> int:
    match entry:
        case TickRun():
            return sum(map(progress_bytes, entry.keys)) + owned_bytes(entry)
        case KeyTick():
            return _tick_bytes(entry)
        case PipelineRegistered() | PipelineChanged():
            return _spec_bytes(entry.spec)
        case WrittenOff():
            return sum(map(text_bytes, (entry.pipeline, entry.node_id))) + cells_bytes(entry.cells)
        case steps.NodesMoved():
            things = sum(map(node_bytes, entry.nodes)) + sum(map(staged_bytes, entry.staged))
            return text_bytes(entry.pipeline) + things
        case steps.CellsMoved():
            named = sum(map(unit_bytes, entry.units + entry.consumed)) + sum(
                map(given_up_bytes, entry.written_off)
            )
            return text_bytes(entry.pipeline) + cells_bytes(entry.cells) + named
        case steps.DepartureSummarized():
            return sum(map(summary_bytes, entry.pipelines))
        case steps.ShardLeft():
            applied = (_PART_BYTES + 2 * _NUMBER_BYTES) * len(entry.applied)
            return applied + sum(map(summary_bytes, entry.pipelines))
        case losses.LossHeard() | losses.ShardLost():
            ended = sum(_PART_BYTES + text_bytes(name) + _NUMBER_BYTES for name, _ in entry.ended)
            things = sum(map(known_bytes, entry.pipelines)) + sum(map(placed_bytes, entry.placed))
            return things + ended + _shards_bytes(entry.shards)
        case losses.LossDeclared():
            return _NUMBER_BYTES * len(entry.lost)
        case Placed():
            return placed_bytes(entry.placement)
        case GroupKnown():
            return sum(map(text_bytes, entry.group.addresses))
        case steps.SlotBounds():
            return sum(_PART_BYTES + text_bytes(name) + _NUMBER_BYTES for name, _ in entry.slots)
        case steps.RoutingChanged():
            return _table_bytes(entry.table)
    key = getattr(entry, "key", None)
    names = [getattr(entry, name, "") for name in ("pipeline", "kind", "owner", "address")]
    return sum(map(text_bytes, names)) + (_key_bytes(key) if isinstance(key, NodeKey) else 0)


def _shards_bytes(shards: ShardsKnown | WithoutLost | None) -> int:
    """Of numbers by shard, in each of which there are no more than of shards that have ever been."""
    most = 0 if shards is None else 4 * (shards.next_shard + 1) * (_PART_BYTES + 2 * _NUMBER_BYTES)
    for move in () if shards is None else shards.moving:
        numbers = 5 + len(move.ready) + len(move.lost)
        most += text_bytes(move.pipeline) + _PART_BYTES + numbers * _NUMBER_BYTES
    return most + (_table_bytes(shards.table) if isinstance(shards, WithoutLost) else 0)


def _tick_bytes(entry: KeyTick) -> int:
    content = entry.tick.content
    names: list[str] = []
    if content.heartbeats or content.joins or content.leaves or content.holds:  # most have none
        names += [heartbeat.front for heartbeat in content.heartbeats]
        names += [join.front for join in content.joins]
        names += content.leaves
        names += [move.name for move in content.holds]
    cells = len(content.created) + len(content.consumed) + len(entry.late)
    return (
        text_bytes(entry.tick.pipeline) + _key_bytes(entry.tick.key) + CELL_BYTES * cells
        + sum(text_bytes(name) + _PART_BYTES + 2 * _NUMBER_BYTES for name in names)
        + sum(map(unit_bytes, content.units_created)) + sum(map(unit_bytes, content.units_consumed))
        + (_batch_bytes(content.batch) if content.batch is not None else 0)
    )  # fmt: skip


def _spec_bytes(spec: PipelineSpec) -> int:
    edges = (text_bytes(e.source) + text_bytes(e.target) + _NUMBER_BYTES for e in spec.edges)
    policies = (text_bytes(p.front) + 3 * _NUMBER_BYTES for p in spec.front_policies)
    names = (text_bytes(name) for name in (spec.name, *spec.segments, *spec.fronts, *spec.removed))
    parts = _PART_BYTES * (len(spec.edges) + len(spec.front_policies))
    return sum(names) + sum(edges) + sum(policies) + parts


def _table_bytes(table: RoutingTable) -> int:
    named = table.pipelines
    entries = [*table.entries, *(entry for own in named.values() for entry in own)]
    shards = sum(len(entry.shards) for entry in entries)
    return (
        (_PART_BYTES + 3 * _NUMBER_BYTES) * len(entries) + _NUMBER_BYTES * shards
        + sum(_PART_BYTES + text_bytes(name) for name in named)
    )  # fmt: skip


def _key_bytes(key: NodeKey) -> int:
    return _PART_BYTES + text_bytes(key.node_id) + _NUMBER_BYTES


def _batch_bytes(batch: Batch) -> int:
    return 2 * _PART_BYTES + text_bytes(batch.scope) + _NUMBER_BYTES + len(batch.fingerprint)
