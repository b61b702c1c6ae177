"""What tests see, and change, inside of a process of the core: the only place that knows its private fields.

A test goes by events, effects and public properties where it can. Invariants, bounds and states that no
event can bring about (a damaged one, an old one) need more: they come here for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Sized

from tracker.core.cut.combiner import Combiner
from tracker.core.cut.vectors import Vectors
from tracker.core.log import Record
from tracker.core.log.steps import RoutingEntry
from tracker.core.model import NodeKey
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import Process
from tracker.core.process.timers import _evict_after_ms

evict_after_ms = _evict_after_ms


class JustRecovered(Process):
    """What a process is when it has come back, before it does anything of itself."""

    def _refresh_if_due(self, now_ns: int) -> None:
        pass

    def _after_progress(self, now_ns: int) -> None:
        pass


# --- pipelines ------------------------------------------------------------------------------------


def pipelines(process: Process) -> dict[str, Pipeline]:
    return process._pipelines


def pipeline(process: Process, name: str = "p") -> Pipeline:
    return process._pipelines[name]


def note_news(process: Process, name: str) -> None:
    """A pipeline is looked at before the next report."""
    process._dirty[name] = None


def has_news(process: Process) -> bool:
    """Whether a pipeline has something to report."""
    return bool(process._dirty)


def evicts(process: Process) -> bool:
    """Whether a pipeline evicts silent fronts."""
    return bool(process._evicting)


def own_runs(combiner: Combiner) -> Sized:
    """The runs of this shard that are kept, whether or not they are inside M by now."""
    return combiner._own_runs


# --- vectors and home logs ------------------------------------------------------------------------


def applied(process: Process) -> dict[int, int]:
    """The vector of its shard."""
    return process._applied()


def vectors(process: Process) -> Vectors:
    """The vectors that it has heard of."""
    return process._vectors


def cut_of(combiner: Combiner) -> dict[int, int]:
    """M, as a pipeline's combiner sees it."""
    return combiner._vectors.cut


def may_announce(process: Process) -> bool:
    return process._may_announce()


def home_last(process: Process) -> int:
    """The last durable entry of its home log."""
    return process._home_last


def next_incarnation(process: Process) -> int:
    return process._next_incarnation


def last_report(process: Process) -> int:
    """The number of the last report that it has made."""
    return process._report_number


def forget_reports(process: Process) -> None:
    """Its next report is the first."""
    process._report_number = 0


# --- what waits -----------------------------------------------------------------------------------


def sessions(process: Process) -> dict[Hashable, tuple[str, NodeKey]]:
    """The attached ones, by their names: pipeline and key."""
    return process._sessions


def outbox(process: Process) -> Sized:
    """Own entries that some shard has not confirmed."""
    return process._outbox


def closed_keys(process: Process) -> Sized:
    """Closed keys that are not dropped."""
    return process._closed_keys


def held_frames(process: Process) -> Sized:
    """Frames that wait for a record to be durable."""
    return process._held_frames


def pending(process: Process) -> Collection[tuple[int, Record, Hashable | None]]:
    """Records that are not durable: position, record, who asked for it."""
    return process._pending


def apply_up_to(process: Process, position: int, now_ns: int) -> None:
    """It hears that its records up to here are durable, and does nothing else."""
    while process._pending and process._pending[0][0] <= position:
        process.committed, record, _ = process._pending.popleft()
        process._apply(record, now_ns)


def append(process: Process, record: Record) -> None:
    """It accepts a record, unchecked."""
    process._append(record)


def take_step(process: Process, step: RoutingEntry) -> None:
    """It appends a step of a change of the shards, unchecked."""
    process._step(step)


def count_from_committed(process: Process) -> None:
    """Brings positions back to count from the last durable record; no time passes, so a later report
    is due again, and what was asked for stays asked for."""
    base = process.committed
    process.committed, process.position = 0, process.position - base
    process._pins_position = max(0, process._pins_position - base)
    process._pending = deque((at - base, record, asked) for at, record, asked in process._pending)
    process._held_frames = deque((at - base, to, body) for at, to, body in process._held_frames)
    process._wake_ns, process._last_report_ns, process._last_refresh_ns = None, 0, 0
    for link in process.links.values():
        link.wanted_ns = None if link.wanted_ns is None else 0
