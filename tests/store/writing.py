"""python -m tests.store.writing DIRECTORY: writes a small store in which there is something of everything.

It uses what clients use alone, so that the code of any version can write one; the next version has to
open it and go on (`test_stores.py`).
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import tracker
from tests.waits import HANG_S
from tracker.client import NodeClient, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    Heartbeat,
    PipelineSpec,
    SilentFront,
    StagedContribution,
    TickContent,
    Unit,
)

SHARDS = 2
READ, PARSE = 0, 1
FLIGHTS = PipelineSpec(
    "flights", ("read", "parse"), (Edge("read", "parse", 2),), fronts=("EWR",), open=True
)
TRAINS = PipelineSpec(
    "trains",
    ("ride",),
    (),
    fronts=("main",),
    silent_front=SilentFront.EVICT,
    evict_after_ms=3_600_000,
)
STAGED = StagedContribution(
    "query", "run-1", 4, 0, "parse", 3, 1, 0, Cells.of([(PARSE, 23, 77, 1)]), Cells.empty()
)
BATCH = Batch("query", 3, b"three")
UNIT = Unit(READ, "file:///in/a.parquet", 22)


def _commit(node: NodeClient, content: TickContent) -> None:
    node.commit(content).result(HANG_S)


def _created(*cells: tuple[int, int, int]) -> TickContent:
    """Items, one a cell: segment, slot and checksum."""
    return TickContent(created=Cells.of([(*cell, 1) for cell in cells]))


def _promise(front: str, slot: int) -> TickContent:
    return TickContent(heartbeats=(Heartbeat(front, slot),))


def write(directory: Path) -> None:
    """A tracker of two shards writes its stores to a directory, and ends in good order. What it holds is
    partly in snapshots and partly in the log behind them."""
    with tracker.embedded(SHARDS, store=f"sqlite:{directory}", block_slots=2) as running:
        running.register(FLIGHTS)
        running.register(TRAINS)
        _begin(running)
        for shard in range(SHARDS):
            running.snapshot_shard(shard)
        _go_on(running)
    for path in directory.glob("*.db"):
        database = sqlite3.connect(path)
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()


def _begin(running: EmbeddedTracker) -> None:
    front, query = running.node("flights", "airport", "front"), running.node("flights", "spark")
    front.join(HANG_S)
    front.join_front("EWR", "read", HANG_S)
    _commit(front, _created((READ, 20, 1), (READ, 21, 2), (READ, 30, 3)))
    _commit(front, TickContent(units_created=(UNIT,), created=Cells.of([(READ, 22, 4, 1)])))
    query.join(HANG_S)
    _commit(
        query,
        TickContent(
            consumed=Cells.of([(READ, 20, 1, 1)]),
            created=Cells.of([(PARSE, 22, 5, 1)]),
            batch=BATCH,
        ),
    )
    query.stage([STAGED])
    gone = running.node("flights", "gone")
    gone.join(HANG_S)
    _commit(
        gone,
        TickContent(
            consumed=Cells.of([(READ, 21, 2, 1)]), created=_created((PARSE, 23, 6)).created
        ),
    )
    running.admin().retire("flights", "gone", Cells.of([(PARSE, 23, 6, 1)]))
    _commit(front, _promise("EWR", 40))
    train = running.node("trains", "station", "front")
    train.join(HANG_S)
    train.join_front("main", "ride", HANG_S)
    _commit(train, _created((0, 5, 9)))
    _commit(train, _promise("main", 8))


def _go_on(running: EmbeddedTracker) -> None:
    late = running.node("flights", "harbour", "front")
    late.join(HANG_S)
    grant = late.join_front("JFK", "read", HANG_S)
    _commit(late, _promise("JFK", grant.slot + 20))
    reader = running.node("flights", "reader")
    reader.join(HANG_S)
    # Below min time by now: it goes to the late ledger.
    _commit(reader, TickContent(consumed=Cells.of([(READ, 3, 8, 1)])))
    _commit(reader, _created((PARSE, 60, 10)))
    running.admin().restart("trains", 0)
    train = running.node("trains", "station", "front")
    train.join(HANG_S)
    train.join_front("main", "ride", HANG_S)
    _commit(train, _promise("main", 50))
    reached(running.addresses, FLIGHTS, (22, 22))
    reached(running.addresses, TRAINS, (50,))


def reached(addresses: Sequence[str], spec: PipelineSpec, min_times: tuple[int, ...]) -> None:
    """Waits until every shard has announced these min times, by segment."""
    for address in addresses:
        with Subscriber(address, spec.name) as subscriber:
            for segment, slot in zip(spec.segments, min_times, strict=True):
                assert subscriber.wait_until(slot, segment, HANG_S)
                assert subscriber.min_time(segment) == slot


if __name__ == "__main__":
    write(Path(sys.argv[1]))
