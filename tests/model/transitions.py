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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from tests import inside
from tests.model.digests import digest
from tests.model.script import (
    FIRST_TICK,
    JOIN,
    PIPELINE,
    System,
)
from tracker.core import log as m
from tracker.core.admission.silence import Silence
from tracker.core.cut.graph import SegmentGraph
from tracker.core.log.steps import (
    CellsMoved,
    MembershipStep,
    RoutingActivated,
    RoutingChanged,
    ShardJoined,
)
from tracker.core.membership.membership import Membership
from tracker.core.model import NodeKey, PipelineSpec, RefusalCode, Refused, TickContent
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig
from tracker.core.process.snapshot import ProcessSnapshot

_NODES_GO_ON = (RefusalCode.NOT_HOME, RefusalCode.NOT_READY)
"""Why a stream is over that a node begins again: at another home, or later."""
_ALL = 2**62
"""Of positions."""
NOW_NS = 0
MS = REPORT_NS = 1_000_000
SILENT_NS = 10**12
"""When fronts that say nothing have been silent for too long; then it is as before."""
BACK = 2
"""The front, when it has joined again."""
FIRST = (*FIRST_TICK, 1)
NEVER_MS = 10**9
CONFIG = ProcessConfig(
    report_interval_ms=1,
    link_report_interval_ms=0,
    report_burst=1,
    retransmit_ms=NEVER_MS,
    announced_report_ms=NEVER_MS,
    rescale_margin_ms=0,
    reconnect_ms=0,
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
    reports: number of the last report that it has made; heard_reports: and taken, by shard; membership: the shards as it knows them; expected: as they will
    be when all that it has accepted is durable."""

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
    membership: Membership
    expected: Membership

    @classmethod
    def of(cls, process: Process, shards: range, *, is_woken: bool) -> Facts:
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
            tuple(applied.get(home, 0) for home in shards),
            tuple(vectors.get(home, 0) for home in shards),
            candidates,
            len(inside.pending(process)),
            inside.has_news(process) or is_woken,
            inside.last_report(process),
            {shard: link.report_number for shard, link in process.links.items()},
            process.membership,
            inside.expected_membership(process),
        )


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry of a home log, as far as the invariants ask for it: the tick of a node (node and tick, counted from 0); the table
    that is decided on; the version by which its home splits from here on; the cells (segment, slot, checksum) that its shard
    hands over; the shard that has joined; the node whose key is closed, or opened. Nothing of all that: another entry."""

    tick: tuple[int, int] | None = None
    table: RoutingTable | None = None
    activates: int | None = None
    cells: tuple[tuple[int, int, int], ...] = ()
    joined: int | None = None
    closed: int | None = None
    opened: int | None = None
    is_retired: bool = False
    """Whether it is the operator's word that a node which was evicted has left."""

    @classmethod
    def of(cls, entry: m.Entry, keys: Sequence[NodeKey]) -> Logged:
        match entry:
            case m.KeyTick():
                node = keys.index(entry.tick.key)
                return cls(tick=(node, entry.tick.number - FIRST[node]))
            case m.KeyClosed():
                return cls(closed=keys.index(entry.key))
            case m.KeyOpened():
                return cls(opened=keys.index(entry.key))
            case m.WrittenOff():
                return cls(is_retired=True)
            case RoutingChanged():
                return cls(table=entry.table)
            case RoutingActivated():
                return cls(activates=entry.version)
            case CellsMoved():
                return cls(cells=tuple((g, t, x) for g, t, x, _ in entry.cells.rows()))
            case ShardJoined():
                return cls(joined=entry.shard)
        return cls()


@dataclass(slots=True)
class Done:
    """What an event did: the process after it, by number, and what it wants to be done."""

    process: int
    frames: list[tuple[int, int]] = field(default_factory=list)
    confirmations: list[tuple[int, int]] = field(default_factory=list)
    durable: list[tuple[int, int]] = field(default_factory=list)
    attached: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)
    """Nodes whose streams are over, or do not begin, and the home that each is sent to; -1 where it is the same."""
    logged: tuple[Logged, ...] = ()
    """What has become durable of its home log."""
    changed: bool = False
    """Whether the operator was answered that the pipeline is changed."""
    has_left: bool = False
    """Whether the process may end, since its shard is none any more."""
    is_back: bool = False
    """Whether a node that has joined again was answered so."""
    granted: int | None = None
    """From which slot on its front may label."""


