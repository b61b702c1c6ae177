"""What people are shown of a pipeline and of the shards, as one process sees it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tracker.core.model import NodeKey
from tracker.core.model.levels import OLDEST_LEVEL


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
    """A pipeline's state; mirrors the contract's PipelineState. `is_changing`: whether a change of its segments or edges
    is under way; `change_awaits`: the shards that are then not known to judge by it; none where it waits for the cut."""

    min_time: int
    complete: bool
    begun: bool
    segments: tuple[SegmentDescription, ...]
    fronts: tuple[FrontDescription, ...]
    nodes: tuple[NodeDescription, ...]
    late_items: int
    written_off_items: int = 0
    generation: int = 0
    is_changing: bool = False
    change_awaits: tuple[int, ...] = ()
    held_for: tuple[int, ...] = ()
    """The shards that were declared lost, if it stands since then: until an operator restarts it."""


class ShardRole(Enum):
    """What a shard is for: it owns slots to come; it has joined, and owns nothing yet; its process takes
    up what the others know; it owns older slots alone, and goes when nothing is open there; it owns
    nothing any more, and says its last."""

    OWNER = "owner"
    SPARE = "spare"
    JOINING = "joining"
    DRAINING = "draining"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """`entries_behind`: entries of this process's home log that the shard has not confirmed;
    `open_slots`: slots with items in flight that it holds, of all pipelines; `speaks`: the highest feature level of its
    process, 0 if that has not been heard; `release`: of its process, empty likewise."""

    shard: int
    connected: bool
    entries_behind: int
    role: ShardRole = ShardRole.OWNER
    open_slots: int = 0
    speaks: int = 0
    release: str = ""


@dataclass(frozen=True, slots=True)
class StandbyDescription:
    """A process that waits for a shard: where it will be reached, the highest feature level that it speaks, its release."""

    address: str
    speaks: int
    release: str


@dataclass(frozen=True, slots=True)
class RoutingDescription:
    """How slots are dealt: the version of the table, the shards that are to own the slots to come while
    that is being agreed on, and whether a change is under way. level: the feature level by which the process records."""

    version: int
    asked: tuple[int, ...]
    changing: bool
    level: int = OLDEST_LEVEL
