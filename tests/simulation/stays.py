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
    PipelineDeleted,
    PipelineRegistered,
    Placed,
    Record,
    pipeline_of,
)
from tracker.core.log.steps import MoveBegun, MoveEnded, MoveReady
from tracker.core.model import NodeKey
from tracker.core.model.placements import DIRECTORY_GROUP, NOWHERE

CellKey = tuple[int, int]
"""(segment number, slot)."""


@dataclass(slots=True)
class Whole:
    """What a generation of a pipeline is, at all shards of its group together."""

    cells: dict[CellKey, int] = field(default_factory=dict)
    times: dict[NodeKey, int] = field(default_factory=dict)


class Stays:
    """Of every pipeline the group that it lives in, and how often it has come to one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """The number of the stay, from 0."""
        self.moves = False
        """Whether there is more than one group."""
        self.groups: dict[str, int] = {}
        """The group that a pipeline lives in, from when it is registered until it is deleted."""
        self.since: dict[str, int] = {}
        """By name the generation in which the last one that was deleted has ended."""
        self._left_over: set[tuple[str, int]] = set()
        """Names, and groups of which not every home has heard that the pipeline was deleted."""
        self._wholes: defaultdict[tuple[str, int], Whole] = defaultdict(Whole)
        self._by_version: dict[tuple[str, int], int] = {}
        self._under_way: dict[tuple[int, int], MoveBegun] = {}
        """By group and number of the move."""
        self._ended: set[tuple[int, MoveEnded]] = set()
        self._at_rest: dict[str, set[tuple[int, int]]] = {}
        """By pipeline the homes that have logged their last of it."""
        self.placed: dict[str, tuple[int, int]] = {}
        """By name the newest version of its placement, and the group."""

    def is_moving(self, pipeline: str) -> bool:
        """Whether a move of it is under way, as far as anyone knows."""
        return any(move.pipeline == pipeline for move in self._under_way.values())

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
            self._register(group, entry)
        elif (name := pipeline_of(entry)) is not None:
            self._check(group, name, entry)
            is_last = (group, shard) in self._at_rest.get(name, ())
            if is_last and not isinstance(entry, PipelineChanged):
                raise Failure("broken", f"shard {shard} logs {entry}, and had logged its last")
            if isinstance(entry, PipelineDeleted):
                self.groups.pop(name, None)
                self.since[name] = entry.restart.generation
                self._left_over.add((name, group))
        return None

    def _register(self, group: int, entry: PipelineRegistered) -> None:
        name = entry.spec.name
        _, placed = self.placed.get(name, (0, NOWHERE))
        there = self.groups.get(name, DIRECTORY_GROUP if placed == NOWHERE else placed)
        if there != group:
            raise Failure("broken", f"group {group} logs {entry}, and {name} belongs to {there}")
        self.groups[name] = group
        self._left_over.discard((name, group))
        self._by_version[name, entry.placed] = self.numbers.get(name, 0)

    def _check(self, group: int, name: str, said: object) -> None:
        if self.groups.get(name, group) != group and (name, group) not in self._left_over:
            raise Failure("broken", f"group {group} logs {said}, and {name} is not there")

    def _end(self, group: int, entry: MoveEnded) -> MoveEnded | None:
        name, move = entry.pipeline, self._under_way.pop((group, entry.number), None)
        if move is None and (group, entry) in self._ended:
            return None  # only one who is lost had heard of it
        assert move is not None, f"{entry} ends nothing in group {group}"
        self._ended.add((group, entry))
        known = self.placed.get(name, (0, DIRECTORY_GROUP))
        # One that was deleted as its move began ends where it was, and its name may be another group's by now.
        goes_on = entry.here and (name, group) not in self._left_over
        if goes_on and known[0] == entry.version and known[1] != group:
            raise Failure("broken", f"{entry} in group {group}, and the directory says {known}")
        at_rest = self._at_rest.get(name, set())
        self._at_rest[name] = {home for home in at_rest if home[0] != group}
        if not entry.here:
            return None
        if move.arrives:
            if self.groups.get(name, group) == group:
                raise Failure("broken", f"{entry} in group {group}, and {name} is not elsewhere")
            self.numbers[name] = self.numbers.get(name, 0) + 1
            self.groups[name] = group
            self._left_over.discard((name, group))
        elif name not in self.groups and (name, group) not in self._left_over:
            raise Failure("broken", f"{entry} in group {group}, and {name} was deleted elsewhere")
        self._by_version[name, entry.version] = self.numbers.get(name, 0)
        return entry if move.arrives else None

    def wholes(self, name: str) -> list[tuple[int, Whole]]:
        """By generation what a pipeline is."""
        return [(number, whole) for (of, number), whole in self._wholes.items() if of == name]

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
