"""A front that promises one slot after the other, as fast as people blink: for how long nothing is announced of its segment is
how long the tracker announces nothing.

    python -m tests.change.pulse TARGET ROOT

Says `ready`; ends when the line `leave` has come.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from examples.children import tell
from examples.flights.driver import ended_by_parent
from examples.flights.pipeline import NAME
from tests.change.pipeline import PULSE, ChangePlaces
from tests.cluster.steps import Steps
from tests.waits import HANG_S
from tracker.client import NodeClient

INTERVAL_S = 0.02  # paces: the promises
ITEMS_EVERY = 50
"""Of so many promises one is behind an item."""


def main(target: str, root: str) -> int:
    leaving = threading.Event()
    ended_by_parent(lambda line: leaving.set() if line.strip() == "leave" else None)
    steps = Steps(ChangePlaces(Path(root)).histories / "pulse.jsonl")
    with NodeClient(target, NAME, PULSE, kind="front") as node:
        node.join(HANG_S)
        slot = node.join_front(PULSE, PULSE, HANG_S).slot
        tell("ready")
        while not leaving.wait(INTERVAL_S):
            slot += 1
            items = [(PULSE, slot, f"beat {slot}")] if slot % ITEMS_EVERY == 0 else []
            steps.commit(node, items, [], (PULSE, slot))
            if items:
                steps.commit(node, [], items)
        steps.leave_front(node, PULSE)
        steps.close()
    for failure in steps.failures:
        print(failure, file=sys.stderr)
    return 1 if steps.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
