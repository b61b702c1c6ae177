"""Effects: what a process asks its shell to do."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tracker.core.log.frames import Frame
from tracker.core.log.losses import LossReport
from tracker.core.log.records import Record
from tracker.core.model import Batch, HeldSlot, NodeKey, PipelineSpec, Refusal, Restart
from tracker.core.model.placements import Placement
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import LOWEST_SLOT


@dataclass(frozen=True, slots=True)
class Append:
    """Make a record durable at this position; in order; many positions may share one write. can_wait: nobody
    waits for it, so it may go with what is appended next, or a moment later."""

    position: int
    record: Record
    can_wait: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Give a frame to the link to a shard; it may be dropped when the link is down or full."""

    shard: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Grant:
    """A node's front: whether every shard has answered, from which slot it may label, its last durable promise
    (LOWEST_SLOT if none), and its joining, by which it is told from others of its name: incarnation and number of
    the tick by which it joined (0 where an older process says none)."""

    front: str
    segment: int
    slot: int
    heartbeat: int
    granted: bool
    incarnation: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to `JoinNode`. In a generation after the first, what was published or read from slot
    `replay_from` on is to be committed anew; nothing below it can be."""

    key: NodeKey
    spec: PipelineSpec
    last_batches: tuple[Batch, ...]
    previous_node_time: int
    fronts: tuple[Grant, ...]
    generation: int = 0
    replay_from: int = LOWEST_SLOT
    holds: tuple[HeldSlot, ...] = ()
    """What the id still holds, by ticks of this incarnation and earlier ones."""


@dataclass(frozen=True, slots=True)
class ShardNumber:
    """The answer to `JoinShard`."""

    shard: int


@dataclass(frozen=True, slots=True)
class MoveTerms:
    """The answer to `MovePipeline`: the shards that have to do their part, the table by which what comes is dealt to them, and which of
    the group's moves it is."""

    table: RoutingTable
    members: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A shard has come, at an address, or (None) has gone: open a link to it, or close it."""

    shard: int
    address: str | None


@dataclass(frozen=True, slots=True)
class LeftTracker:
    """This shard has left: every other one has all that it logged. Its process may end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an event with a request: a value or a refusal."""

    request: Hashable
    result: (
        PipelineSpec
        | Joined
        | Restart
        | RoutingTable
        | LossReport
        | ShardNumber
        | Placement
        | MoveTerms
        | Refusal
        | None
    )


@dataclass(frozen=True, slots=True)
class SessionAttached:
    """`last_number`: the key's last tick that has been accepted."""

    session: Hashable
    last_number: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The session is over (unknown or fenced key, wrong home, a newer session)."""

    session: Hashable
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class TicksDurable:
    """All the session's ticks up to `number` are durable."""

    session: Hashable
    number: int


@dataclass(frozen=True, slots=True)
class TickRefused:
    """A tick was refused whole; its number stays free."""

    session: Hashable
    number: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class FrontGranted:
    """Every shard has pinned a front of the session's node; its home will not forget it."""

    session: Hashable
    grant: Grant


@dataclass(frozen=True, slots=True)
class Announced:
    """Min times that are durable and may be published: (segment, min time) that changed, and the least
    over all segments."""

    pipeline: str
    min_times: tuple[tuple[int, int], ...]
    pipeline_min_time: int


@dataclass(frozen=True, slots=True)
class PipelineEnded:
    """A pipeline was deleted, or (moved) has gone to another group, durably: nobody will hear more of it here."""

    pipeline: str
    moved: bool = False


@dataclass(frozen=True, slots=True)
class UnitsArrived:
    """Units that this shard resolves for a segment have arrived: whoever waits may ask again."""

    pipeline: str
    segment: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `Wake` at this moment (nanoseconds of the shell's monotonic clock) at the latest."""

    now_ns: int


Effect = (
    Append
    | Send
    | Answer
    | SessionAttached
    | SessionRefused
    | TicksDurable
    | TickRefused
    | FrontGranted
    | Announced
    | PipelineEnded
    | UnitsArrived
    | MembersChanged
    | LeftTracker
    | WakeAt
)
