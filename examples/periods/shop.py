"""The shop whose hours become complete: a front in a process of its own, to be killed.

    python -m examples.periods.shop TARGET PIPELINE SEGMENT

It does what the lines of its standard input say, and tells `done` when that is durable: `open SLOT` (an
item comes in), `close SLOT` (it is processed), `promise SLOT`, `leave`. An item is named by its slot, so
whoever comes after a killed shop can close what that one has opened.
"""

from __future__ import annotations

import os
import sys

from examples.children import tell
from lowmark.nodes import Cells, Heartbeat, NodeClient, TickContent, root_value

FRONT = "shop"
WAIT_S = 300.0


def main(target: str, pipeline: str, segment: str) -> None:
    with NodeClient(target, pipeline, FRONT, kind="front") as node:
        node.join(WAIT_S)
        node.join_front(FRONT, segment, WAIT_S)
        for line in sys.stdin:
            what, _, slot = line.strip().partition(" ")
            if what == "leave":
                node.leave_front(FRONT).result(WAIT_S)
            else:
                node.commit(content_of(what, int(slot))).result(WAIT_S)
            tell("done", what=what, slot=slot)
    os._exit(0)


def content_of(what: str, slot: int) -> TickContent:
    """The tick that a line asks for. Raises ValueError."""
    item = Cells.of([(0, slot, root_value(FRONT, slot, 0), 1)])
    match what:
        case "open":
            return TickContent(created=item)
        case "close":
            return TickContent(consumed=item)
        case "promise":
            return TickContent(heartbeats=(Heartbeat(FRONT, slot),))
    raise ValueError(f"{what!r} is none of open, close, promise, leave")


if __name__ == "__main__":
    main(*sys.argv[1:])
