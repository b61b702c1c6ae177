"""Everything durable that a process knows, as plain data: what a prefix of its log amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.messages import Entry, TouchedRun
from tracker.core.model import (
    Batch,
    Cells,
    NodeKey,
    PipelineSpec,
    StagedContribution,
    Unit,
)
from tracker.core.pipeline import Dropped
from tracker.core.written_off import WrittenOffCell


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at its home. `batches`: those remembered of each scope, oldest first; `consumes` and
    `creates`: segment numbers."""

    key: NodeKey
    kind: str
    durable: int
    previous_node_time: int
    evicted: bool
    batches: tuple[Batch, ...]
    retired: bool = False
    consumes: tuple[int, ...] = ()
    creates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """A key at a shard: its node time, and whether it is closed."""

    key: NodeKey
    kind: str
    number: int
    closed: bool


@dataclass(frozen=True, slots=True)
class FrontSnapshot:
    """A front at a shard; `pin` and `promised` are None until there is one."""

    node_id: str
    front: str
    segment: int
    incarnation: int
    number: int
    pin: int | None
    promised: int | None


@dataclass(frozen=True, slots=True)
class LateSnapshot:
    """One segment's late ledger at a shard."""

    segment: int
    items: int
    cells: int
    last_slot: int


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """One segment's history in one of its steps (by their order): when which min time was announced,
    as (slot, unix time in milliseconds); nothing is remembered of slots up to `since`."""

    segment: int
    tier: int
    since: int
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSnapshot:
    """One pipeline at a process. `said`: the announced min times by segment number; `runs`: entries
    of which it is not known that every shard has applied them; `written_off_items`: by segment
    number; `restarts`: how its generations after the first began; `reached`: the min times announced in
    the present one, if it is not the first."""

    spec: PipelineSpec
    said: tuple[int, ...]
    begun: bool
    joined: tuple[tuple[str, str], ...]
    cells: Cells
    keys: tuple[KeySnapshot, ...]
    fronts: tuple[FrontSnapshot, ...]
    units: tuple[Unit, ...]
    late: tuple[LateSnapshot, ...]
    runs: tuple[TouchedRun, ...]
    nodes: tuple[NodeSnapshot, ...]
    staged: tuple[tuple[str, StagedContribution], ...]
    written_off: tuple[WrittenOffCell, ...] = ()
    written_off_items: tuple[tuple[int, int], ...] = ()
    restarts: tuple[Dropped, ...] = ()
    reached: tuple[int, ...] = ()
    history: tuple[HistorySnapshot, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ProcessSnapshot:
    """A process after the records up to `position`.

    home_last: number of its home log's last entry; outbox: the last entries, which some shard has
    not confirmed; confirmed and received: by other shard; closed: keys to drop once every shard has
    confirmed an entry number; cut: M, by which runs were let go.
    """

    position: int
    home_last: int
    next_incarnation: int
    outbox: tuple[Entry, ...]
    confirmed: tuple[tuple[int, int], ...]
    received: tuple[tuple[int, int], ...]
    closed: tuple[tuple[int, str, NodeKey], ...]
    cut: tuple[tuple[int, int], ...]
    pipelines: tuple[PipelineSnapshot, ...]