class SmallProcess(Process):
    """One whose steps by which shards come and go count from its last durable record, too. All that waits becomes durable at once
    where shards do, so of what was appended nothing is left that a step has to wait for."""

    def count_from_committed(self) -> None:
        inside.count_from_committed(self)
        self._rescaling.restored()
        self._shards.settle_steps(_ALL)
        for position, record, _ in inside.pending(self):
            if isinstance(record, m.HomeEntry):
                self._record(position, record.entry, self.shard, record.number)
            elif isinstance(record, m.ReceivedEntries):
                for number, entry in m.numbered(record.first, record.entries):
                    self._record(position, entry, record.shard, number)

    def begin_silence(self) -> None:
        """How long nodes are silent is measured from here on, and how long the store takes."""
        Silence.__init__(
            self._silence,
            self._journal,
            self._shards,
            self._pipelines,
            self._homes,
            self._nodes,
            self.config,
        )

    def forget_reports(self) -> None:
        """What it reports next, and takes next of others, has the number that `Transitions` gives all of its kind."""
        inside.forget_reports(self)
        for link in self.links.values():
            link.report_number = -1

    def _record(self, position: int, entry: m.Told, home: int, number: int) -> None:
        if isinstance(entry, MembershipStep):
            self._shards.record_step(position, entry, home, number)


