"""What tests see, and change, inside of a process of the core: the only place that knows its private fields.

A test goes by events, effects and public properties where it can. Invariants, bounds and states that no
event can bring about (a damaged one, an old one) need more: they come here for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Sized

from tracker.core.admission.silence import _evict_after_ms
from tracker.core.config import MS
from tracker.core.cut.combiner import Combiner
from tracker.core.cut.graph import SegmentGraph
from tracker.core.cut.vectors import Vectors
from tracker.core.insight.queries import Queries
from tracker.core.log import (
    HomeEntry,
    KeyClosed,
    KeyOpened,
    PipelineChanged,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    PipelinesOver,
    Placed,
    Record,
    Staged,
    WrittenOff,
)
from tracker.core.log.steps import MembershipStep
from tracker.core.membership.membership import Membership
from tracker.core.model import FrontName, NodeKey
from tracker.core.model.allowance import Allowance
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.process import Process

evict_after_ms = _evict_after_ms


def _components(process: Process) -> frozenset[type]:
    """The classes of what a process is put together from: what it holds, and what holds one of these."""
    names = [*vars(process), *Queries.__slots__]
    held = [getattr(process, name) for name in names if name not in ("config", "_effects")]
    beside = [getattr(part, name) for part in held for name in getattr(part, "__slots__", ())]
    rooms = ("tracker.core.admission.", "tracker.core.rescaling.")
    return frozenset(
        map(type, [*held, *(part for part in beside if type(part).__module__.startswith(rooms))])
    )


COMPONENTS = _components(Process(0, RoutingTable.uniform(1), 1))
"""The classes of components. They know one another."""


class JustRecovered(Process):
    """What a process is when it has come back, before it does anything of itself."""

    def _resume(self, now_ns: int) -> None:
        pass


# --- pipelines ------------------------------------------------------------------------------------


def pipelines(process: Process) -> Pipelines:
    return process._pipelines


def pipeline(process: Process, name: str = "p") -> Pipeline:
    return process._pipelines[name]


def known_fronts(process: Process, name: str) -> set[FrontName]:
    """The fronts that a process holds min time for, and those whose places it knows to be vacant. It holds
    nothing for one that it has pinned at the end of time."""
    shard = pipeline(process, name).shard
    held = {front for front, state in shard.fronts.items() if state.heartbeat < FOREVER}
    return held | {(place.node_id, place.front) for place in shard.vacancies.places}


def has_news(process: Process) -> bool:
    """Whether a pipeline has something to report."""
    return process._pipelines.has_news


def evicts(process: Process) -> bool:
    """Whether a pipeline evicts silent fronts."""
    return bool(process._pipelines.evicting)


def own_runs(combiner: Combiner) -> Sized:
    """The runs of this shard that are kept, whether or not they are inside M by now."""
    return combiner._own_runs


# --- vectors and home logs ------------------------------------------------------------------------


def applied(process: Process) -> dict[int, int]:
    """The vector of its shard."""
    return process._replication.applied()


def vectors(process: Process) -> Vectors:
    """The vectors that it has heard of."""
    return process._cut.vectors


def ways(graph: SegmentGraph) -> tuple[tuple[tuple[int, int], ...], ...]:
    """By segment the edges that lead out of it: (next one, delay)."""
    return tuple(map(tuple, graph._ways))


def cut_of(combiner: Combiner) -> dict[int, int]:
    """M, as a pipeline's combiner sees it."""
    return combiner._vectors.cut


def let_go_by(process: Process) -> tuple[tuple[int, int], ...]:
    """The stable cut that its whole reports name."""
    return process._cut.let_go_by()


def may_announce(process: Process) -> bool:
    return process._reporter._may_announce()


def expected_membership(process: Process) -> Membership:
    """The shards as they will be when all that it has accepted has taken effect."""
    return process._shards.expected()


