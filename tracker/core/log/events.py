"""Events: what goes into a process.

`request` and `session` are the shell's own marks: any hashable value; answers carry them back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tracker.core.log.frames import Frame
from tracker.core.model import Cells, NodeKey, PipelineSpec, StagedContribution, TickContent
from tracker.core.model import durable as d
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.placements import Group
from tracker.core.model.waits import WaitCause


@dataclass(frozen=True, slots=True)
class RegisterPipeline:
    """Answered by `Answer(request, PipelineSpec)`, the pipeline as it is then, when every shard has it
    durably. May be repeated, also as it was at first. change: one that is there becomes as this one from now on, as far as
    it can while it runs (`check_change`); without, whatever differs is a conflict. check_only: nothing changes; the
    answer is the pipeline as it would be. decided_on: of a change, how often the pipeline had been changed when that was decided on,
    -1 where there was none: a change names what is to be there, so it would undo what has come since. None: not said."""

    request: Hashable
    spec: PipelineSpec
    change: bool = False
    check_only: bool = False
    placed: int = 0
    """The version of its placement in this group, where it is new."""
    above: int = 0
    """In which generation it begins then, at least: above all that one of its name had in another group."""
    decided_on: int | None = None


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Answered by `Answer(request, Joined)`. owner: what the node runs for, such as a query's id; empty
    if that is not known. While a session of the node lives, another owner is refused, unless it takes
    over. check_only: nothing changes; the answer is what a join would get, with the newest durable
    key of the id (of incarnation 0 where there is none). known_incarnation, known_ticks: what the node's
    own record says of it, 0 if it has none; a home that knows less has lost it, and refuses. known_generation: in which
    generation of the pipeline that was; in a later one none of it counts. joining: a name that all attempts of one joining
    share, and no other; empty if it has none. never_left: by its own record it has not left in order since it got
    `known_incarnation`; a home that does not know it has forgotten it with its batches, and refuses."""

    request: Hashable
    pipeline: str
    node_id: str
    kind: str
    owner: str = ""
    take_over: bool = False
    check_only: bool = False
    known_incarnation: int = 0
    known_ticks: int = 0
    known_generation: int = 0
    joining: str = ""
    never_left: bool = False


@dataclass(frozen=True, slots=True)
class LeaveNode:
    """Answered by `Answer(request, None)`. generation: as of a stream."""

    request: Hashable
    pipeline: str
    key: NodeKey
    generation: int | None = None


@dataclass(slots=True, eq=False)
class RetireNode:
    """An operator closes a node's key, its fronts with it, and writes off the given cells (none: what
    is open is waited for). node_id: empty where it is no node that is gone, but a segment: then all cells
    are of segments that were removed. May be repeated. Answered by `Answer(request, None)` when every shard
    has applied it. at_ms: when, in unix time, for people. incarnation, generation: of the node's key and of the pipeline, as
    whoever asks was shown them: where the newest key is another one by now, or the generation, nothing happens. None: it is
    whoever is there, in whatever generation."""

    request: Hashable
    pipeline: str
    node_id: str
    write_off: Cells
    at_ms: int
    incarnation: int | None = None
    generation: int | None = None


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
class DeletePipeline:
    """An operator ends a pipeline in its generation `generation`; drop_open: also where something is open, which is
    lost then. May be repeated. Answered by `Answer(request, Restart)`, the generation that ends it, when every
    shard has ended it. at_ms: when, in unix time, for people."""

    request: Hashable
    pipeline: str
    generation: int
    drop_open: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class JoinShard:
    """A process that is reached at `address` asks to be a shard; asked of the sequencer. May be
    repeated: until it has joined, an address is given one number. Answered by `Answer(request,
    ShardNumber)`, when every process will keep for it what homes log. speaks: the highest feature level of its release. process:
    which of the processes at this address it is; the number of another one is given up. Empty: not said."""

    request: Hashable
    address: str
    speaks: int = NEWEST_LEVEL
    process: str = ""


