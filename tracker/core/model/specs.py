"""A pipeline as registered: segments, edges, fronts, limits.

Segments are named by people and numbered, by their index in the registered pipeline, everywhere inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import DEFAULT_SLACK_NS

KEEP_ALIVES_PER_PATIENCE = 5
"""A node says so often that it lives, in the time after which its fronts are evicted."""


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
    """What slots count; the tracker decides nothing by it, but shows and waits accordingly."""

    ARRIVAL = "arrival"
    """The wall clock at which an item came in."""
    EVENT = "event"
    """The time that an item carries, in a source that gives it in order but for `lateness_slots`."""
    NUMBER = "number"
    """Any number that grows: a table's version, a bucket of offsets, a batch."""


LIMITS = ("horizon_slots", "max_open_cells", "max_open_units", "max_nodes", "max_staged")
"""The fields of a pipeline that bound what there is of it."""


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A pipeline as registered. Slots are counted in units of `slack_ns` nanoseconds, which is the slack where
    `rounds`, the number of slots that each time has (`Rounds`), is 1: the slack is `slack_ns` * `rounds`.

    It holds at `start_slot` until every front named in `fronts` has joined (or, if none is named,
    `front_count` of them). `open`: hold, instead of completing, when the last front has left.
    `horizon_slots`: how far above the pipeline's min time an item may be created. `front_policies`: for
    fronts of which `silent_front` is not to hold. `removed`: segments that take nothing more since the pipeline was
    changed; they keep their numbers, and the edges that lead out of them. `lateness_slots`: how far behind the newest item of its
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
    rounds: int = 1
    removed: tuple[str, ...] = ()

    @property
    def times(self) -> Rounds:
        """How its slots are packed."""
        return Rounds(self.rounds)

    def policy(self, front: str) -> FrontPolicy:
        """What becomes of min time when a front says nothing for long."""
        for policy in self.front_policies:
            if policy.front == front:
                return policy
        return FrontPolicy(front, self.silent_front, self.evict_after_ms)

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
