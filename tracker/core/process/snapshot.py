"""Everything durable that a process knows, as plain data: what a prefix of its log amounts to."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.nodes import Nodes
from tracker.core.log import Entry
from tracker.core.log.journal import Journal
from tracker.core.membership.shards import Shards
from tracker.core.model import durable as d
from tracker.core.moving.directory import Directory
from tracker.core.moving.moves import Moves
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.core.replication.replication import Replication


@dataclass(frozen=True, slots=True, eq=False)
@d.snapshot_of(Journal, Nodes, Replication, Shards, Pipelines, Moves, Directory)
class ProcessSnapshot(d.Snapshot):
    """A process after the records up to `position`, by what its components declare.

    outbox: the home log's last entries, which some shard has not confirmed; cut: the stable cut, by which runs
    were let go. Stores of processes that were never rescaled may have no membership and no tables.
    """

    outbox: tuple[Entry, ...]
    cut: tuple[tuple[int, int], ...]
    pipelines: tuple[PipelineSnapshot, ...]
