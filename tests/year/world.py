"""A tracker in one thread whose clock goes in steps of hours, each shard with a store of SQLite."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import resident_bytes
from benchmarks.scale import BLOCK_SLOTS, SLOT_NS, STEP_NS, Deployment
from tests.waits import HANG_S
from tests.year.listening import Listeners
from tracker.core.log import (
    Announced,
    Effect,
    PipelineEnded,
    SessionRefused,
    TickRefused,
)
from tracker.core.model import RefusalCode
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig
from tracker.service.log_length import LogLength
from tracker.store.sqlite import SqliteStore
from tracker.wire.storage import (
    record_from_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

HOUR_NS = 3_600 * 10**9
JUMP_NS = 6 * HOUR_NS
"""From one step to the next one. Silent fronts are looked for as often."""
STEPS_A_DAY = 24 * HOUR_NS // JUMP_NS
MOMENT_NS = 10**9
"""Some moment of a process's own clock."""
_REST_NS = 20 * STEP_NS
_MOST_STEPS = 5_000
"""Milliseconds within which a step comes to rest."""


def config() -> ProcessConfig:
    """Silent fronts are looked for once in each step."""
    return ProcessConfig(evict_check_ms=JUMP_NS // 10**6)


class Stored:
    """A shard's store, written as the service does: group commits, and snapshots when those are due."""

    def __init__(self, path: Path, shard: int) -> None:
        self._path, self._shard = path, shard
        self._unwritten: list[tuple[int, bytes]] = []
        self.most_records = 0
        self._open()

    def _open(self) -> None:
        self._store, self.length = SqliteStore(self._path, self._shard), LogLength()
        self.epoch = self._store.acquire("year")

    def reopen(self) -> None:
        """As after a crash."""
        self._unwritten = []
        self._store.close()
        self._open()

    def append(self, position: int, data: bytes) -> None:
        self._unwritten.append((position, data))

    def commit(self) -> None:
        """One group commit of all that has gathered."""
        if self._unwritten:
            self._store.commit(self.epoch, self._unwritten)
            self.length.wrote(len(self._unwritten), sum(len(data) for _, data in self._unwritten))
            self._unwritten = []

    def write_snapshot_if_due(self, process: Process, now_ns: int) -> None:
        self.most_records = max(self.most_records, self.length.records)
        if self.length.is_due(now_ns / 1e9):
            self.length.begin()
            data = snapshot_to_bytes(process.snapshot())
            self.length.wrote_snapshot(len(data))
            self._store.write_snapshot(self.epoch, process.committed, data)

    def close(self) -> None:
        self._store.close()

    @property
    def files(self) -> list[Path]:
        """The store's files."""
        return sorted(self._path.parent.glob(f"{self._path.stem}.*"))

    @property
    def file_bytes(self) -> int:
        return sum(os.stat(path).st_size for path in self.files)

    def recovered(self, config: ProcessConfig, shards: int, now_ns: int) -> Recovered:
        """The process that comes back from what is durable. shards: how many the tracker began with."""
        stored = self._store.load(self.epoch)
        snapshot = snapshot_from_bytes(stored.snapshot[1]) if stored.snapshot else None
        records = [(position, record_from_bytes(data)) for position, data in stored.records]
        routing = RoutingTable.uniform(shards, BLOCK_SLOTS)
        process = Process(self._shard, routing, self.epoch, config)
        effects = process.recover(snapshot, records, now_ns)
        self.length.wrote(len(records), 0)
        return Recovered(process, effects, len(records))


@dataclass(frozen=True)
class Recovered:
    """A process that came back, and how many records of its log were read."""

    process: Process
    effects: list[Effect]
    records: int


def started(paths: Sequence[Path], smaller: Mapping[str, int]) -> dict[str, float]:
    """What other processes take to start with these stores, one after the other in one process. smaller: as they were
    written by."""
    command = [sys.executable, "-m", "tests.year.start", json.dumps(smaller), *map(str, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANG_S)
    found: dict[str, float] = json.loads(done.stdout)
    return found


class Tracker(Deployment):
    """A tracker at work. ended: sessions that the tracker has ended; refusals: how many, by their codes."""

    def __init__(self, directory: Path, shards: int, smaller: Mapping[str, int]) -> None:
        """smaller: constants of the core that are not as they are elsewhere."""
        self._smaller = smaller
        self.stores = [Stored(directory / f"shard-{n}.sqlite", n) for n in range(shards)]
        self.ended: set[object] = set()
        self.refusals: Counter[RefusalCode] = Counter()
        self.listeners = [Listeners() for _ in range(shards)]
        super().__init__(shards, config())
        for listeners, process in zip(self.listeners, self.processes, strict=True):
            listeners.begin(process)

    # --- what the deployment asks of its stores ---------------------------------------------------

    def append(self, shard: int, position: int, data: bytes) -> None:
        super().append(shard, position, data)
        self.stores[shard].append(position, data)

    def commit(self, shard: int) -> None:
        self.stores[shard].commit()
        super().commit(shard)
        self.stores[shard].write_snapshot_if_due(self.processes[shard], self.now_ns)

    def take(self, shard: int, effects: Iterable[Effect]) -> None:
        effects = [*effects]
        super().take(shard, effects)
        for effect in effects:
            if isinstance(effect, Announced):
                self.listeners[shard].hub.announced(effect.pipeline)
            elif isinstance(effect, PipelineEnded):
                self.listeners[shard].forget(effect.pipeline)
                self.stores[shard].length.want_snapshot(self.now_ns / 1e9)

    def refused(self, effect: TickRefused | SessionRefused) -> None:
        self.refusals[effect.refusal.code] += 1
        if effect.refusal.code not in (RefusalCode.FENCED, RefusalCode.UNKNOWN_PIPELINE):
            super().refused(effect)
        self.ended.add(effect.session)

    def close(self) -> None:
        for listeners in self.listeners:
            listeners.close()
        for store in self.stores:
            store.close()

    # --- the clock --------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        """The slot of the clock."""
        return self.now_ns // SLOT_NS

    def rest(self) -> None:
        """Milliseconds pass until nothing is under way."""
        for _ in range(_MOST_STEPS):
            self.step()
            if self.is_at_rest(_REST_NS):
                return
        raise RuntimeError(f"nothing has come to rest in {_MOST_STEPS} ms")

    def jump(self) -> None:
        """Hours pass in which nothing happens."""
        self.now_ns += JUMP_NS
        self.step()
        for listeners in self.listeners:
            listeners.listen(self.now_ns)

    # --- measuring --------------------------------------------------------------------------------

    def measured(self) -> dict[str, float]:
        """Sizes by name, of all shards together: in bytes, records, and seconds of a processor."""
        gc.collect()
        found: dict[str, float] = {"resident_bytes": resident_bytes()}
        began = time.process_time()
        sizes = [len(snapshot_to_bytes(process.snapshot())) for process in self.processes]
        found["snapshot_s"] = round(time.process_time() - began, 3)
        found["snapshot_bytes"] = sum(sizes)
        found["store_bytes"] = sum(store.file_bytes for store in self.stores)
        found["log_records_most"] = sum(store.most_records for store in self.stores)
        for store in self.stores:
            store.most_records = 0
        return found | self._start()

    def _start(self) -> dict[str, float]:
        """What other processes take to start with copies of the stores."""
        with tempfile.TemporaryDirectory(dir=self.stores[0].files[0].parent) as directory:
            for store in self.stores:
                for path in store.files:
                    shutil.copy(path, directory)
            return started(sorted(Path(directory).glob("*.sqlite")), self._smaller)

    def restart(self) -> None:
        """Every process is killed and started again, one after the other."""
        for shard, store in enumerate(self.stores):
            store.reopen()
            back = store.recovered(config(), len(self.stores), self.now_ns)
            self.replace(shard, back.process)
            self.listeners[shard].begin(back.process)
            self.take(shard, back.effects)
            self.connect(shard)
