"""What people are shown of a pipeline and of the shards, as one process sees it."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.model import NodeKey


@dataclass(frozen=True, slots=True)
class SegmentDescription:
    """Slots are global time; `open_items` is advisory."""

    segment: str
    min_time: int
    low: int
    open_slots: int
    open_items: int


@dataclass(frozen=True, slots=True)
class FrontDescription:
    """`heartbeat`: the least promise at any shard; `settled`: whether every shard has the front."""

    node_id: str
    front: str
    segment: str
    heartbeat: int
    silent_ms: int
    settled: bool


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """`node_time`: the last tick that the asked process has applied."""

    key: NodeKey
    node_time: int


@dataclass(frozen=True, slots=True)
class PipelineDescription:
    """A pipeline's state; mirrors the contract's PipelineState."""

    min_time: int
    complete: bool
    begun: bool
    segments: tuple[SegmentDescription, ...]
    fronts: tuple[FrontDescription, ...]
    nodes: tuple[NodeDescription, ...]
    late_items: int
    written_off_items: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """`entries_behind`: entries of this process's home log that the shard has not confirmed."""

    shard: int
    connected: bool
    entries_behind: int
