"""Everything durable of one pipeline at one process, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log import TouchedRun
from tracker.core.log.steps import LateSnapshot as LateSnapshot  # noqa: PLC0414 (part of snapshots)
from tracker.core.log.steps import NodeSnapshot as NodeSnapshot  # noqa: PLC0414
from tracker.core.model import (
    Cells,
    Dropped,
    Limits,
    NodeKey,
    PipelineSpec,
    StagedContribution,
    Unit,
    Vacancy,
    WrittenOffCell,
)


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
class HistorySnapshot:
    """One segment's history in one of its steps (by their order): when which min time was announced,
    as (slot, unix time in milliseconds); nothing is remembered of slots up to `since`."""

    segment: int
    tier: int
    since: int
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PipelineSnapshot:
    """One pipeline at a process. `published`: the announced min times by segment number; `runs`: entries
    of which it is not known that every shard has applied them; `written_off_items`: by segment
    number; `restarts`: how its generations after the first began; `durable`: the min times announced in
    the present one, if it is not the first; `departed_floors`: by segment number, what shards that have left
    had announced; `early_units`: by segment number, names consumed before they were handed over; `spec`: as it
    was registered; `limits`: what it goes by since change `limits_number`, if they were changed;
    `vacancies`: places of fronts that were evicted; `left`: by segment number, the furthest promise of
    fronts that left in order."""

    spec: PipelineSpec
    published: tuple[int, ...]
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
    durable: tuple[int, ...] = ()
    history: tuple[HistorySnapshot, ...] = ()
    departed_floors: tuple[int, ...] = ()
    early_units: tuple[tuple[int, str], ...] = ()
    limits: Limits | None = None
    limits_number: int = 0
    vacancies: tuple[Vacancy, ...] = ()
    left: tuple[tuple[int, int], ...] = ()
