"""What goes into a tracker process and what comes out: events, effects, frames, log records.

A process is `tracker.core.process.Process`; `handle(event, now_ns)` returns effects. Everything that
must survive is a `Record`: the process asks for it by `Append`, the shell makes it durable and says
`Committed`, and only then does it take effect. Recovery applies the same records in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tracker.core.model import (
    Batch,
    Cells,
    FrontId,
    FrontPin,
    Limits,
    NodeKey,
    PipelineSpec,
    Refusal,
    StagedContribution,
    Tick,
    TickContent,
)
from tracker.core.model import Restart as Restart  # noqa: PLC0414 (it is part of entries)
from tracker.core.rescaling import RoutingEntry
from tracker.core.routing import RoutingTable
from tracker.core.slots import LOWEST_SLOT
from tracker.core.waits import WaitCause

# --- entries of a home log (rule 3): what a home tells every shard, in one order ------------------


@dataclass(frozen=True, slots=True)
class PipelineRegistered:
    """A pipeline exists from here on."""

    spec: PipelineSpec


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """A pipeline goes by other limits from here on. Said by the registrar, which numbers the changes of a
    pipeline from 1: one that is not newer than what a shard goes by is nothing there."""

    pipeline: str
    number: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class PipelineRestarted:
    """A new generation of a pipeline: what is open is dropped, and all keys of older ones end. Said by
    the registrar; a shard begins it at the first entry of any log that is of it."""

    pipeline: str
    restart: Restart


@dataclass(frozen=True, slots=True)
class PipelineCompleted:
    """Everything of a pipeline's generation is completely processed, in every segment. Said by the
    registrar, whose log also has the restarts: so one is before the other. Whoever applies it announces it;
    of an older generation it is nothing. at_ms: unix time, for the history."""

    pipeline: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class KeyOpened:
    """A key begins, and with it an older key of the same node ends, in one entry. `restart`: the
    generation that it belongs to; None for the first. `owner`: as in `JoinNode`."""

    pipeline: str
    key: NodeKey
    kind: str
    restart: Restart | None = None
    owner: str = ""

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation


@dataclass(slots=True, eq=False)
class KeyTick:
    """A tick. Sent to another shard, it holds that shard's cells and units alone. `late` is the
    consumption below min time, which its owner counts in the late ledger instead of XORing it."""

    tick: Tick
    late: Cells


@dataclass(frozen=True, slots=True)
class KeyClosed:
    """A key ends after tick `last_number`; `evicted`: its node's fronts end with it; `retired`: so
    does an operator's word that the node is gone (rule 9)."""

    pipeline: str
    key: NodeKey
    last_number: int
    evicted: bool = False
    retired: bool = False


@dataclass(frozen=True, slots=True)
class KeyDropped:
    """Every shard has applied all of a closed key: it is forgotten."""

    pipeline: str
    key: NodeKey


@dataclass(slots=True, eq=False)
class WrittenOff:
    """An operator gives up what is open in some cells, because of a node that is gone (rule 9). A cell
    is cleared where its checksum is still the one given here, the one that the operator was shown;
    any other holds items of somebody else and stays. None is: the operator says that the node is gone,
    which was evicted before. Sent to another shard, it holds that shard's cells alone. at_ms: when, in unix time, for people. It is of one generation, and nothing in a later
    one."""

    pipeline: str
    node_id: str
    cells: Cells
    at_ms: int
    generation: int = 0


Entry = (
    PipelineRegistered
    | LimitsChanged
    | PipelineRestarted
    | PipelineCompleted
    | KeyOpened
    | KeyTick
    | KeyClosed
    | KeyDropped
    | WrittenOff
    | RoutingEntry
)


