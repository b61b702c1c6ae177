"""Stretches of the home log, as shards that take runs are told them: worked out once for all of them (rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

from tracker.core.log import KeyProgress, KeyTick, TickColumns, TickRun, Told
from tracker.core.log.sizes import ENTRY_BYTES, owned_bytes, progress_bytes
from tracker.core.model import Cells, Heartbeat, NodeKey, Tick
from tracker.core.replication.parts import OutboxEntry


class Run:
    """Ticks of which one run is told to each shard: with the same keys, and what the shard owns of them."""

    def __init__(self, items: Sequence[OutboxEntry]) -> None:
        """items: one or more, plain; a change of the table by which they are split is an entry between such."""
        self.numbers = items[0].number, items[-1].number
        """Of the first and the last of them."""
        self._count = len(items)
        self._columns: dict[tuple[int, str], _Columns] = {}
        """By shard and pipeline."""
        self._parts: dict[int, list[tuple[int, KeyTick]]] = {}
        """By shard those that cannot be in columns, each with its place in the run."""
        keys = _Keys()
        for place, item in enumerate(items):
            key_place = keys.add(item.tick)
            if item.has_more_than_cells:
                for shard in item.concerned():
                    self._parts.setdefault(shard, []).append((place, item.owned_by(shard)))
            elif item.cell_count:
                self._deal(item, place, key_place)
        self._keys = keys.progress()
        self._keys_bytes = sum(map(progress_bytes, self._keys))

    def _deal(self, item: OutboxEntry, place: int, key_place: int) -> None:
        tick = item.tick
        for shard, created, consumed in item.cells_by_shard():
            columns = self._columns.get((shard, tick.pipeline))
            if columns is None:
                columns = self._columns[shard, tick.pipeline] = _Columns()
            columns.add(place, key_place, tick.number, created, consumed)

    def size_bytes(self, run: TickRun) -> int:
        """About how many bytes it takes at most, as some shard gets it."""
        return ENTRY_BYTES + self._keys_bytes + owned_bytes(run)

    def told(self, shard: int) -> TickRun:
        """The run as a shard gets it."""
        columns = [
            columns.put_together(pipeline)
            for (owner, pipeline), columns in self._columns.items()
            if owner == shard
        ]
        parts = self._parts.get(shard, ())
        return TickRun(self._count, self._keys, tuple(columns), tuple(parts))


class _Columns:
    """What a shard owns of ticks, as it is gathered tick by tick."""

    __slots__ = ("_consumed", "_created", "_keys", "_numbers", "_places")

    def __init__(self) -> None:
        self._places: list[int] = []
        self._keys: list[int] = []
        self._numbers: list[int] = []
        self._created: list[Cells] = []
        self._consumed: list[Cells] = []

    def add(self, place: int, key: int, number: int, created: Cells, consumed: Cells) -> None:
        self._places.append(place)
        self._keys.append(key)
        self._numbers.append(number)
        self._created.append(created)
        self._consumed.append(consumed)

    def put_together(self, pipeline: str) -> TickColumns:
        return TickColumns(
            pipeline,
            tuple(self._places),
            tuple(self._keys),
            tuple(self._numbers),
            Cells.concatenate(self._created),
            tuple(accumulate([cells.size for cells in self._created])),
            Cells.concatenate(self._consumed),
            tuple(accumulate([cells.size for cells in self._consumed])),
        )


class _Keys:
    """What ticks come to, by key in the order of their first ones."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, NodeKey], int] = {}
        self._numbers: list[int] = []
        self._promises: dict[int, dict[str, int]] = {}
        self._last: tuple[Tick, int] | None = None
        """The tick before, and the place of its key: often it is the next one's, too."""

    def add(self, tick: Tick) -> int:
        """Takes the next tick; returns the place of its key."""
        last = self._last
        if last is not None and last[0].key is tick.key and last[0].pipeline == tick.pipeline:
            place = last[1]
        else:
            place = self._places.setdefault((tick.pipeline, tick.key), len(self._places))
            if place == len(self._numbers):
                self._numbers.append(0)
        self._last = tick, place
        self._numbers[place] = tick.number
        if tick.content.heartbeats:
            promised = self._promises.setdefault(place, {})
            for heartbeat in tick.content.heartbeats:
                known = promised.get(heartbeat.front, heartbeat.slot)
                promised[heartbeat.front] = max(heartbeat.slot, known)
        return place

    def progress(self) -> tuple[KeyProgress, ...]:
        progress = []
        for (pipeline, key), place in self._places.items():
            promised = self._promises.get(place, {})
            heartbeats = tuple([Heartbeat(*each) for each in promised.items()])
            progress.append(KeyProgress(pipeline, key, self._numbers[place], heartbeats))
        return tuple(progress)


class Stretch:
    """Entries of the outbox that follow one another."""

    def __init__(
        self,
        items: Iterable[OutboxEntry],
        run_of: Callable[[Sequence[OutboxEntry]], Run] = Run,
    ) -> None:
        self._pieces: list[Run | OutboxEntry] = []
        for is_plain, together in groupby(items, key=attrgetter("is_plain")):
            those = [*together]
            self._pieces += [run_of(those)] if is_plain and len(those) > 1 else those

    def told(self, shard: int) -> tuple[tuple[Told, ...], int]:
        """What a shard is told of them, and about how many bytes that takes at most."""
        told: list[Told] = []
        size_bytes = 0
        for piece in self._pieces:
            if isinstance(piece, Run):
                run = piece.told(shard)
                told.append(run)
                size_bytes += piece.size_bytes(run)
            else:
                told.append(piece.part(shard))
                size_bytes += piece.size_bytes
        return tuple(told), size_bytes
