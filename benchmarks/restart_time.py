"""How long a shard is away when its process is killed and started again, by the size of its state.

    python -m benchmarks.restart_time --store redis --cells 0 100000 1000000 4000000
    python -m benchmarks.restart_time --store sqlite

One process owns the only shard; nobody stands by. For each size that many cells are opened, a snapshot
and a log after it come to be as they do, the process is killed with -9 and started again at once. Told are
medians of `--rounds` of: the process's own start (until it owns the shard: the interpreter, its imports,
the store), the reading of snapshot and log, and all of it until the first answer to a client. A
machine that does other work meanwhile takes longer for each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from tests.cluster.tracker import Tracker
from tracker.client import NodeClient
from tracker.core.model import Cells, PipelineSpec, TickContent

PIPELINE = "restart"
CELLS_PER_TICK = 20_000
SIZES = [0, 100_000, 1_000_000, 3_000_000]
TAIL_TICKS = 1_000
"""Small ticks after the last snapshot: a log to be read, as there is always one."""
WAIT_S = 300.0


@dataclass(frozen=True)
class Restart:
    """Seconds: until it owned the shard, for reading (passed), until it answered; records read."""

    begin_s: float
    read_s: float
    answer_s: float
    records: int


def restart(tracker: Tracker) -> Restart:
    """Kills the only process, and starts it again."""
    (process,) = tracker.shards
    process.kill()
    moment, start = time.time(), time.monotonic()
    process.start()
    with tracker.admin(WAIT_S) as admin:
        admin.shards()
    answer_s = time.monotonic() - start
    said = {event["event"]: event for event in process.events()}
    owned, recovered = (_moment(said[name]["timestamp"]) for name in ("owns", "recovered"))
    return Restart(owned - moment, recovered - owned, answer_s, said["recovered"]["records"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def fill(node: NodeClient, first: int, count: int, per_tick: int) -> None:
    """Opens a cell in each of some slots."""
    for start in range(first, first + count, per_tick):
        slots = np.arange(start, min(start + per_tick, first + count), dtype=np.int64)
        cells = Cells(
            np.zeros(len(slots), np.int32), slots, slots.astype(np.uint64) + np.uint64(1),
            np.ones(len(slots), np.int64),
        )  # fmt: skip
        node.commit(TickContent(created=cells), WAIT_S)
    node.flush(WAIT_S)


def measure(store: str, sizes: list[int], rounds: int) -> list[dict[str, float]]:
    """One row a size."""
    rows = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="lowmark-restart-") as directory,
            Tracker(Path(directory), store=store) as tracker,
        ):
            tracker.register(
                PipelineSpec(
                    PIPELINE, ("work",), open=True, horizon_slots=2**40, max_open_cells=2**26
                )
            )
            with NodeClient(tracker.target, PIPELINE, "filler") as node:
                node.join(WAIT_S)
                fill(node, 1, size, CELLS_PER_TICK)
                fill(node, size + 1, TAIL_TICKS, 1)
            found = [restart(tracker) for _ in range(rounds)]
        row = {
            "open_cells": size + TAIL_TICKS, "records": found[0].records,
            "begin_s": _median([r.begin_s for r in found]),
            "read_s": _median([r.read_s for r in found]),
            "answer_s": _median([r.answer_s for r in found]),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{store}: {row['open_cells']:>9,} open cells, {row['records']:>5} records: owned after "
            f"{row['begin_s']:.2f} s, read in {row['read_s']:.2f} s, answered after "
            f"{row['answer_s']:.2f} s",
            flush=True,
        )
    return rows


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart_time")
    parser.add_argument("--store", choices=("redis", "sqlite"), default="redis")
    parser.add_argument("--cells", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    measure(given.store, given.cells, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
