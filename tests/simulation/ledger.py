"""What was made durable, kept apart from the processes: every home's log, as the stores got it.

A shard that has applied so much of each log must hold exactly the XOR of the ticks in it and exactly
their numbers by key, whatever crashes, snapshots and repeats lay in between (rule 2). And nobody may be
told of a tick, or of a min time, that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests import inside
from tests.simulation.checkers import Failure
from tests.simulation.stays import CellKey, Stays
from tests.simulation.waiting import Waiting
from tracker.core.log import (
    Announcement,
    Entry,
    HomeEntry,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    PipelineCompleted,
    ReceivedEntries,
    Record,
    Swept,
    Told,
    WrittenOff,
    pipeline_of,
)
from tracker.core.log.losses import ShardLost
from tracker.core.log.steps import (
    CellsMoved,
    DepartureSummarized,
    RoutingActivated,
    RoutingChanged,
    ShardLeft,
)
from tracker.core.model import NodeKey
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import Process
from tracker.core.process.snapshot import ProcessSnapshot

MOST_SEGMENTS = 10
"""More than any simulated pipeline has."""
Generation = tuple[str, int]
"""(pipeline, number of its generation)."""
Stay = tuple[str, int, int]
"""(pipeline, number of its generation, of its stay in a group)."""


@dataclass(slots=True)
class _Logged:
    """An entry of a home log, and what it XORs into whose cells: (owner, cell, checksum)."""

    entry: Entry
    cells: list[tuple[int, CellKey, int]]
    stay: int
    """In which its pipeline is."""
    generation: Generation | None
    """The one in which its key was opened, where it names one."""


@dataclass(slots=True)
class Mirror:
    """What one shard must hold after `applied` entries of each home's log."""

    applied: dict[int, int] = field(default_factory=dict)
    cells: dict[Stay, dict[CellKey, int]] = field(default_factory=dict)
    node_times: dict[Stay, dict[NodeKey, int]] = field(default_factory=dict)
    dropped: set[tuple[Generation, NodeKey]] = field(default_factory=set)
    swept: dict[tuple[Generation, int], int] = field(default_factory=dict)
    """By generation and segment the slot below which cells went to the late ledger."""
    said: dict[str, dict[int, dict[int, int]]] = field(default_factory=dict)
    """By pipeline, segment and min time whose announcement is durable, the generation that it is of."""
    begun_amid_loss: dict[Generation, bool] = field(default_factory=dict)
    """Whether shards were being declared lost when it was here first. Then what names a pipeline that has not been heard
    of is passed over, also where its registration comes later, in the log of a shard that is left."""


