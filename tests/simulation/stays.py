"""In which group each pipeline lives, and what it has there: by the logs of all groups, and by nothing that is handed over.

A pipeline lives in one group at a time, from when its sequencer has logged that the pipeline is there until the other's has.
Meanwhile no other group logs anything of it; and a home that has said that it has logged its last of it does not go on before the
move is given up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.checkers import Failure
from tracker.core.log import (
    Announcement,
    Entry,
    HomeEntry,
    KeyDropped,
    KeyOpened,
    KeyTick,
    PipelineChanged,
    PipelineRegistered,
    Placed,
    Record,
    pipeline_of,
)
from tracker.core.log.steps import MoveBegun, MoveEnded, MoveReady
from tracker.core.model import NodeKey
from tracker.core.model.placements import DIRECTORY_GROUP

CellKey = tuple[int, int]
"""(segment number, slot)."""


@dataclass(slots=True)
class Whole:
    """What a generation of a pipeline is, at all shards of its group together."""

    cells: dict[CellKey, int] = field(default_factory=dict)
    times: dict[NodeKey, int] = field(default_factory=dict)

    def copy(self) -> Whole:
        return Whole(dict(self.cells), dict(self.times))


class Stays:
    """Of every pipeline the group that it lives in, and how often it has come to one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """The number of the stay, from 0."""
        self.moves = False
        """Whether there is more than one group."""
        self.begun_with: dict[tuple[str, int, int], Whole] = {}
        """By pipeline, generation and stay what the pipeline had when that began."""
        self.groups: dict[str, int] = {}
        """The group that a pipeline lives in, once it is registered."""
        self._wholes: defaultdict[tuple[str, int], Whole] = defaultdict(Whole)
        self._by_version: dict[tuple[str, int], int] = {}
        self._under_way: dict[tuple[int, int], MoveBegun] = {}
        """By group and number of the move."""
        self._at_rest: dict[str, set[tuple[int, int]]] = {}
        """By pipeline the homes that have logged their last of it."""
        self.placed: dict[str, tuple[int, int]] = {}
        """By name the newest version of its placement, and the group."""

    def at(self, pipeline: str, placed: int) -> int:
        """The stay that a process is in which has the pipeline by a placement of this version."""
        return self._by_version.get((pipeline, placed), 0)

    def take(self, group: int, shard: int, record: Record) -> MoveEnded | None:
        """A record is durable at a shard; returns the end of a move by which a pipeline has come there."""
        if isinstance(record, Announcement):
            self._check(group, record.pipeline, record)
        if not isinstance(record, HomeEntry):
            return None
        entry = record.entry
        if isinstance(entry, MoveBegun):
            self._under_way[group, entry.number] = entry
        elif isinstance(entry, MoveReady):
            move = self._under_way.get((group, entry.number))
            if move is not None and not move.arrives:
                self._at_rest.setdefault(move.pipeline, set()).add((group, shard))
        elif isinstance(entry, MoveEnded):
            return self._end(group, entry)
        elif isinstance(entry, Placed):
            placement = entry.placement
            self.placed[placement.pipeline] = placement.version, placement.group
        elif isinstance(entry, PipelineRegistered):
            self._check(group, entry.spec.name, entry)
            self.groups[entry.spec.name] = group
        elif (name := pipeline_of(entry)) is not None:
            self._check(group, name, entry)
            is_last = (group, shard) in self._at_rest.get(name, ())
            if is_last and not isinstance(entry, PipelineChanged):
                raise Failure("broken", f"shard {shard} logs {entry}, and had logged its last")
        return None

    def _check(self, group: int, name: str, said: object) -> None:
        if self.groups.get(name, group) != group:
            raise Failure("broken", f"group {group} logs {said}, and {name} is not there")

    def _end(self, group: int, entry: MoveEnded) -> MoveEnded | None:
        move = self._under_way.pop((group, entry.number))
        name = entry.pipeline
        known = self.placed.get(name, (0, DIRECTORY_GROUP))
        if entry.here and known[0] == entry.version and known[1] != group:
            raise Failure("broken", f"{entry} in group {group}, and the directory says {known}")
        if not entry.here:
            return None
        if move.arrives:
            before = self.numbers.get(name, 0)
            self.numbers[name] = before + 1
            self.groups[name] = group
            for (of, generation), whole in self._wholes.items():
                if of == name:
                    self.begun_with[name, generation, before + 1] = whole.copy()
        self._at_rest.pop(name, None)
        self._by_version[name, entry.version] = self.numbers.get(name, 0)
        return entry if move.arrives else None

    def count(
        self, pipeline: str, generation: int, entry: Entry, cells: list[tuple[int, CellKey, int]]
    ) -> None:
        """An entry of a home of the pipeline's group. cells: what it XORs into whose cells: (owner, cell, checksum)."""
        if not self.moves:
            return
        whole = self._wholes[pipeline, generation]
        for _, cell, checksum in cells:
            after = whole.cells.pop(cell, 0) ^ checksum
            if after:
                whole.cells[cell] = after
        if isinstance(entry, KeyTick):
            whole.times[entry.tick.key] = entry.tick.number
        elif isinstance(entry, KeyOpened):
            whole.times.setdefault(entry.key, 0)
        elif isinstance(entry, KeyDropped):
            whole.times.pop(entry.key, None)
