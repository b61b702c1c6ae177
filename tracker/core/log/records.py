"""Records: what a shard's store holds.

Those with a generation are nothing in a later one: it may have begun while they became durable.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log.entries import Entry, PipelineRegistered, pipeline_of
from tracker.core.log.losses import LossDeclared
from tracker.core.log.runs import Told, last_of
from tracker.core.log.steps import FeatureLevelRaised, MembershipStep
from tracker.core.model import FrontPin, StagedContribution
from tracker.core.model import durable as d
from tracker.core.model.levels import LOSSES


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """Entry `number` of this shard's own home log, whole (all shards' cells)."""

    number: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class ReceivedEntries:
    """Entries of another shard's home log, from number `first`, with this shard's parts, one by one or in
    runs."""

    shard: int
    first: int
    entries: tuple[Told, ...]

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return last_of(self.first, self.entries)


@dataclass(frozen=True, slots=True)
class Pinned:
    """Pins of one pipeline; never computed anew once written."""

    pipeline: str
    pins: tuple[FrontPin, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class FrontsGranted:
    """Every shard has pinned these fronts of nodes at home here: each may label from its largest pin on.
    Their nodes hear of it when this record is durable."""

    pipeline: str
    grants: tuple[FrontPin, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    """Min times, by segment number, that this process says: once this record is durable, or at once where
    recovery finds them again without it. at_ms: unix time at which they were decided, for the history; 0 if it
    is not known."""

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


@dataclass(frozen=True, slots=True, eq=False)
class PartKept:
    """Piece `number` of `pieces`, of this shard's part of a pipeline that moves here by this placement."""

    pipeline: str
    version: int
    number: int
    pieces: int
    part: d.Snapshot


Record = (
    HomeEntry | ReceivedEntries | Pinned | FrontsGranted | Announcement | Staged | Swept | PartKept
)


EVERY = ""
"""In place of a pipeline's name: any of them. No pipeline is named so."""


def changes_min_times_of(record: Record) -> str | None:
    """The pipeline of which a record, when it takes effect, may change what can be announced: what is open, who
    holds time, the generation, or the shards; EVERY where it may be any, None where it is none. What was announced, granted or
    staged changes nothing of that."""
    match record:
        case Pinned() | Swept():
            return record.pipeline
        case HomeEntry():
            entry = record.entry
            if isinstance(entry, PipelineRegistered):
                return entry.spec.name
            return EVERY if isinstance(entry, MembershipStep) else pipeline_of(entry)
        case ReceivedEntries():
            return EVERY
        case _:
            return None


def level_raised_by(record: Record) -> int:
    """The feature level from which on the log that a record is in needs to be read; 0 where it is no other one by it."""
    match record:
        case HomeEntry():
            entries: tuple[Told, ...] = (record.entry,)
        case ReceivedEntries():
            entries = record.entries
        case _:
            return 0
    return max((_raised_to(entry) for entry in entries), default=0)


def _raised_to(entry: Told) -> int:
    match entry:
        case FeatureLevelRaised():
            return entry.level
        case LossDeclared():
            return LOSSES
        case _:
            return 0
