"""Frames between processes: home logs and reports (rules 3 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log.runs import Told, behind, last_of
from tracker.core.model import FrontId
from tracker.core.model.levels import OLDEST_LEVEL


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the sender's home log: numbers first, first+1, ..., one by one or in runs."""

    first: int
    entries: tuple[Told, ...]

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return last_of(self.first, self.entries)

    def from_number(self, number: int) -> tuple[Told, ...]:
        """What it tells from that entry on, which is not before the first."""
        return behind(self.entries, number - self.first)


@dataclass(frozen=True, slots=True)
class EntriesReceived:
    """The sender holds the receiver's home log durably up to `number`; `again`: send on from there. level: the feature
    level by which it records, durably; speaks: the highest one that it could."""

    number: int
    again: bool = False
    level: int = OLDEST_LEVEL
    speaks: int = OLDEST_LEVEL


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
    open_units: int = 0
    lowest_unit: int = 0
    """Of the names of units that are kept there, if there are any, the slot of the lowest."""


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """A shard's state of one pipeline at a moment, or its changes since the report before (rule 5).

    changes: how often the pipeline was changed, as far as the sender has applied that; who has applied fewer waits until it
    has as many. left: of fronts that have left, their joinings (0 and 0 from a process of an older version, which names
    none); announced: (segment, min time) in this generation.
    """

    pipeline: str
    lows: tuple[SegmentLow, ...] = ()
    fronts: tuple[FrontReport, ...] = ()
    left: tuple[FrontId, ...] = ()
    runs: tuple[TouchedRun, ...] = ()
    announced: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    changes: int = 0

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments that it names."""
        return [
            *(low.segment for low in self.lows),
            *(front.segment for front in self.fronts),
            *(segment for run in self.runs for segment, _ in run.touched),
            *(segment for segment, _ in self.announced),
        ]


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Report `number` of a shard; `whole` ones start anew, others follow the number before.

    applied: (home, entries of its log that the shard has applied), the shard's vector: of every node
    a prefix of its ticks. cut, in whole reports: the sender's stable cut, by which it has let go of runs;
    the receiver's own must have come as far before it goes by this. loss: the home, and the number of its entry, that
    declares shards lost, while the sender has not heard how all go on.
    """

    number: int
    whole: bool
    applied: tuple[tuple[int, int], ...]
    pipelines: tuple[PipelineReport, ...]
    cut: tuple[tuple[int, int], ...] = ()
    loss: tuple[int, int] | None = None

    @property
    def homes(self) -> set[int]:
        """The shards whose home logs it names."""
        homes = {home for home, _ in self.applied + self.cut}
        homes.update(run.home for pipeline in self.pipelines for run in pipeline.runs)
        return homes


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """The sender has missed a report, or does not know of which release the other process is."""


FrameBody = Entries | EntriesReceived | ShardReport | ReportWanted


@dataclass(frozen=True, slots=True)
class Frame:
    """What one shard says to another. `epoch` grows with each owner of the sender's store; a frame
    of an older epoch is ignored. Frames may be lost, repeated and reordered."""

    shard: int
    epoch: int
    body: FrameBody
