"""Fronts and nodes that come, do some work, and go for good, many of them, in one process.

    python -m tests.elastic.comings TARGET DIRECTORY PREFIX PAIRS THREADS

Each pair is a front under a name of its own, which begins with PREFIX and labels items in the first slot that it may, and a node
that passes them on and lets go of them. Says `left N` now and then, and `joins N leaves N labelled N`
in the end.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster.children import now_slot
from tests.cluster.steps import Steps
from tests.cluster.told import end_with_parent
from tests.elastic.load import PIPELINE
from tests.waits import HANG_S
from tracker.client import NodeClient

ITEMS = 3
SAID_EVERY = 20


class Comings:
    """Counts, and the record."""

    def __init__(self, target: str, directory: Path, prefix: str) -> None:
        self.target, self.prefix = target, prefix
        self.steps = Steps(directory / f"{prefix}.jsonl")
        self.joins = self.leaves = 0
        self._lock = threading.Lock()

    def come_and_go(self, number: int) -> None:
        """One pair."""
        name, taker_name = f"{self.prefix}-{number}", f"{self.prefix}-taker-{number}"
        front = NodeClient(self.target, PIPELINE, name, kind="front")
        taker = NodeClient(self.target, PIPELINE, taker_name)
        try:
            front.join(HANG_S)
            taker.join(HANG_S)
            grant = front.join_front(name, "in", HANG_S)
            self._count(joins=3)
            # Its clock may be behind the grant, never the other way round: labels begin at the later.
            slot = max(now_slot(), grant.slot)
            items = [("in", slot, f"{name}.{k}") for k in range(ITEMS)]
            self.steps.commit(front, items, [], (name, slot)).result(HANG_S)
            passed = [("mid", slot, f"{item}>") for _, slot, item in items]
            self.steps.commit(taker, passed, items)
            self.steps.commit(taker, [], passed).result(HANG_S)
            self.steps.leave_front(front, name)
            front.leave(HANG_S)
            taker.leave(HANG_S)
            self._count(leaves=3)
        finally:
            front.close()
            taker.close()

    def _count(self, joins: int = 0, leaves: int = 0) -> None:
        with self._lock:
            before = self.leaves // (3 * SAID_EVERY)
            self.joins, self.leaves = self.joins + joins, self.leaves + leaves
            if self.leaves // (3 * SAID_EVERY) > before:
                print(f"left {self.leaves}", flush=True)


def main(target: str, directory: str, prefix: str, pairs: str, threads: str) -> int:
    end_with_parent()
    comings = Comings(target, Path(directory), prefix)
    with ThreadPoolExecutor(int(threads)) as pool:
        for _ in pool.map(comings.come_and_go, range(int(pairs))):
            pass
    comings.steps.close()
    for failure in comings.steps.failures:
        print(failure, file=sys.stderr)
    labelled = int(pairs) * ITEMS
    print(f"joins {comings.joins} leaves {comings.leaves} labelled {labelled}", flush=True)
    return 1 if comings.steps.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
