"""The plain data that the protocol talks about: keys, cells, ticks, pipelines, refusals.

Cells are parallel NumPy arrays, never one Python object a cell. Segments are named by people and
numbered, by their place in the registered pipeline, everywhere inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracker.core.slots import DEFAULT_SLACK_NS

KEEP_ALIVES_PER_PATIENCE = 5
"""A node says so often that it lives, in the time after which its fronts are evicted."""
_FEW = 6
"""Up to here Python's own loops over an array take less than a call of NumPy's."""


def span(values: NDArray[Any]) -> tuple[int, int]:
    """The least and the greatest of integers, of which there is at least one."""
    if len(values) <= _FEW:
        listed = values.tolist()
        return min(listed), max(listed)
    return int(np.minimum.reduce(values)), int(np.maximum.reduce(values))


@dataclass(frozen=True, slots=True, order=True)
class NodeKey:
    """Who numbers ticks: an id that survives restarts and an incarnation that does not (rule 9)."""

    node_id: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node_id}#{self.incarnation}"


@dataclass(slots=True, eq=False)
class Cells:
    """XOR deltas by (segment, slot): four arrays of one length.

    segments: int32 numbers of segments; slots: int64; checksums: uint64, the XOR of the ack values;
    counts: int64, how many items (shown to people, never decided by). A pair may occur repeatedly.
    Nobody writes into the arrays: what is asked of them often is found once, and kept.
    """

    segments: NDArray[np.int32]
    slots: NDArray[np.int64]
    checksums: NDArray[np.uint64]
    counts: NDArray[np.int64]
    _segment_span: tuple[int, int] | None = field(default=None, init=False, repr=False)
    _lowest_slots: dict[int, int] | None = field(default=None, init=False, repr=False)
    _highest_slot: int | None = field(default=None, init=False, repr=False)

    @classmethod
    def empty(cls) -> Cells:
        return _NO_CELLS

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> Cells:
        """From rows of (segment, slot, checksum, count)."""
        table = list(rows)
        if not table:
            return _NO_CELLS
        segments, slots, checksums, counts = zip(*table, strict=True)
        return cls(
            np.array(segments, np.int32),
            np.array(slots, np.int64),
            np.array(checksums, np.uint64),
            np.array(counts, np.int64),
        )

    def __len__(self) -> int:
        return len(self.slots)

    def select(self, mask: NDArray[np.bool_]) -> Cells:
        """The cells at the True places of a boolean array of this length."""
        if mask.all():
            return self
        return Cells(
            self.segments[mask],
            self.slots[mask],
            self.checksums[mask],
            self.counts[mask],
        )

    def segment_span(self) -> tuple[int, int]:
        """The least and the greatest number of a segment; there is at least one cell."""
        if self._segment_span is None:
            one = self.segments.item(0)
            same = self.segments.tobytes() == self.segments[:1].tobytes() * len(self.segments)
            self._segment_span = (one, one) if same else span(self.segments)
        return self._segment_span

    def lowest_slots(self) -> dict[int, int]:
        """The lowest slot of each segment that there is a cell of; no segment number is negative."""
        if self._lowest_slots is None:
            self._lowest_slots = self._find_lowest_slots()
        return self._lowest_slots

    def _find_lowest_slots(self) -> dict[int, int]:
        if len(self.slots) <= _FEW:
            lowest: dict[int, int] = {}
            for segment, slot in zip(self.segments.tolist(), self.slots.tolist(), strict=True):
                lowest[segment] = min(slot, lowest.get(segment, slot))
            return lowest
        first, last = self.segment_span()
        if first == last:
            return {first: int(np.minimum.reduce(self.slots))}
        by_segment = np.full(last + 1, np.iinfo(np.int64).max)
        np.minimum.at(by_segment, self.segments, self.slots)
        segments = np.unique(self.segments)
        return dict(zip(segments.tolist(), by_segment[segments].tolist(), strict=True))

    def highest_slot(self) -> int:
        """The highest slot of all cells, of which there is at least one."""
        if self._highest_slot is None:
            few = len(self.slots) <= _FEW
            self._highest_slot = max(self.slots.tolist()) if few else int(self.slots.max())
        return self._highest_slot

    def below(self, bounds: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which cells have a slot below their segment's bound (by segment number); None: not one has,
        as mostly."""
        if all(slot >= bounds[segment] for segment, slot in self.lowest_slots().items()):
            return None
        return self.slots < np.array(bounds, np.int64)[self.segments]

    def rows(self) -> list[tuple[int, int, int, int]]:
        """As (segment, slot, checksum, count) tuples of Python ints; for tests and messages."""
        return list(
            zip(
                self.segments.tolist(),
                self.slots.tolist(),
                self.checksums.tolist(),
                self.counts.tolist(),
                strict=True,
            )
        )

    @staticmethod
    def concatenate(parts: Iterable[Cells]) -> Cells:
        filled = [part for part in parts if len(part)]
        if not filled:
            return _NO_CELLS
        if len(filled) == 1:
            return filled[0]
        return Cells(
            np.concatenate([p.segments for p in filled]),
            np.concatenate([p.slots for p in filled]),
            np.concatenate([p.checksums for p in filled]),
            np.concatenate([p.counts for p in filled]),
        )


_NO_CELLS = Cells(
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
)


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