@dataclass(frozen=True, slots=True)
class RescaleShards:
    """An operator asks for so many shards; asked of the sequencer. May be repeated. evacuate: shards
    that go hand over their open cells at once; without: shards that are to go, before those with the highest numbers.
    Answered by `Answer(request, RoutingTable)` when every shard goes by the new table."""

    request: Hashable
    shards: int
    evacuate: bool = False
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishUpgrade:
    """An operator asks that all record and send by a feature level from now on; asked of the sequencer. Refused while a shard
    is not known to speak it. May be repeated. Answered by `Answer(request, None)` when every shard has heard of it."""

    request: Hashable
    level: int


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """An operator states that shards never come back; asked of the smallest shard that is left. write_off: what was open is
    given up, and each pipeline goes on in a new generation; else it stands until it is restarted. May be repeated.
    Answered by `Answer(request, LossReport)` when the others go on without them."""

    request: Hashable
    shards: tuple[int, ...]
    write_off: bool = False
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlacePipeline:
    """Asked of the directory, at the shard that registers the name. expected: None, where `group` claims the name: it gets it
    if that is free, or its own already, each time by a new version. Else the version of the placement that is to be replaced by
    one at `group`, NOWHERE to give the name back, whose pipeline has ended by the generation `ended`. May be repeated. Answered by `Answer(request, Placement)`: where the name belongs
    now, whatever was asked for. seen: of a claim, the version by which its own group had the name when it was made, 0 where that was
    free; it is refused where that is over, since a pipeline may be there by what followed. None: not said."""

    request: Hashable
    pipeline: str
    group: int
    expected: int | None = None
    ended: int = 0
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class KnowGroup:
    """Asked of the directory, at its sequencer: a group is reached at these addresses; or, with none of them, one that is known is
    cordoned or not. May be repeated. Answered by `Answer(request, None)`."""

    request: Hashable
    group: Group


@dataclass(frozen=True, slots=True)
class MovePipeline:
    """Asked of the sequencer: a pipeline is to go to `group`, by the placement `version` by which it is here; or (arrives) to come
    from there, by the placement by which it is there. segments, next_incarnation, generation, level (the feature level by which it is
    recorded there): of one that comes. May be repeated. Answered by `Answer(request, MoveTerms)` when every shard has heard of it."""

    request: Hashable
    pipeline: str
    version: int
    group: int
    arrives: bool = False
    segments: int = 0
    next_incarnation: int = 0
    generation: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class KeepPart:
    """Asked of each shard of the group to which a pipeline moves: piece `number`, from 0, of `pieces`, of its part. May be repeated.
    Answered by `Answer(request, None)` when durable."""

    request: Hashable
    pipeline: str
    version: int
    number: int
    pieces: int
    part: d.Snapshot


@dataclass(frozen=True, slots=True)
class EndMove:
    """Asked of the sequencer: what the directory has decided of move `number` of this group, by a placement of `version`. May be repeated, and
    come late: it ends no other move. Answered by `Answer(request, None)` when every shard has applied it."""

    request: Hashable
    pipeline: str
    number: int
    version: int
    here: bool


@dataclass(frozen=True, slots=True)
class AttachSession:
    """A stream of ticks begins; answered by `SessionAttached` or `SessionRefused`. A newer session
    of the key silences the older one, which gets `SessionRefused`. generation: in which the node has joined, if it says so: a
    pipeline that had the name before, in another group, may have had the same key."""

    session: Hashable
    pipeline: str
    key: NodeKey
    generation: int | None = None


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


@dataclass(slots=True, eq=False)
class SubmitTicks:
    """Ticks that came in one message, at least one, all of one session; in their order. Each is answered as if
    it had come alone."""

    ticks: Sequence[SubmitTick]

    @property
    def session(self) -> Hashable:
        return self.ticks[0].session


@dataclass(frozen=True, slots=True)
class ReportWaits:
    """What the node of an attached session waits for, instead of what it reported before on it; of a session
    that is over it is nothing. Answered by `SessionRefused` if it is more than may be reported, else not."""

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
    | DeletePipeline
    | JoinShard
    | RescaleShards
    | FinishUpgrade
    | DeclareLost
    | PlacePipeline
    | KnowGroup
    | MovePipeline
    | KeepPart
    | EndMove
    | AttachSession
    | DetachSession
    | SubmitTick
    | SubmitTicks
    | ReportWaits
    | NodeAlive
    | StageContributions
    | FrameArrived
    | PeerConnected
    | PeerDisconnected
    | Committed
    | Wake
)
