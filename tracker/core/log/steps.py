"""What home logs say when shards come and go: the steps of rule 10, as entries (see docs/elasticity.md).

One shard, the sequencer, decides; its steps stand in its home log, so that every process takes them in
one order, each once, and no crash can undo one. What the others answer stands in their own logs. Its role moves
by two steps: the last one that the old sequencer takes, and the first one of the new, for which everybody waits
until the other has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracker.core.log.losses import LossDeclared, LossHeard, ShardLost
from tracker.core.model import (
    Cells,
    Restart,
    StagedContribution,
    Unit,
    WrittenOffCell,
)
from tracker.core.model.nodes import NodeSnapshot
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import LOWEST_SLOT

FIRST_SEQUENCER = 0
"""The shard whose home log orders the steps at first."""
MAX_CELLS_PER_MOVE = 65_536
"""Cells that one entry hands over; more follow in further entries."""
MAX_SHARDS = 64
"""Shards at a time: what processes tell each other grows with their number squared."""


# --- the sequencer's steps ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardJoining:
    """A shard is to be sent everything that homes log from here on. It owns nothing, and nobody waits
    for it before it announces something."""

    shard: int
    address: str


@dataclass(frozen=True, slots=True)
class ShardJoined:
    """The shard has taken up its peer's state: it counts from here on, in M and for fronts."""

    shard: int


@dataclass(frozen=True, slots=True)
class ShardRemoved:
    """A shard that was joining has not come: it is forgotten."""

    shard: int


@dataclass(frozen=True, slots=True)
class RescaleProposed:
    """The sequencer asks every home for its `SlotBounds`, so that `shards` can own what lies beyond them.
    evacuate: shards that go hand over their open cells at once instead of waiting for them."""

    version: int
    shards: tuple[int, ...]
    evacuate: bool


@dataclass(frozen=True, slots=True)
class RoutingChanged:
    """Every home is to go by this table, the next version."""

    table: RoutingTable


@dataclass(frozen=True, slots=True)
class ShardLeaving:
    """The shard owns nothing any more: it is to log its departure summary."""

    shard: int


@dataclass(frozen=True, slots=True)
class SequencerMoved:
    """The sequencer's last step: `shard` decides from here on. move: the how manieth such move it is, from 1."""

    shard: int
    move: int


@dataclass(frozen=True, slots=True)
class SequencerBegun:
    """The first step of a new sequencer, which has applied all steps of the ones before: it decides since that move."""

    move: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRaised:
    """Every process speaks this level, and an operator has asked for it: from here on processes record and send by it, and no
    release that does not speak it can take part any more."""

    level: int


# --- steps by which a pipeline goes to another group, or comes from one -------------------------------


@dataclass(frozen=True, slots=True)
class MoveBegun:
    """The sequencer's move `number`, from 1: a pipeline goes to `group`, or comes from there, by the placement `version` of the
    directory. Until the move has ended, its homes take nothing of it, and no shard comes or goes. next_incarnation: of a pipeline
    that comes; none below is given here any more."""

    number: int
    pipeline: str
    version: int
    group: int
    arrives: bool = False
    next_incarnation: int = 0


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """The sequencer: the directory has decided, by a later placement, of which this is the version. here: whether the pipeline is
    here from now on, and goes on; or has gone, or does not come."""

    number: int
    pipeline: str
    version: int
    here: bool


# --- what the others log --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MoveReady:
    """This home has logged its last of the pipeline that goes by this move, but for word of changes that it judges by; or this
    shard keeps its part of the one that comes."""

    number: int


@dataclass(frozen=True, slots=True)
class SlotBounds:
    """By pipeline, the highest slot that a shard knows anything of."""

    version: int
    slots: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class NodesMoved:
    """Nodes of a pipeline are at home at another shard from here on, with what is staged for them.
    Sent to other shards, it names none. restart: their generation."""

    version: int
    pipeline: str
    home: int
    restart: Restart | None
    nodes: tuple[NodeSnapshot, ...] = ()
    staged: tuple[tuple[str, StagedContribution], ...] = ()

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation


@dataclass(frozen=True, slots=True)
class RoutingActivated:
    """This home has handed its nodes over; its entries from here on are split by the version.
    next_incarnation: what its next key would have been given."""

    version: int
    next_incarnation: int


@dataclass(slots=True, eq=False)
class CellsMoved:
    """Open cells, names of open units, and cells that were written off, which this shard has and does
    not own: it lets go of them, and their owners take them. Sent to another shard, it holds what that
    one takes."""

    version: int
    pipeline: str
    generation: int
    cells: Cells = field(default_factory=Cells.empty)
    units: tuple[Unit, ...] = ()
    written_off: tuple[WrittenOffCell, ...] = ()
    consumed: tuple[Unit, ...] = ()
    """Units that were consumed here, by the table before, and created elsewhere, by the newest."""


@dataclass(frozen=True, slots=True)
class HandoverFinished:
    """This shard has no more to hand over under this version."""

    version: int


@dataclass(frozen=True, slots=True)
class LateEntry:
    """One segment's late ledger at a shard: what was consumed below min time."""

    segment: int
    items: int = 0
    cells: int = 0
    last_slot: int = LOWEST_SLOT


@dataclass(frozen=True, slots=True)
class DepartureSummary:
    """What a shard that leaves has announced of a pipeline in a generation: min times by segment number. And
    its ledgers, which the shard `heir` of the entry takes over; written_off_items: by segment number."""

    pipeline: str
    restart: Restart | None
    announced: tuple[int, ...]
    late: tuple[LateEntry, ...] = ()
    written_off_items: tuple[tuple[int, int], ...] = ()

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation


@dataclass(frozen=True, slots=True)
class DepartureSummarized:
    """A part of the departure summaries of a shard that leaves, where one entry cannot hold them all. The
    shard keeps their ledgers no longer: `heir` does, which is the sequencer."""

    pipelines: tuple[DepartureSummary, ...]
    heir: int


@dataclass(frozen=True, slots=True)
class ShardLeft:
    """The last entry of a shard's home log, with its departure summaries, or the rest of them. applied: its
    vector; whoever goes on without it must have heard as much from the others first."""

    applied: tuple[tuple[int, int], ...]
    pipelines: tuple[DepartureSummary, ...]
    heir: int


MembershipStep = (
    ShardJoining
    | ShardJoined
    | ShardRemoved
    | RescaleProposed
    | RoutingChanged
    | ShardLeaving
    | SequencerMoved
    | SequencerBegun
    | FeatureLevelRaised
    | MoveBegun
    | MoveEnded
    | MoveReady
    | SlotBounds
    | NodesMoved
    | RoutingActivated
    | CellsMoved
    | HandoverFinished
    | DepartureSummarized
    | ShardLeft
    | LossDeclared
    | LossHeard
    | ShardLost
)
