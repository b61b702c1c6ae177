"""How large the progress state is, over time: by the number of nodes, and by the kind of work.

The production core, driven event by event: items enter in every slot, stay for a while, and go. "Many
hops": an item becomes another one in each slot that it stays, thirty times. "Much work in few": it stays as
long, as itself. The size is that of the snapshot that a shard would write, in bytes: all that it has to
remember of what is in flight and of who takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.core import HORIZON, Cluster, Node
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.wire.storage import snapshot_to_bytes

SLOTS = 1_500
"""Of 10 ms each."""
EVERY = 50
ITEMS_PER_SLOT = 4
STAY_SLOTS = 30
NODES = (10, 100, 1_000)


def find() -> dict[str, Any]:
    lines = {f"{nodes:,} nodes": _sizes(nodes, STAY_SLOTS, 1) for nodes in NODES}
    lines["10 nodes, many hops"] = _sizes(10, 1, STAY_SLOTS)
    return {"lines": lines}


def _sizes(nodes: int, stay: int, hops: int) -> list[tuple[float, float]]:
    """(seconds, KiB). Each item stays `stay` slots at each of its hops."""
    cluster = Cluster()
    cluster.register(PipelineSpec("p", ("in",), front_count=1, horizon_slots=HORIZON))
    front = cluster.node("p", "front")
    front.join_front("front")
    workers = [cluster.node("p", f"node-{number}") for number in range(nodes)]
    found = []
    for slot in range(SLOTS):
        items = _cells(slot, 0)
        front.tick(TickContent(created=items, heartbeats=(Heartbeat("front", slot),)))
        _work(workers, slot, stay, hops)
        cluster.settle()
        if slot % EVERY == EVERY - 1:
            size = len(snapshot_to_bytes(cluster.processes[0].snapshot()))
            found.append(((slot + 1) / 100, size / 1024))
    return found


def _work(workers: list[Node], now: int, stay: int, hops: int) -> None:
    """What is due in this slot: each hop's items of one slot, at one node after the other."""
    for hop in range(1, hops + 1):
        slot = now - hop * stay
        if slot < 0:
            return
        created = _cells(slot, hop) if hop < hops else Cells.empty()
        content = TickContent(consumed=_cells(slot, hop - 1), created=created)
        workers[(now * hops + hop) % len(workers)].tick(content)


def _cells(slot: int, hop: int) -> Cells:
    items: Iterable[tuple[int, int, int, int]] = [
        (0, slot, unit_value(f"{slot}.{number}.{hop}"), 1) for number in range(ITEMS_PER_SLOT)
    ]
    return Cells.of(items)