class Ledger:
    """Everything durable, by shard."""

    def __init__(self, shards: int, routing: RoutingTable) -> None:
        self._tables = [routing] * shards
        """By home the table by which it splits its entries now."""
        self._groups = [(0, 0)] * shards
        """By shard the number of its group, and where the group's shards begin."""
        self.stays = Stays()
        self.waiting = Waiting()
        self._versions = {(0, routing.version): routing}
        """By group and version."""
        self._logs: list[list[_Logged]] = [[] for _ in range(shards)]
        self.mirrors = [Mirror() for _ in range(shards)]
        self._numbers: dict[tuple[Generation, NodeKey], int] = {}
        self._batches: dict[tuple[str, str, int], int] = {}
        self._open: dict[tuple[int, str, str], NodeKey | None] = {}
        """By (group, pipeline, node id) the key under which ticks may come."""
        self._written_off: set[tuple[Generation, CellKey]] = set()
        self._generation: dict[tuple[int, str, NodeKey], Generation] = {}
        """By (group, pipeline, key) the generation in which the key was opened: where a name is used again, another group may
        give a key that there was under it."""

    def take(self, shard: int, record: Record) -> None:
        """A record has become durable."""
        self._hear_of_moves(shard, record)
        if isinstance(record, HomeEntry):
            self._take_entry(shard, record)
            self._hear_of_loss(shard, record.entry)
            self._hear_completion(self.mirrors[shard].said, record.entry)
        elif isinstance(record, Announcement):
            said = self.mirrors[shard].said.setdefault(record.pipeline, {})
            for segment, slot in record.min_times:
                said.setdefault(segment, {})[slot] = record.generation
        elif isinstance(record, ReceivedEntries):
            for entry in record.entries:
                self._hear_of_loss(shard, entry)
                self._hear_completion(self.mirrors[shard].said, entry)
                if isinstance(entry, DepartureSummarized | ShardLeft):
                    leaver = self._groups[shard][1] + record.shard
                    self._hear_last_words(self.mirrors[shard].said, entry, leaver)
        elif isinstance(record, Swept):
            swept = self.mirrors[shard].swept
            place = ((record.pipeline, record.generation), record.segment)
            swept[place] = max(record.below, swept.get(place, record.below))

    def _hear_of_moves(self, shard: int, record: Record) -> None:
        """Where a pipeline has come, what any shard of its group had said is said by each."""
        if not self.stays.moves:
            return
        group, first = self._groups[shard]
        came = self.stays.take(group, shard - first, record)
        if came is None:
            return
        name = came.pipeline
        known: dict[int, dict[int, int]] = {}
        for mirror in self.mirrors:
            for segment, slots in mirror.said.get(name, {}).items():
                known.setdefault(segment, {}).update(slots)
        for mirror, (of, _) in zip(self.mirrors, self._groups, strict=True):
            if of == group:
                mirror.said[name] = {segment: dict(slots) for segment, slots in known.items()}
        swept: dict[tuple[Generation, int], int] = {}
        for mirror in self.mirrors:
            for place, below in mirror.swept.items():
                if place[0][0] == name:
                    swept[place] = max(below, swept.get(place, below))
        for mirror in self.mirrors:
            mirror.swept |= swept
        for number, (there, _) in enumerate(self._groups):
            if there == group:
                self._begin(number, name)
                self.waiting.came(number, name)
        for (of, pipeline, node_id), key in [*self._open.items()]:
            if of != group and pipeline == name:
                self._open[group, name, node_id] = key
        for (of, pipeline, key), generation in [*self._generation.items()]:
            is_of_this = pipeline == name and generation[1] >= self.stays.since.get(name, 0)
            if of != group and is_of_this:
                self._generation[group, name, key] = generation

    def _begin(self, place: int, name: str) -> None:
        """A shard has what there is of a pipeline that has come to its group: the cells that are its own, and all node times."""
        mirror, routing, (_, first) = self.mirrors[place], self._tables[place], self._groups[place]
        for generation, whole in self.stays.wholes(name):
            stay = (name, generation, self.stays.numbers[name])
            mirror.node_times[stay] = dict(whole.times)
            mirror.cells[stay] = {
                cell: checksum
                for cell, checksum in whole.cells.items()
                if first + routing.owner(cell[1], name) == place
            }

    def _hear_completion(self, said: dict[str, dict[int, dict[int, int]]], entry: Told) -> None:
        """That a pipeline is complete, every process says from then on."""
        if isinstance(entry, PipelineCompleted):
            for segment in range(MOST_SEGMENTS):
                known = said.setdefault(entry.pipeline, {}).setdefault(segment, {})
                known[FOREVER] = entry.generation

    def _hear_of_loss(self, shard: int, entry: Told) -> None:
        """All go on without lost shards: by another table, and some pipelines are complete."""
        if not isinstance(entry, ShardLost):
            return
        for known in entry.pipelines:
            if known.least == FOREVER:
                complete = PipelineCompleted(known.spec.name, known.generation, 0)
                self._hear_completion(self.mirrors[shard].said, complete)
        if entry.shards is not None:
            table, (group, _) = entry.shards.table, self._groups[shard]
            self._tables[shard] = self._versions[group, table.version] = table

    def _hear_last_words(
        self,
        said: dict[str, dict[int, dict[int, int]]],
        entry: DepartureSummarized | ShardLeft,
        leaver: int,
    ) -> None:
        """What a shard that leaves has announced, the others say from then on. Of a segment that is complete,
        of one that it did not know yet, and of all where they are in a later generation, they say what was announced of
        the whole pipeline. Each slot is of the generation in which the leaver made it durable: where its last one begins
        at what was announced before, no front of that one need have joined."""
        for words in entry.pipelines:
            least = min(words.announced)
            known = said.setdefault(words.pipeline, {})
            before = self.mirrors[leaver].said.get(words.pipeline, {})
            in_any: dict[int, int] = {}
            for slots in before.values():
                for slot, number in slots.items():
                    in_any[slot] = min(number, in_any.get(slot, number))
            for segment, slot in enumerate(words.announced):
                if slot < FOREVER:
                    first = in_any.get(slot, words.generation)
                    number = before.get(segment, {}).get(slot, first)
                    slots = known.setdefault(segment, {})
                    slots[slot] = max(number, slots.get(slot, number))
            for segment in range(MOST_SEGMENTS):
                known.setdefault(segment, {}).setdefault(least, in_any.get(least, words.generation))

    def _take_entry(self, shard: int, record: HomeEntry) -> None:
        log, entry = self._logs[shard], record.entry
        if record.number != len(log) + 1:
            raise Failure("broken", f"home log entry {record.number} comes after {len(log)}")
        cells: list[tuple[int, CellKey, int]] = []
        routing, (group, first) = self._tables[shard], self._groups[shard]
        if isinstance(entry, RoutingChanged):
            self._versions[group, entry.table.version] = entry.table
        elif isinstance(entry, RoutingActivated):
            self._tables[shard] = self._versions[group, entry.version]
        elif isinstance(entry, CellsMoved):
            for segment, slot, checksum, _ in entry.cells.rows():
                cells.append((shard, (segment, slot), checksum))
                owner = first + routing.owner(slot, entry.pipeline)
                cells.append((owner, (segment, slot), checksum))
        if isinstance(entry, KeyTick):
            tick = entry.tick
            name, content = tick.pipeline, tick.content
            if self._open.get((group, name, tick.key.node_id)) != tick.key:
                raise Failure("broken", f"tick {tick.number} of {tick.key} comes after its end")
            of_key = self._generation[group, name, tick.key]
            before = self._numbers.get((of_key, tick.key), 0)
            if tick.number != before + 1:
                raise Failure("broken", f"tick {tick.number} of {tick.key} comes after {before}")
            self._numbers[of_key, tick.key] = tick.number
            for part in (content.created, content.consumed):
                for segment, slot, checksum, _ in part.rows():
                    owner = first + routing.owner(slot, name)
                    cells.append((owner, (segment, slot), checksum))
            if content.batch is not None:
                batch = (name, content.batch.scope, content.batch.id)
                self._batches[batch] = self._batches.get(batch, 0) + 1
                if self._batches[batch] > 1:
                    raise Failure("broken", f"batch {batch} was accepted twice")
        elif isinstance(entry, WrittenOff):
            generation = (entry.pipeline, entry.generation)
            for segment, slot, _, _ in entry.cells.rows():
                self._written_off.add((generation, (segment, slot)))
        elif isinstance(entry, KeyOpened):
            if (group, entry.pipeline, entry.key) in self._generation:
                raise Failure("broken", f"{entry.key} of {entry.pipeline} is given again")
            self._open[group, entry.pipeline, entry.key.node_id] = entry.key
            opened = entry.pipeline, entry.generation
            self._generation[group, entry.pipeline, entry.key] = opened
        elif isinstance(entry, KeyClosed):
            place = (group, entry.pipeline, entry.key.node_id)
            if self._open.get(place) == entry.key:
                self._open[place] = None
        pipeline = entry.pipeline if isinstance(entry, CellsMoved) else pipeline_of(entry)
        stay = 0 if pipeline is None else self.stays.numbers.get(pipeline, 0)
        key_is_of: Generation | None = None
        if isinstance(entry, KeyTick | KeyOpened | KeyClosed | KeyDropped):
            key = entry.tick.key if isinstance(entry, KeyTick) else entry.key
            assert pipeline is not None
            key_is_of = self._generation[group, pipeline, key]
            self.stays.count(*key_is_of, entry, cells)
        log.append(_Logged(entry, cells, stay, key_is_of))
        in_generation = None if key_is_of is None else key_is_of[1]
        self.waiting.take(shard, record.number, entry, in_generation)

    def add_place(self, routing: RoutingTable, group: int = 0, first: int = 0) -> None:
        """A number was given to a shard of a group, whose shards begin at place `first`."""
        self.mirrors.append(Mirror())
        self._tables.append(routing)
        self._groups.append((group, first))
        self._logs.append([])
        self.stays.moves |= group > 0

    def add_shard(self, shard: int, snapshot: ProcessSnapshot) -> None:
        """A shard begins with what a peer knows: with the vectors and node times, and no cells."""
        membership = snapshot.membership
        assert membership is not None
        times = {}
        for saved in snapshot.pipelines:
            name, begun = saved.spec.name, saved.restarts
            generation = begun[-1].restart.generation if begun else 0
            stay = (name, generation, self.stays.at(name, saved.placed))
            times[stay] = {known.key: known.number for known in saved.keys}
        said = {
            saved.spec.name: {
                segment: {slot: self._said_in(saved.spec.name, segment, slot)}
                for segment, slot in enumerate(saved.published)
            }
            for saved in snapshot.pipelines
        }
        received, (_, first) = dict(snapshot.received) | membership.former, self._groups[shard]
        applied = {first + home: number for home, number in received.items()}
        self.mirrors[shard] = Mirror(applied, node_times=times, said=said)
        self._tables[shard] = membership.table

    def _said_in(self, pipeline: str, segment: int, slot: int) -> int:
        """In which generation a min time was said last, by any shard; before all, if by none."""
        said = (mirror.said.get(pipeline, {}).get(segment, {}) for mirror in self.mirrors)
        return max((known[slot] for known in said if slot in known), default=0)

    # --- checks -----------------------------------------------------------------------------------

    def check_durable(self, generation: Generation, key: NodeKey, number: int) -> None:
        """A node that has joined in a generation was told that its ticks up to a number are durable."""
        durable = self._numbers.get((generation, key), 0)
        if number > durable:
            raise Failure(
                "lost", f"{key} was told that tick {number} is durable, and {durable} ticks are"
            )

    def check_said(
        self,
        shard: int,
        pipeline: str,
        min_times: list[tuple[int, int]],
        told: Mapping[int, int] | None = None,
    ) -> None:
        """A process of the shard has said min times. told: by segment what it says without a durable record."""
        said = self.said(shard, pipeline)
        for segment, slot in min_times:
            if slot not in said.get(segment, ()) and (told or {}).get(segment) != slot:
                raise Failure(
                    "broken",
                    f"shard {shard} announced {slot} for segment {segment} of {pipeline}, "
                    f"and {max(said.get(segment, ()), default=None)} is durable",
                )

    def generation_of(self, shard: int, pipeline: str, key: NodeKey) -> int:
        """The number of the generation in which a key was opened that a shard's group has."""
        return self._generation[self._groups[shard][0], pipeline, key][1]

    def open_key(self, pipeline: str, node_id: str) -> NodeKey | None:
        """The key under which a node's ticks may come, by its home's log."""
        group = self.stays.groups.get(pipeline, -1) if self.stays.moves else 0
        return self._open.get((group, pipeline, node_id))

    def said(self, shard: int, pipeline: str) -> dict[int, dict[int, int]]:
        """By segment and min time that the shard has made durable, the generation that it is of."""
        return self.mirrors[shard].said.get(pipeline, {})

    def has_batch(self, pipeline: str, scope: str, number: int) -> bool:
        return (pipeline, scope, number) in self._batches

    def check_process(self, process: Process, first: int = 0) -> None:
        """The process holds what its vector says: each tick in it once, and nothing else. first: where its group's shards
        begin."""
        place = first + process.shard
        mirror = self.mirrors[place]
        self._advance(process, mirror, place)
        for name, pipeline in inside.pipelines(process).items():
            if pipeline.held is not None:
                continue  # nobody has all that a lost shard had logged
            if pipeline.generation < self.stays.since.get(name, 0):
                continue  # it was deleted
            loss = process.membership.loss
            generation = (name, pipeline.generation)
            if mirror.begun_amid_loss.setdefault(generation, loss is not None):
                continue
            stay = (*generation, self.stays.at(name, pipeline.placed))
            times = mirror.node_times.get(stay, {})
            node_times = {key: state.number for key, state in pipeline.shard.keys.items()}
            if node_times != times:
                raise Failure(
                    "broken",
                    f"shard {process.shard}: node times of {name} are "
                    f"{node_times}, by the homes' logs {times}",
                )
            held: dict[CellKey, int] = {}
            if any(pipeline.shard.cells.open_slots):
                for segment, slot, checksum, _ in pipeline.shard.cells.open_cells().rows():
                    held[segment, slot] = checksum
            if held != mirror.cells.get(stay, {}):
                self._compare_cells(process, mirror, stay, held)
            if not (self.stays.moves or process.membership.lost):
                self._compare_what_is_awaited(place, mirror, pipeline)

    def _compare_what_is_awaited(self, place: int, mirror: Mirror, pipeline: Pipeline) -> None:
        name, generation = pipeline.spec.name, pipeline.generation
        state = dict(mirror.applied), generation
        if not self.waiting.is_new(place, name, state):
            return
        expected = self.waiting.expected(name, generation, mirror.applied)
        there = pipeline.shard.begun, pipeline.shard.vacancies.unfed()
        if expected not in (None, there):
            raise Failure(
                "broken",
                f"shard {place}: whether {name} has begun, and the segments that wait for a front, are {there}, by the homes' logs "
                f"{expected}",
            )

    def _compare_cells(
        self, process: Process, mirror: Mirror, stay: Stay, held: dict[CellKey, int]
    ) -> None:
        """What was swept or written off is compared with nothing."""
        lowest, true = -(2**63), mirror.cells.get(stay, {})
        generation = stay[:2]
        differing = [
            cell
            for cell in held.keys() | true.keys()
            if held.get(cell) != true.get(cell)
            and (generation, cell) not in self._written_off
            and cell[1] >= mirror.swept.get((generation, cell[0]), lowest)
        ]
        if differing:
            raise Failure(
                "broken",
                f"shard {process.shard}: cells {sorted(differing)[:3]} of {generation} are not the XOR "
                "of the ticks in its vector",
            )

    def _advance(self, process: Process, mirror: Mirror, place: int) -> None:
        first = place - process.shard
        for number_of_home, number in inside.applied(process).items():
            home = first + number_of_home
            before = mirror.applied.get(home, 0)
            if number < before:
                raise Failure(
                    "broken",
                    f"shard {place} has applied {number} entries of shard {home}'s log, "
                    f"and had applied {before}",
                )
            for logged in self._logs[home][before:number]:
                self._apply(place, mirror, logged)
            mirror.applied[home] = number

    def _xor(self, shard: int, mirror: Mirror, generation: Generation, logged: _Logged) -> None:
        stay = (*generation, logged.stay)
        cells = mirror.cells.setdefault(stay, {}) if logged.cells else {}
        for owner, cell, checksum in logged.cells:
            if owner == shard:
                _xor_into(cells, cell, checksum)

    def _apply(self, shard: int, mirror: Mirror, logged: _Logged) -> None:
        entry, generation = logged.entry, logged.generation
        # A node that has moved stands in several homes' logs, which are taken up here one by one.
        if isinstance(entry, CellsMoved):
            self._xor(shard, mirror, (entry.pipeline, entry.generation), logged)
            return
        if generation is None:
            return
        times = mirror.node_times.setdefault((*generation, logged.stay), {})
        if isinstance(entry, KeyTick):
            key = entry.tick.key
            if (generation, key) not in mirror.dropped:
                times[key] = max(entry.tick.number, times.get(key, 0))
            self._xor(shard, mirror, generation, logged)
        elif isinstance(entry, KeyOpened):
            if (generation, entry.key) not in mirror.dropped:
                times.setdefault(entry.key, 0)
        elif isinstance(entry, KeyDropped):
            mirror.dropped.add((generation, entry.key))
            times.pop(entry.key, None)
        elif isinstance(entry, KeyClosed):
            ticks = times.get(entry.key, 0)
            if ticks > entry.last_number:
                raise Failure(
                    "broken",
                    f"{entry.key} was closed at {entry.last_number} and has {ticks} ticks",
                )


def _xor_into(cells: dict[CellKey, int], cell: CellKey, checksum: int) -> None:
    after = cells.pop(cell, 0) ^ checksum
    if after:
        cells[cell] = after
