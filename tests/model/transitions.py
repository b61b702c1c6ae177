"""What one event does to one production process, each worked out once.

The state of the whole system changes in many more ways than that of one process: processes, frames
and records are known by number, and what an event does to a process is looked up where it has been
seen before. That is what makes every interleaving affordable.

No clock runs in the model: all events come at one moment, except `report`, which comes when the next
report is due. Whatever interval there is, a report can so come between any two events.

Numbers that only count what has been are brought back to their beginning, since they would tell states
apart that have the same future: positions in a log count from its last durable record, and a process
that crashes comes back from the snapshot that it could have written at that record.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests import inside
from tests.model.digests import digest
from tests.model.script import (
    FIRST_TICK,
    JOIN,
    PIPELINE,
    ROUTINGS,
    System,
)
from tracker.core import log as m
from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import PipelineSpec, TickContent
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig
from tracker.core.process.snapshot import ProcessSnapshot

NOW_NS = 0
REPORT_NS = 1_000_000
NEVER_MS = 10**9
CONFIG = ProcessConfig(
    report_interval_ms=1,
    link_report_interval_ms=0,
    report_burst=1,
    retransmit_ms=NEVER_MS,
    announced_report_ms=NEVER_MS,
)

Thing = TypeVar("Thing")


class Numbered(Generic[Thing]):
    """Numbers equal things alike, by digest."""

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self._by_digest: dict[bytes, int] = {}

    def number(self, thing: Thing) -> int:
        name = digest(thing)
        number = self._by_digest.get(name)
        if number is None:
            number = self._by_digest[name] = len(self.things)
            self.things.append(thing)
        return number


@dataclass(frozen=True, slots=True)
class Facts:
    """What the invariants ask of a process. said: min times by segment, None where the pipeline is
        not registered; node_times: by node id; cells: checksums by (segment, slot); applied and cut: by
        home; candidates: what it could announce; pending: records that are not durable; has_news: whether it has something to report;
    reports: number of the last report that it has made; heard_reports: and taken, by shard; durable: the
    number of the snapshot that it would come back from."""

    said: tuple[int, ...] | None
    node_times: dict[str, int]
    cells: dict[tuple[int, int], int]
    applied: tuple[int, ...]
    cut: tuple[int, ...]
    candidates: list[int | None]
    pending: int
    has_news: bool
    reports: int
    heard_reports: dict[int, int]
    durable: int

    @classmethod
    def of(cls, process: Process, durable: int, shards: range) -> Facts:
        process.validate()
        applied, vectors = inside.applied(process), inside.vectors(process).cut
        pipeline = inside.pipelines(process).get(PIPELINE.name)
        said, node_times, cells, candidates = None, {}, {}, []
        if pipeline is not None:
            said = process.min_times(PIPELINE.name)
            node_times = {key.node_id: s.number for key, s in pipeline.shard.keys.items()}
            cells = {(g, t): x for g, t, x, _ in pipeline.shard.cells.open_cells().rows()}
            candidates = (
                pipeline.combiner.allowed_min_times(pipeline.vacant())
                if inside.may_announce(process)
                else []
            )
        return cls(
            said,
            node_times,
            cells,
            tuple(applied[home] for home in shards),
            tuple(vectors[home] for home in shards),
            candidates,
            len(inside.pending(process)),
            inside.has_news(process),
            inside.last_report(process),
            {shard: link.report_number for shard, link in process.links.items()},
            durable,
        )


@dataclass(slots=True)
class Done:
    """What an event did: the process after it, by number, and what it wants to be done."""

    process: int
    frames: list[tuple[int, int]] = field(default_factory=list)
    confirmations: list[tuple[int, int]] = field(default_factory=list)
    durable: list[tuple[int, int]] = field(default_factory=list)
    attached: list[tuple[int, int]] = field(default_factory=list)
    changed: bool = False
    """Whether the operator was answered that the pipeline is changed."""


class Transitions:
    """All that has been worked out. Processes, frames and snapshots are numbered each for itself."""

    def __init__(self, system: System, scripts: tuple[tuple[TickContent, ...], ...]) -> None:
        self._routing, self._shards = system.routing, range(system.shards)
        self._scripts = scripts
        self.processes: Numbered[Process] = Numbered()
        self.frames: Numbered[m.Frame] = Numbered()
        self.snapshots: Numbered[ProcessSnapshot] = Numbered()
        self.facts: list[Facts] = []
        self._pickled: list[bytes] = []
        self._done: dict[Hashable, Done] = {}

    def start(self, shard: int) -> int:
        """A process with an empty store."""
        return self._number(Process(shard, self._routing, 1, CONFIG))

    def recover(self, shard: int, epoch: int, snapshot: int) -> Done:
        """A process that comes back with what was durable."""

        def run() -> Done:
            process = Process(shard, self._routing, epoch, CONFIG)
            return self._take(process, process.recover(self.snapshots.things[snapshot], (), NOW_NS))

        return self._once(("recover", shard, epoch, snapshot), run)

    def renumber(self, process: int, shard: int | None) -> int:
        """The process with the number of its last report, or of the last that it has taken of
        another shard, brought back to 0."""

        def run() -> Done:
            renumbered: Process = pickle.loads(self._pickled[process])
            if shard is None:
                inside.forget_reports(renumbered)
            else:
                renumbered.links[shard].report_number = 0
            return Done(self._number(renumbered))

        return self._once(("renumber", process, shard), run).process

    def tick(self, process: int, node: int, tick: int) -> Done:
        content = JOIN if tick < 0 else self._scripts[node][tick]
        return self._handle(process, m.SubmitTick(node, tick + FIRST_TICK[node], content))

    def commit(self, process: int, records: int) -> Done:
        """So many records become durable, of those that are appended."""
        return self._handle(process, records)

    def frame(self, process: int, frame: int) -> Done:
        return self._handle(process, m.FrameArrived(self.frames.things[frame]), frame)

    def report(self, process: int) -> Done:
        return self._handle(process, m.Wake())

    def other(self, process: int, event: m.Event) -> Done:
        """Connections, sessions, registration."""
        return self._handle(process, event)

    def _handle(self, number: int, event: m.Event | int, frame: int | None = None) -> Done:
        """event: or how many records become durable."""

        def run() -> Done:
            process: Process = pickle.loads(self._pickled[number])
            what = m.Committed(process.committed + event) if isinstance(event, int) else event
            now_ns = REPORT_NS if isinstance(event, m.Wake) else NOW_NS
            return self._take(process, process.handle(what, now_ns))

        if isinstance(event, m.SubmitTick):
            return self._once((number, event.session, event.number), run)
        return self._once((number, repr(event) if frame is None else frame), run)

    def _once(self, what: Hashable, run: Callable[[], Done]) -> Done:
        done = self._done.get(what)
        if done is None:
            done = self._done[what] = run()
        return done

    def _take(self, process: Process, effects: list[m.Effect]) -> Done:
        done = Done(0)
        for effect in effects:
            match effect:
                case m.Send(to, frame):
                    sent = (to, self.frames.number(frame))
                    is_confirmation = isinstance(frame.body, m.EntriesReceived)
                    (done.confirmations if is_confirmation else done.frames).append(sent)
                case m.TicksDurable(node, number):
                    assert isinstance(node, int)
                    done.durable.append((node, number - FIRST_TICK[node] + 1))
                case m.SessionAttached(node, number):
                    assert isinstance(node, int)
                    done.attached.append((node, max(0, number - FIRST_TICK[node] + 1)))
                case m.Answer("change"):
                    assert isinstance(effect.result, PipelineSpec), effect
                    done.changed = True
                case m.TickRefused() | m.SessionRefused():
                    raise AssertionError(f"a process refused: {effect}")
        done.process = self._number(process)
        return done

    def _number(self, process: Process) -> int:
        inside.count_from_committed(process)
        number = self.processes.number(process)
        if number == len(self.facts):
            durable = self.snapshots.number(process.snapshot())
            self.facts.append(Facts.of(process, durable, self._shards))
            self._pickled.append(_pickled(process))
        return number


def _the_routing(shards: int) -> RoutingTable:
    return ROUTINGS[shards]


_GRAPHS: dict[Hashable, SegmentGraph] = {}
"""By what names them, those that there are: of the pipeline, of what it becomes, and of both together."""


def _the_graph(name: Hashable) -> SegmentGraph:
    return _GRAPHS[name]


def _known_graph(graph: SegmentGraph) -> tuple[Any, ...]:
    name = inside.ways(graph)
    _GRAPHS.setdefault(name, graph)
    return _the_graph, (name,)


_SHARED: dict[type, Any] = {
    **copyreg.dispatch_table,
    RoutingTable: lambda table: (_the_routing, (len(table.owning),)),
    SegmentGraph: _known_graph,
}
"""What never changes is shared, not copied with each state; in the model alone."""


def _pickled(process: Process) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _SHARED
    pickler.dump(process)
    return file.getvalue()