# --- records: what a shard's store holds ----------------------------------------------------------
# Those with a generation are nothing in a later one: it may have begun while they became durable.


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """Entry `number` of this shard's own home log, whole (all shards' cells)."""

    number: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class ReceivedEntries:
    """Entries of another shard's home log, from number `first`, with this shard's parts."""

    shard: int
    first: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Pinned:
    """Pins of one pipeline; never computed anew once written."""

    pipeline: str
    pins: tuple[FrontPin, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class FrontsGranted:
    """Every shard has pinned these fronts of nodes at home here: each may label from its largest pin on.
    They are told so when this record is durable."""

    pipeline: str
    grants: tuple[FrontPin, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """Min times, by segment number, that this process will say once this record is durable. at_ms: unix
    time at which they were decided, for the history; 0 if it is not known."""

    pipeline: str
    min_times: tuple[tuple[int, int], ...]
    generation: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """Contributions staged at the home of a query's node."""

    pipeline: str
    node_id: str
    contributions: tuple[StagedContribution, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Swept:
    """Cells of a segment below a slot that some process has announced went to the late ledger."""

    pipeline: str
    segment: int
    below: int
    generation: int = 0


Record = HomeEntry | ReceivedEntries | Pinned | FrontsGranted | Announcement | Staged | Swept


# --- frames between processes ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the sender's home log: numbers first, first+1, ..."""

    first: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class EntriesReceived:
    """The sender holds the receiver's home log durably up to `number`; `again`: send on from there."""

    number: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class FrontReport:
    """A pinned front at a shard: `heartbeat` >= `pin`. It joined by tick `number` of `incarnation`."""

    node_id: str
    front: str
    segment: int
    pin: int
    heartbeat: int
    incarnation: int
    number: int

    @property
    def id(self) -> FrontId:
        return self.node_id, self.front, self.incarnation, self.number


@dataclass(frozen=True, slots=True)
class TouchedRun:
    """A run of entries of one home's log, up to `last`, and the lowest slot that its ticks touched
    by segment."""

    home: int
    last: int
    touched: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SegmentLow:
    """A segment's lowest non-zero slot at a shard (FOREVER if none), with advisory totals."""

    segment: int
    slot: int
    open_slots: int
    open_items: int
    late_items: int = 0
    written_off_items: int = 0


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """A shard's state of one pipeline at a moment, or its changes since the report before (rule 5).

    left: of fronts that have left, their joinings (0 and 0 from a process of an older version, which names
    none); announced: (segment, min time) in this generation.
    """

    pipeline: str
    lows: tuple[SegmentLow, ...] = ()
    fronts: tuple[FrontReport, ...] = ()
    left: tuple[FrontId, ...] = ()
    runs: tuple[TouchedRun, ...] = ()
    announced: tuple[tuple[int, int], ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Report `number` of a shard; `whole` ones start anew, others follow the number before.

    applied: (home, entries of its log that the shard has applied), the shard's vector: of every node
    a prefix of its ticks. cut, in whole reports: the sender's M, by which it has let go of runs;
    the receiver's own M must have come as far before it goes by this.
    """

    number: int
    whole: bool
    applied: tuple[tuple[int, int], ...]
    pipelines: tuple[PipelineReport, ...]
    cut: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """The sender has missed a report."""


FrameBody = Entries | EntriesReceived | ShardReport | ReportWanted


@dataclass(frozen=True, slots=True)
class Frame:
    """What one shard says to another. `epoch` grows with each owner of the sender's store; a frame
    of an older epoch is ignored. Frames may be lost, repeated and reordered."""

    shard: int
    epoch: int
    body: FrameBody


# --- events ---------------------------------------------------------------------------------------
# `request` and `session` are the shell's own marks: any hashable value; answers carry them back.


@dataclass(frozen=True, slots=True)
class RegisterPipeline:
    """Answered by `Answer(request, PipelineSpec)`, the pipeline as it is then, when every shard has it
    durably. May be repeated, also as it was before its limits were changed. change_limits: one that is
    there goes by the limits of this one from now on; whatever else differs is a conflict."""

    request: Hashable
    spec: PipelineSpec
    change_limits: bool = False


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Answered by `Answer(request, Joined)`. owner: what the node runs for, such as a query's id; empty
    if that is not said. While a session of the node lives, another owner is refused, unless it takes
    over. check_only: nothing changes; the answer is what a join would be told, with the newest durable
    key of the id (of incarnation 0 where there is none). known_incarnation, known_ticks: what the node's
    own record says of it, 0 if it has none; a home that knows less has lost it, and refuses."""

    request: Hashable
    pipeline: str
    node_id: str
    kind: str
    owner: str = ""
    take_over: bool = False
    check_only: bool = False
    known_incarnation: int = 0
    known_ticks: int = 0


@dataclass(frozen=True, slots=True)
class LeaveNode:
    """Answered by `Answer(request, None)`."""

    request: Hashable
    pipeline: str
    key: NodeKey


@dataclass(slots=True, eq=False)
class RetireNode:
    """An operator closes a node's key, its fronts with it, and writes off the given cells (none: what
    is open is waited for). May be repeated. Answered by `Answer(request, None)` when every shard has
    applied it. at_ms: when, in unix time, for people."""

    request: Hashable
    pipeline: str
    node_id: str
    write_off: Cells
    at_ms: int


@dataclass(frozen=True, slots=True)
class RestartPipeline:
    """An operator begins the generation after `generation`, from a slot on (None: from the pipeline's
    min time). May be repeated: it begins one generation. Answered by `Answer(request, Restart)` when
    every shard has begun it. at_ms: when, in unix time, for people."""

    request: Hashable
    pipeline: str
    generation: int
    from_slot: int | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class JoinShard:
    """A process that is reached at `address` asks to be a shard; asked of the sequencer. May be
    repeated: until it has joined, an address is given one number. Answered by `Answer(request,
    ShardNumber)`, when every process will keep for it what homes log."""

    request: Hashable
    address: str


@dataclass(frozen=True, slots=True)
class RescaleShards:
    """An operator asks for so many shards; asked of the sequencer. May be repeated. evacuate: shards
    that go hand over their open cells at once. Answered by `Answer(request, RoutingTable)` when every
    shard goes by the new table."""

    request: Hashable
    shards: int
    evacuate: bool = False


@dataclass(frozen=True, slots=True)
class AttachSession:
    """A stream of ticks begins; answered by `SessionAttached` or `SessionRefused`. A newer session
    of the key silences the older one, which gets `SessionRefused`."""

    session: Hashable
    pipeline: str
    key: NodeKey


@dataclass(frozen=True, slots=True)
class DetachSession:
    """A stream of ticks is gone."""

    session: Hashable


@dataclass(frozen=True, slots=True)
class NodeAlive:
    """The node of an attached session lives, and has nothing to commit: it publishes for long, say, or
    waits for its grant. It promises nothing by that. Of a session that is over it is nothing."""

    session: Hashable


@dataclass(slots=True, eq=False)
class SubmitTick:
    """A tick on an attached session; answered by `TicksDurable` or `TickRefused`."""

    session: Hashable
    number: int
    content: TickContent


@dataclass(frozen=True, slots=True)
class ReportWaits:
    """What the node of an attached session waits for, instead of what it said before on it; of a session
    that is over it is nothing. Answered by `SessionRefused` if it is more than may be said, else not."""

    session: Hashable
    waits: tuple[WaitCause, ...]


@dataclass(frozen=True, slots=True)
class StageContributions:
    """Answered by `Answer(request, None)` when durable."""

    request: Hashable
    pipeline: str
    node_id: str
    contributions: tuple[StagedContribution, ...]


@dataclass(frozen=True, slots=True)
class FrameArrived:
    """A frame of another shard."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A link to another shard is up (again): what was sent before may be lost."""

    shard: int


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """A link to another shard is down: frames to it are not made until it is up again."""

    shard: int


@dataclass(frozen=True, slots=True)
class Committed:
    """All records up to this position (counted from 1 over the log's whole life) are durable."""

    position: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Time has passed; sent at the latest at the moment of the last `WakeAt`."""


Event = (
    RegisterPipeline
    | JoinNode
    | LeaveNode
    | RetireNode
    | RestartPipeline
    | JoinShard
    | RescaleShards
    | AttachSession
    | DetachSession
    | SubmitTick
    | ReportWaits
    | NodeAlive
    | StageContributions
    | FrameArrived
    | PeerConnected
    | PeerDisconnected
    | Committed
    | Wake
)


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Make a record durable at this position; in order; many positions may share one write."""

    position: int
    record: Record


@dataclass(frozen=True, slots=True)
class Send:
    """Give a frame to the link to a shard; it may be dropped when the link is down or full."""

    shard: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Grant:
    """A node's front: whether every shard has answered, from which slot it may label, and its last
    durable promise (LOWEST_SLOT if none)."""

    front: str
    segment: int
    slot: int
    heartbeat: int
    granted: bool


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


@dataclass(frozen=True, slots=True)
class ShardNumber:
    """The answer to `JoinShard`."""

    shard: int


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A shard has come, at an address, or (None) has gone: open a link to it, or close it."""

    shard: int
    address: str | None


@dataclass(frozen=True, slots=True)
class LeftTracker:
    """This shard has left: every other one has all that it said. Its process may end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an event with a request: a value or a refusal."""

    request: Hashable
    result: PipelineSpec | Joined | Restart | RoutingTable | ShardNumber | Refusal | None


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
    """Min times that are durable and may be said: (segment, min time) that changed, and the least
    over all segments."""

    pipeline: str
    min_times: tuple[tuple[int, int], ...]
    pipeline_min_time: int


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
    | UnitsArrived
    | MembersChanged
    | LeftTracker
    | WakeAt
)
