"""A node as a process of its own, to be killed and paused: does what it is told, line by line.

    python -m tests.explain.node TARGET PIPELINE NODE KIND

Each line is a JSON list: `["front", NAME, SEGMENT]`, `["promise", NAME, SLOT]`, `["create", SEGMENT, SLOT,
VALUE]`, `["consume", SEGMENT, SLOT, VALUE]`; it says `done` when that is durable. Without its parent it
ends as if it had been killed.
"""

from __future__ import annotations

import json
import os
import sys

from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, Heartbeat, TickContent


def main(target: str, pipeline: str, node_id: str, kind: str) -> None:
    node = NodeClient(target, pipeline, node_id, kind)
    node.join(HANG_S)
    print("joined", flush=True)
    for line in sys.stdin:
        what, *more = json.loads(line)
        match what:
            case "front":
                node.join_front(more[0], more[1], HANG_S)
            case "promise":
                node.commit(TickContent(heartbeats=(Heartbeat(*more),))).result(HANG_S)
            case _:
                segment, slot, value = more
                cells = Cells.of([(node.segment(segment), slot, value, 1)])
                content = TickContent(created=cells)
                if what == "consume":
                    content = TickContent(consumed=cells)
                node.commit(content).result(HANG_S)
        print("done", flush=True)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