class Transitions:
    """All that has been worked out. Processes, frames and snapshots are numbered each for itself."""

    def __init__(
        self,
        system: System,
        scripts: tuple[tuple[TickContent, ...], ...],
        *,
        counts_reports: bool = True,
        stores_wait: bool = True,
    ) -> None:
        """stores_wait: whether what is appended becomes durable later, or at once. counts_reports: whether reports have their numbers. Where a link loses nothing but by a crash they say nothing: the next
        one that arrives follows the one before; and one that says everything is passed over unless it is waited for."""
        self._stores_wait = stores_wait
        is_fenced = (RefusalCode.FENCED,) if len(system.keys) > BACK else ()
        self._nodes_go_on = (*_NODES_GO_ON, *is_fenced)
        self._routing, self._shards = system.routing, range(system.most_shards)
        self._scripts, self._keys, self._counts_reports = scripts, system.keys, counts_reports
        self.processes: Numbered[SmallProcess] = Numbered()
        self.frames: Numbered[m.Frame] = Numbered()
        self.snapshots: Numbered[ProcessSnapshot] = Numbered()
        self.facts: list[Facts] = []
        self._pickled: list[bytes] = []
        self._by_pickled: dict[bytes, int] = {}
        """By a digest of the bytes."""
        self._durable: dict[int, int] = {}
        self._done: dict[Hashable, Done] = {}

    def start(self, shard: int) -> int:
        """A process with an empty store."""
        return self._number(SmallProcess(shard, self._routing, 1, CONFIG))

    def durable(self, process: int) -> int:
        """The number of the snapshot that a process would come back from."""
        number = self._durable.get(process)
        if number is None:
            known: SmallProcess = pickle.loads(self._pickled[process])
            number = self._durable[process] = self.snapshots.number(known.snapshot())
        return number

    def recover(self, shard: int, epoch: int, snapshot: int) -> Done:
        """A process that comes back with what was durable."""

        def run() -> Done:
            process = SmallProcess(shard, self._routing, epoch, CONFIG)
            return self._take(process, process.recover(self.snapshots.things[snapshot], (), NOW_NS))

        return self._once(("recover", shard, epoch, snapshot), run)

    def bootstrap(self, process: int, shard: int) -> int | None:
        """The number of what a shard that joins would begin with, as this process knows it; None while it is refused that."""
        peer: SmallProcess = pickle.loads(self._pickled[process])
        try:
            return self.snapshots.number(peer.bootstrap_snapshot(shard))
        except Refused:
            return None

    def renumber(self, process: int, shard: int | None) -> int:
        """The process with the number of its last report, or of the last that it has taken of
        another shard, brought back to 0."""

        def run() -> Done:
            renumbered: SmallProcess = pickle.loads(self._pickled[process])
            if shard is None:
                inside.forget_reports(renumbered)
            else:
                renumbered.links[shard].report_number = 0
            return Done(self._number(renumbered, is_woken=self.facts[process].has_news))

        return self._once(("renumber", process, shard), run).process

    def tick(self, process: int, node: int, tick: int) -> Done:
        content = JOIN if tick < 0 else self._scripts[node][tick]
        return self._handle(process, m.SubmitTick(node, tick + FIRST[node], content))

    def submit(self, process: int, node: int, tick: int, content: TickContent) -> Done:
        """A tick whose content is no part of the script."""
        event = m.SubmitTick(node, tick + FIRST[node], content)
        return self._handle(process, event, beside=digest(content))

    def evict(self, process: int) -> Done | None:
        """Time passes in which the nodes at home here are silent, and a front is evicted; None where none is."""

        def run() -> Done:
            silent: SmallProcess = pickle.loads(self._pickled[process])
            every_ns = CONFIG.evict_check_ms * MS
            silent.begin_silence()
            wakes = range(SILENT_NS, SILENT_NS + 4 * every_ns, every_ns)
            return self._take(
                silent, [e for now_ns in wakes for e in silent.handle(m.Wake(), now_ns)]
            )

        done = self._once((process, "silent"), run)
        waits = inside.pending(self.processes.things[done.process])
        entries = _logged(self.processes.things[done.process], len(waits), self._keys)
        return done if any(each.closed is not None for each in done.logged + entries) else None

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

    def _handle(
        self, number: int, event: m.Event | int, frame: int | None = None, beside: Hashable = None
    ) -> Done:
        """event: or how many records become durable. beside: what else names it."""

        def run() -> Done:
            process: SmallProcess = pickle.loads(self._pickled[number])
            now_ns = REPORT_NS if isinstance(event, m.Wake) else NOW_NS
            if not isinstance(event, int):
                return self._take(process, process.handle(event, now_ns))
            logged = _logged(process, event, self._keys)
            done = self._take(
                process, process.handle(m.Committed(process.committed + event), now_ns)
            )
            done.logged = logged + done.logged
            return done

        if isinstance(event, m.SubmitTick):
            return self._once((number, event.session, event.number, beside), run)
        return self._once((number, repr(event) if frame is None else frame), run)

    def _once(self, what: Hashable, run: Callable[[], Done]) -> Done:
        done = self._done.get(what)
        if done is None:
            done = self._done[what] = run()
        return done

    def _take(self, process: SmallProcess, effects: list[m.Effect]) -> Done:
        done, is_woken = Done(0), False
        while not self._stores_wait and inside.pending(process):
            done.logged += _logged(process, len(inside.pending(process)), self._keys)
            effects = [*effects, *process.handle(m.Committed(process.position), NOW_NS)]
        for effect in effects:
            match effect:
                case m.Send(to, frame):
                    sent = (to, self.frames.number(self._sent(frame)))
                    is_confirmation = isinstance(frame.body, m.EntriesReceived)
                    (done.confirmations if is_confirmation else done.frames).append(sent)
                case m.TicksDurable(node, number):
                    assert isinstance(node, int)
                    done.durable.append((node, number - FIRST[node] + 1))
                case m.SessionAttached(node, number):
                    assert isinstance(node, int)
                    done.attached.append((node, max(0, number - FIRST[node] + 1)))
                case m.Answer("change"):
                    assert isinstance(effect.result, PipelineSpec), effect
                    done.changed = True
                case m.SessionRefused(node, refusal) if refusal.code in self._nodes_go_on:
                    assert isinstance(node, int)
                    done.refused.append((node, refusal.home))
                case m.TickRefused() | m.SessionRefused():
                    raise AssertionError(f"a process refused: {effect}")
                case m.WakeAt(at_ns):
                    is_woken = is_woken or at_ns <= REPORT_NS
                case m.LeftTracker():
                    done.has_left = True
                case m.Answer("again", m.Joined()):
                    done.is_back = True
                case m.FrontGranted(node, grant) if node == BACK and grant.granted:
                    done.granted = grant.slot
        if not self._counts_reports:
            process.forget_reports()
        done.process = self._number(process, is_woken=is_woken)
        return done

    def _sent(self, frame: m.Frame) -> m.Frame:
        if self._counts_reports or not isinstance(frame.body, m.ShardReport):
            return frame
        return replace(frame, body=replace(frame.body, number=-1 if frame.body.whole else 0))

    def _number(self, process: SmallProcess, *, is_woken: bool = False) -> int:
        """is_woken: whether it has asked to be woken when the next report is due."""
        process.count_from_committed()
        for pipeline in inside.pipelines(process).values():
            pipeline.combiner.allowed_min_times({})  # clears its heaps of what counts no more
        pickled = _pickled(process)
        name = blake2b(pickled, digest_size=16).digest()
        number = self._by_pickled.get(name)
        if number is not None:  # what is pickled alike is alike, though not the other way round
            return number
        number = self._by_pickled[name] = self.processes.number(process)
        if number == len(self.facts):
            self.facts.append(Facts.of(process, self._shards, is_woken=is_woken))
            self._pickled.append(pickled)
        return number


def _logged(process: Process, records: int, keys: Sequence[NodeKey]) -> tuple[Logged, ...]:
    """What becomes durable of the home log with so many of the records that wait."""
    waiting = [record for _, record, _ in inside.pending(process)][:records]
    return tuple(Logged.of(each.entry, keys) for each in waiting if isinstance(each, m.HomeEntry))


_TABLES: dict[RoutingTable, int] = {}
"""Those that there are, by number."""


def _the_table(number: int) -> RoutingTable:
    return [*_TABLES][number]


def _known_table(table: RoutingTable) -> tuple[Any, ...]:
    return _the_table, (_TABLES.setdefault(table, len(_TABLES)),)


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
    RoutingTable: _known_table,
    SegmentGraph: _known_graph,
}
"""What never changes is shared, not copied with each state; in the model alone."""


def _pickled(process: Process) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _SHARED
    pickler.dump(process)
    return file.getvalue()