def home_last(process: Process) -> int:
    """The last durable entry of its home log."""
    return process._journal.home_last


def coming(process: Process) -> Sized:
    """The pipelines of which it keeps parts that come from another group."""
    return process._moves.coming


def next_incarnation(process: Process) -> int:
    return process._nodes.next_incarnation


def last_report(process: Process) -> int:
    """The number of the last report that it has made."""
    return process._reporter._report_number


def forget_reports(process: Process) -> None:
    """Its next report is the first."""
    process._reporter._report_number = 0


# --- what waits -----------------------------------------------------------------------------------


def sessions(process: Process) -> dict[Hashable, tuple[str, NodeKey]]:
    """The attached ones, by their names: pipeline and key."""
    return process._sessions._sessions


def outbox(process: Process) -> Sized:
    """Own entries that some shard has not confirmed."""
    return process._replication.outbox


def closed_keys(process: Process) -> Sized:
    """Closed keys that are not dropped."""
    return process._nodes.closed_keys


def keys_being_dropped(process: Process) -> int:
    """How many of them have a dropping entry that is not durable."""
    return process._nodes._dropping


def held_frames(process: Process) -> Sized:
    """Frames that wait for a record to be durable."""
    return process._reporter._held_frames


def pending(process: Process) -> Collection[tuple[int, Record, Hashable | None]]:
    """Records that are not durable: position, record, who asked for it."""
    return process._journal.pending


_ASKED_FOR = (
    KeyOpened, KeyClosed, PipelineChanged, PipelineDeleted, PipelineRegistered, PipelineRestarted,
    PipelinesOver, Placed, WrittenOff,
)  # fmt: skip


def unasked_records(process: Process) -> list[Record]:
    """Records that are not durable, but for steps and for what a request has asked for: there are as many of those
    as requests, and whoever asks waits for the answer."""
    return [
        record
        for _, record, _ in pending(process)
        if not (_is_asked_for(record) or _is_step(record))
    ]


def pending_steps(process: Process) -> list[Record]:
    """Own steps by which shards come and go that are not durable."""
    return [record for _, record, _ in pending(process) if _is_step(record)]


def _is_step(record: Record) -> bool:
    return isinstance(record, HomeEntry) and isinstance(record.entry, MembershipStep)


def _is_asked_for(record: Record) -> bool:
    entry = record.entry if isinstance(record, HomeEntry) else None
    if isinstance(entry, KeyClosed) and entry.evicted and not entry.retired:
        return False
    return isinstance(entry, _ASKED_FOR) or isinstance(record, Staged)


def apply_up_to(process: Process, position: int, now_ns: int) -> None:
    """It hears that its records up to here are durable, and does nothing else."""
    for record, _ in process._journal.commit(position):
        process._applier.apply(record, now_ns)


def append(process: Process, record: Record) -> None:
    """It accepts a record, unchecked."""
    process._journal.append(record)


def take_step(process: Process, step: MembershipStep) -> None:
    """It appends a step of a change of the shards, unchecked."""
    process._rescaling.step(step)


def count_from_committed(process: Process) -> None:
    """Brings positions back to count from the last durable record; no time passes, so a later report
    is due again, and what was asked for stays asked for."""
    base, journal, reporter = process.committed, process._journal, process._reporter
    journal.committed, journal.position = 0, process.position - base
    reporter._pins_position = max(0, reporter._pins_position - base)
    journal.pending = deque((at - base, record, asked) for at, record, asked in journal.pending)
    reporter._held_frames = deque((at - base, to, body) for at, to, body in reporter._held_frames)
    process._timers._wake_ns, reporter.last_report_ns = None, 0
    reporter._refreshes = Allowance(
        process.config.report_burst, _spent_until_ns=process.config.report_interval_ms * MS
    )
    reporter._reports = Allowance(process.config.report_burst)
    for link in process.links.values():
        link.wanted_ns = None if link.wanted_ns is None else 0
