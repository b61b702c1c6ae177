"""Stretches of the outbox, as shards that take runs are told them: worked out once for all of them (rule 3)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from tracker.core.log import KeyProgress, KeyTick, TickRun, Told
from tracker.core.log.sizes import ENTRY_BYTES, progress_bytes
from tracker.core.model import Heartbeat, NodeKey
from tracker.core.replication.parts import OutboxEntry


class Run:
    """Two entries or more of which one run is told to each shard: with the same keys, and its own parts."""

    def __init__(self, items: list[OutboxEntry]) -> None:
        self._count = len(items)
        self._keys = tuple(progress_of(items))
        self._keys_bytes = sum(map(progress_bytes, self._keys))
        self._concerning: dict[int, list[tuple[int, OutboxEntry]]] = {}
        """By shard the entries of which it owns some, each with its place in the run."""
        for place, item in enumerate(items):
            for shard in item.concerned():
                self._concerning.setdefault(shard, []).append((place, item))

    def told(self, shard: int) -> tuple[TickRun, int]:
        """The run as a shard gets it, and about how many bytes it takes at most."""
        concerning = self._concerning.get(shard, ())
        parts = tuple([(place, item.owned_by(shard)) for place, item in concerning])
        parts_bytes = sum([ENTRY_BYTES + item.size_bytes for _, item in concerning])
        size_bytes = ENTRY_BYTES + self._keys_bytes + parts_bytes
        return TickRun(self._count, self._keys, parts), size_bytes


class Stretch:
    """Entries of the outbox that follow one another."""

    def __init__(self, items: Iterable[OutboxEntry]) -> None:
        self._pieces: list[Run | OutboxEntry] = []
        for is_plain, together in groupby(items, key=lambda item: item.is_plain):
            those = [*together]
            self._pieces += [Run(those)] if is_plain and len(those) > 1 else those

    def told(self, shard: int) -> tuple[tuple[Told, ...], int]:
        """What a shard is told of them, and about how many bytes that takes at most."""
        told: list[Told] = []
        size_bytes = 0
        for piece in self._pieces:
            if isinstance(piece, Run):
                run, run_bytes = piece.told(shard)
                told.append(run)
                size_bytes += run_bytes
            else:
                told.append(piece.part(shard))
                size_bytes += piece.size_bytes
        return tuple(told), size_bytes


def progress_of(items: Iterable[OutboxEntry]) -> Iterable[KeyProgress]:
    """What ticks come to, by key in the order of their first ones."""
    numbers: dict[tuple[str, NodeKey], int] = {}
    promises: dict[tuple[str, NodeKey], dict[str, int]] = {}
    for item in items:
        assert isinstance(item.entry, KeyTick)
        tick = item.entry.tick
        place = (tick.pipeline, tick.key)
        numbers[place] = tick.number
        if tick.content.heartbeats:
            promised = promises.setdefault(place, {})
            for heartbeat in tick.content.heartbeats:
                known = promised.get(heartbeat.front, heartbeat.slot)
                promised[heartbeat.front] = max(heartbeat.slot, known)
    for place, number in numbers.items():
        heartbeats = tuple([Heartbeat(*each) for each in promises.get(place, {}).items()])
        yield KeyProgress(*place, number, heartbeats)
