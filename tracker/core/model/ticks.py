"""What nodes commit, and by which names fronts and generations are known (rules 1, 2, 8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tracker.core.model.cells import Cells


class NodeKind(StrEnum):
    """What a node says that it is. Explanations go by these; any other word is shown as it is."""

    FRONT = "front"
    QUERY = "query"
    LOCAL_TRACKER = "local-tracker"
    OTHER = "other"


@dataclass(frozen=True, slots=True, order=True)
class NodeKey:
    """Who numbers ticks: an id that survives restarts and an incarnation that does not (rule 9)."""

    node_id: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node_id}#{self.incarnation}"


@dataclass(frozen=True, slots=True)
class Batch:
    """A node's own idempotence key (rule 2): a repeated (scope, id) with the same fingerprint is
    dropped, with another fingerprint refused. For a query: query id, batch id, hash of offsets and
    contents. For a front: its name, the number of the published batch, hash of its contents."""

    scope: str
    id: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Unit:
    """A file or an offset range that is an item as a whole: its name, segment number and slot."""

    segment: int
    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A front's promise: it will label nothing below `slot`."""

    front: str
    slot: int


@dataclass(frozen=True, slots=True)
class FrontJoin:
    """A front of the committing node that begins to feed a segment (rule 8)."""

    front: str
    segment: int


@dataclass(frozen=True, slots=True)
class HoldMove:
    """A hold of the committing node, as it is from this tick on: at this slot of a segment, or at FOREVER, which
    lets go of it (rule 11). The same again changes nothing."""

    name: str
    segment: int
    slot: int


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A hold as it stands. Incarnation and number are those of the tick that moved it there: together with the
    node's id and the name they make the ack value of its item, which so never comes again."""

    name: str
    segment: int
    slot: int
    incarnation: int
    number: int


@dataclass(slots=True, eq=False)
class TickContent:
    """What one tick carries, apart from who commits it and under which number (rule 1)."""

    created: Cells = field(default=Cells.empty())
    consumed: Cells = field(default=Cells.empty())
    heartbeats: tuple[Heartbeat, ...] = ()
    joins: tuple[FrontJoin, ...] = ()
    leaves: tuple[str, ...] = ()
    batch: Batch | None = None
    units_created: tuple[Unit, ...] = ()
    units_consumed: tuple[Unit, ...] = ()
    holds: tuple[HoldMove, ...] = ()
    """What becomes of the node's holds. Their cells are none of the node's business: its home adds them."""
    told: bytes | None = field(default=None, init=False, repr=False)
    """All of this, and nothing else, in the words in which it came; None where it was made here, or is a part of
    what came, or more. What came is written down in these words."""

    @property
    def names(self) -> int:
        """How many fronts, units and holds it names."""
        return (
            len(self.heartbeats) + len(self.joins) + len(self.leaves)
            + len(self.units_created) + len(self.units_consumed) + len(self.holds)
        )  # fmt: skip


HOLD_FRONT = "lowmark.hold/"
"""How a front is named that joins so that a hold can begin where it was granted, and leaves by that tick. It is
none of those whose number a pipeline declares."""

FrontName = tuple[str, str]
"""(node id, front name)."""


FrontId = tuple[str, str, int, int]
"""A front, by its joining: (node id, front name, incarnation, number of the tick by which it joined). One
that has left and joined again is another one."""


@dataclass(frozen=True, slots=True)
class FrontPin:
    """A slot of a front, from which it may label: where a shard pinned it, or what its home has granted it
    (rule 8). Incarnation and number are of its joining; 0 where a store of an older version says none."""

    node_id: str
    front: str
    slot: int
    incarnation: int = 0
    number: int = 0

    @property
    def id(self) -> FrontId:
        return self.node_id, self.front, self.incarnation, self.number


@dataclass(frozen=True, slots=True)
class Restart:
    """How a generation of a pipeline begins, after the first one, 0: from which slot on, and when an
    operator asked for it (unix time, for people)."""

    generation: int
    from_slot: int
    at_ms: int


@dataclass(slots=True, eq=False)
class Tick:
    """One commit of one node, all or nothing; numbered from 1 by its key."""

    pipeline: str
    key: NodeKey
    number: int
    content: TickContent


@dataclass(frozen=True, slots=True)
class StagedContribution:
    """What one task attempt of one operator consumed and created, kept until its batch commits.

    (query, run, batch, execution, operator, stage, partition, attempt) is its key; a second one
    under the same key must be equal. `created` and `consumed` as in a tick.
    """

    query: str
    run: str
    batch: int
    execution: int
    operator: str
    stage: int
    partition: int
    attempt: int
    created: Cells
    consumed: Cells

    @property
    def key(self) -> tuple[str, str, int, int, str, int, int, int]:
        return (
            self.query, self.run, self.batch, self.execution,
            self.operator, self.stage, self.partition, self.attempt,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vacancy:
    """The place of a front that was evicted, and the number of the segment that it fed."""

    node_id: str
    front: str
    segment: int


@dataclass(frozen=True, slots=True)
class DroppedCells:
    """What of a segment's was open at a shard when a generation began; items are advisory."""

    segment: int
    cells: int
    items: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A restart, the slot from which this process let it begin, and what it dropped at this shard."""

    restart: Restart
    floor: int
    cells: tuple[DroppedCells, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A pipeline stands since shards were declared lost, until an operator restarts it. from_slot: from where on it may
    begin again, above all that they can have announced; None: the operator names a slot. open: what they had reported
    to be open, at the shard that lists it."""

    lost: tuple[int, ...]
    from_slot: int | None
    at_ms: int
    open: tuple[DroppedCells, ...] = ()