@dataclass(slots=True, eq=False)
class TickContent:
    """What one tick carries, apart from who commits it and under which number (rule 1)."""

    created: Cells = field(default_factory=Cells.empty)
    consumed: Cells = field(default_factory=Cells.empty)
    heartbeats: tuple[Heartbeat, ...] = ()
    joins: tuple[FrontJoin, ...] = ()
    leaves: tuple[str, ...] = ()
    batch: Batch | None = None
    units_created: tuple[Unit, ...] = ()
    units_consumed: tuple[Unit, ...] = ()


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
class Edge:
    """An item that enters `target` because of one at slot t in `source` has a slot >= t + delay."""

    source: str
    target: str
    delay: int = 0


class SilentFront(Enum):
    """What becomes of min time when a front says nothing for long."""

    HOLD = "hold"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class FrontPolicy:
    """What becomes of min time when one front says nothing for long, instead of the pipeline's rule."""

    front: str
    silent_front: SilentFront
    evict_after_ms: int = 0


class TimeKind(Enum):
    """What slots count; nothing is decided by it, but shown and waited for accordingly."""

    ARRIVAL = "arrival"
    """The wall clock at which an item came in."""
    EVENT = "event"
    """The time that an item carries, in a source that gives it in order but for `lateness_slots`."""
    NUMBER = "number"
    """Any number that grows: a table's version, a bucket of offsets, a batch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What of a pipeline may be changed while it runs; meanings as in `PipelineSpec`."""

    horizon_slots: int
    max_open_cells: int
    max_open_units: int
    max_nodes: int
    max_staged: int


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline as registered. Slots are counted in units of `slack_ns` nanoseconds.

    It holds at `start_slot` until every front named in `fronts` has joined (or, if none is named,
    `front_count` of them). `open`: hold, instead of completing, when the last front has left.
    `horizon_slots`: how far above the pipeline's min time an item may be created. `front_policies`: for
    fronts of which `silent_front` is not to hold. `lateness_slots`: how far behind the newest item of its
    front an item may carry its time, with `time` EVENT or NUMBER, as the fronts vouch.
    """

    name: str
    segments: tuple[str, ...]
    edges: tuple[Edge, ...] = ()
    fronts: tuple[str, ...] = ()
    front_count: int = 0
    open: bool = False
    start_slot: int = 0
    slack_ns: int = DEFAULT_SLACK_NS
    horizon_slots: int = 60_480_000
    silent_front: SilentFront = SilentFront.HOLD
    evict_after_ms: int = 0
    max_open_cells: int = 4_000_000
    max_open_units: int = 1_000_000
    max_nodes: int = 10_000
    max_staged: int = 100_000
    front_policies: tuple[FrontPolicy, ...] = ()
    time: TimeKind = TimeKind.ARRIVAL
    lateness_slots: int = 0

    def policy(self, front: str) -> FrontPolicy:
        """What becomes of min time when a front says nothing for long."""
        for policy in self.front_policies:
            if policy.front == front:
                return policy
        return FrontPolicy(front, self.silent_front, self.evict_after_ms)

    @property
    def limits(self) -> Limits:
        """What of it may be changed while it runs."""
        return Limits(**{each.name: getattr(self, each.name) for each in fields(Limits)})

    def with_limits(self, limits: Limits) -> PipelineSpec:
        """The same pipeline under other limits."""
        return replace(self, **{each.name: getattr(limits, each.name) for each in fields(Limits)})

    @property
    def evicts(self) -> bool:
        """Whether any front may be evicted."""
        policies = (self.silent_front, *(policy.silent_front for policy in self.front_policies))
        return SilentFront.EVICT in policies

    @property
    def keep_alive_ms(self) -> int:
        """How often a node has to say that it lives, though it has nothing to commit; 0: it need not."""
        rule = FrontPolicy("", self.silent_front, self.evict_after_ms)
        patience = [
            policy.evict_after_ms
            for policy in (rule, *self.front_policies)
            if policy.silent_front is SilentFront.EVICT
        ]
        return max(1, min(patience) // KEEP_ALIVES_PER_PATIENCE) if patience else 0


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


class RefusalCode(Enum):
    """Why something is refused; each maps to one gRPC status (`tracker.service.rpc.errors`)."""

    UNKNOWN_PIPELINE = "unknown_pipeline"
    UNKNOWN_SEGMENT = "unknown_segment"
    UNKNOWN_FRONT = "unknown_front"
    UNKNOWN_NODE = "unknown_node"
    INVALID = "invalid"
    CONFLICT = "conflict"
    BELOW_MIN_TIME = "below_min_time"
    BEYOND_HORIZON = "beyond_horizon"
    OUT_OF_ORDER = "out_of_order"
    FENCED = "fenced"
    ROLLED_BACK = "rolled_back"
    FULL = "full"
    NOT_HOME = "not_home"
    COMPLETE = "complete"
    NOT_READY = "not_ready"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: the code for programs, the message for people (names the value, the limit and what
    to do). `home` is the shard to ask instead, for NOT_HOME, else -1; `expected` the number of the
    tick that is due, for OUT_OF_ORDER, else 0."""

    code: RefusalCode
    message: str
    home: int = -1
    expected: int = 0


class Refused(Exception):
    """Raised inside a check; the state machine turns it into an effect and changes nothing."""

    def __init__(
        self, code: RefusalCode, message: str, *, home: int = -1, expected: int = 0
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message, home, expected)
