"""Everything durable that a process knows, as plain data: what a prefix of its log amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log import Entry
from tracker.core.membership.membership import Membership
from tracker.core.model import NodeKey
from tracker.core.model.routing import RoutingTable
from tracker.core.pipeline.snapshot import PipelineSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class ProcessSnapshot:
    """A process after the records up to `position`.

    home_last: number of its home log's last entry; outbox: the last entries, which some shard has
    not confirmed; confirmed and received: by other shard; closed: keys to drop once every shard has
    confirmed an entry number; cut: the stable cut, by which runs were let go; membership: None for the shards that
    the process was started with; tables: by which its home log is split, each from an entry number on.
    """

    position: int
    home_last: int
    next_incarnation: int
    outbox: tuple[Entry, ...]
    confirmed: tuple[tuple[int, int], ...]
    received: tuple[tuple[int, int], ...]
    closed: tuple[tuple[int, str, NodeKey], ...]
    cut: tuple[tuple[int, int], ...]
    pipelines: tuple[PipelineSnapshot, ...]
    membership: Membership | None = None
    tables: tuple[tuple[int, RoutingTable], ...] = ()
