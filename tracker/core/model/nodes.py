"""What outlives a crash, and a change of its home, of a node."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tracker.core.model import durable as d
from tracker.core.model.ticks import Batch, FrontPin, HeldSlot, NodeKey

_BATCHES = d.each(
    Batch,
    lambda batches: (Batch(scope, *kept) for scope in batches for kept in batches[scope].items()),
    lambda batches, saved: batches.setdefault(saved.scope, OrderedDict()).setdefault(
        saved.id, saved.fingerprint
    ),
)


@dataclass(slots=True)
class DurableNode:
    """What its home knows of a node by the durable log."""

    key: NodeKey = d.survives()
    kind: str = d.survives()
    durable: int = d.survives(default=0)
    """Number of its last durable tick."""
    previous_node_time: int = d.survives(default=0)
    evicted: bool = d.survives(default=False)
    """Its fronts ended with its key: after a silence, or because it is retired."""
    batches: OrderedDict[str, OrderedDict[int, bytes]] = d.survives(_BATCHES, OrderedDict)
    """Fingerprints by scope, those used last at the end, and by the number of the batch, the oldest first."""
    retired: bool = d.survives(default=False)
    consumes: set[int] = d.survives(d.SORTED)
    creates: set[int] = d.survives(d.SORTED)
    """Numbers of the segments in which it has ever consumed and created, for people."""
    owner: str = d.survives(default="")
    """What its key was opened for, such as a query's id; empty if it is not known."""
    grants: dict[str, FrontPin] = d.survives(d.values("front"))
    """By front: from where on it may label. One without a grant waits for it."""
    holds: dict[str, HeldSlot] = d.survives(d.values("name"))
    """By name where it holds time, by its durable ticks; the next incarnation goes on with them (rule 11)."""
    holds_given_up: bool = d.survives(default=False)
    """Whether cells of it were written off because it is gone."""


@dataclass(frozen=True, slots=True)
@d.snapshot_of(DurableNode)
class NodeSnapshot(d.Snapshot):
    """A node, as its home snapshots it or sends it to another home."""
