"""Which steps of the system a run has taken, as far as its events and effects say: candidates, that `replay.py` holds to the proof.

What an event did is told by what became durable by it, by what it appended and sent, in that order, and by the last report that each
link has taken. Nothing of the core is replaced: a step that this does not see shows as a state that no step explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.proof.bridge.ledger import Front, Tick
from tests.proof.bridge.look import Look, Vector
from tests.proof.bridge.world import World
from tracker.core.log import (
    Announced,
    Announcement,
    Append,
    Committed,
    Effect,
    Entry,
    Event,
    FrameArrived,
    FrontsGranted,
    HomeEntry,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    Pinned,
    PipelineRegistered,
    PipelineRestarted,
    ReceivedEntries,
    Record,
    Send,
    ShardReport,
    Swept,
    TouchedRun,
    WrittenOff,
)
from tracker.core.log.steps import ShardJoined, ShardJoining, ShardRemoved
from tracker.core.model import FrontPin, NodeKey
from tracker.core.model.ack_values import hold_value
from tracker.core.process.snapshot import ProcessSnapshot


@dataclass(frozen=True)
class Taken:
    """A step, with what takes part in it. said: what the code has said of it, by which its sets are found."""

    step: str
    things: dict[str, Any]
    said: Any = None
    generation: int = 0
    """Of the pipeline, of which it is."""


@dataclass(frozen=True)
class Reported:
    """A report as it was made. runs: what it tells of touched slots; settled: M behind it, if they are not what was sent; follows: the one before in this run of its sender;
    pins: of the fronts that it pins."""

    vector: Vector
    runs: tuple[TouchedRun, ...]
    settled: Vector
    counted: frozenset[int]
    fronts: frozenset[str]
    pins: dict[str, int]
    follows: str | None
    first: bool


@dataclass(frozen=True)
class Whole:
    """A whole report: all runs that it repeats, and its sender's M."""

    runs: tuple[TouchedRun, ...]
    cut: Vector


@dataclass(frozen=True)
class Moment:
    """An event at a shard: what it was, the steps that it has taken, and what the shard was behind it."""

    shard: int
    what: str
    steps: list[Taken]
    look: Look | None


@dataclass
class _Shard:
    """What is known of a shard's process beside what can be seen of it. names: of its reports in this run of it."""

    records: dict[int, Record] = field(default_factory=dict)
    committed: int = 0
    generation: int = 0
    latest: str | None = None
    goes_by: dict[int, str] = field(default_factory=dict)
    before: Look | None = None
    """What its process was before the event, which is what it was behind the last one..."""
    look: Look | None = None
    """... as it has not died since."""


class Recorder:
    """Watches a run."""

    def __init__(self) -> None:
        self.world: World
        self.moments: list[Moment] = []
        self.logs: dict[tuple[int, int], Tick] = {}
        """By home and number what stands in its log."""
        self.numbers: dict[str, tuple[int, int]] = {}
        """By tick its home, and its number there."""
        self.reports: dict[str, int] = {}
        """By report its sender."""
        self._generation_of: dict[str, int] = {}
        self.wholes: dict[str, str] = {}
        """By whole report which report it tells."""
        self.granters: dict[str, int] = {}
        self.begins_at: dict[int, int] = {}
        """By generation the slot that an operator has given it."""
        self._shards: dict[int, _Shard] = {}
        self._frames: dict[int, tuple[ShardReport, str | None]] = {}
        """By identity of a report that was sent what it is called; None for a whole one that tells nothing."""
        self.newcomers: list[int] = []
        self._steps_of: dict[str, ShardJoined | ShardRemoved] = {}
        """By entry what it says of a shard that was expected."""
        self._keys: dict[NodeKey, int] = {}
        """By key its generation."""
        self._steps: list[Taken] = []
        self._told_in: int | None = None
        """The generation of what the event has made durable of announcements."""

    # --- what happens ---------------------------------------------------------------------------

    def published(self, tick: Tick) -> None:
        self._take("publish", t=tick.name)
        self._close(-1, f"{tick.node} publishes {tick.name}", None)

    def before(self, shard: int, event: Event) -> None:
        known = self._shard(shard)
        known.before = known.look or Look.at(self.world.processes[shard])

    def after(self, shard: int, event: Event, effects: Sequence[Effect]) -> None:
        known = self._shard(shard)
        assert known.before is not None
        before, look = known.before, Look.at(self.world.processes[shard])
        known.look = look
        if isinstance(event, Committed):
            self._durable(shard, look.committed)
        self._hear(shard, before, look, event)
        self._carry_out(shard, before, look, effects)
        what = type(event).__name__
        if isinstance(event, FrameArrived):
            what += f" of shard {event.frame.shard}: {type(event.frame.body).__name__}"
        self._close(shard, what, look)

    def snapshot(self, shard: int) -> None:
        look = Look.at(self.world.processes[shard])
        # A snapshot has the pins as they are, be their records durable by themselves or not.
        if look.part is not None:
            for id_, (pin, _) in look.part.pins.items():
                if pin is not None:
                    self._take("keep_pin", None, look.part.generation, s=shard, f=self.front(*id_).name)  # fmt: skip
        self._take("snapshot", look.let_go_by, p=shard)
        self._close(shard, "snapshot", look)

    def crashes(self, shard: int, durable: int) -> None:
        self._durable(shard, durable)
        self._take("crash", p=shard)
        known = self._shard(shard)
        for record in known.records.values():
            if isinstance(record, HomeEntry):
                del self.logs[shard, record.number]
        known.records = {}
        known.latest, known.goes_by, known.look = None, {}, None
        self._close(shard, "crash", None)

    def bootstraps(self, shard: int, peer: int, snapshot: ProcessSnapshot) -> None:
        self._take("bootstrap", dict(snapshot.cut), s=shard, q=peer)
        self.newcomers.append(shard)
        self._shard(shard).generation = self._shard(peer).generation
        self._close(shard, f"it begins with what shard {peer} knows", None)

    def recovered(self, shard: int, effects: Sequence[Effect]) -> None:
        look = Look.at(self.world.processes[shard])
        self._carry_out(shard, None, look, effects)
        self._close(shard, "recovery", look)

    def _shard(self, shard: int) -> _Shard:
        return self._shards.setdefault(shard, _Shard())

    def _take(self, step: str, said: Any = None, generation: int = 0, **things: Any) -> None:
        self._steps.append(Taken(step, things, said, generation))

    def _close(self, shard: int, what: str, look: Look | None) -> None:
        self.moments.append(Moment(shard, what, self._steps, look))
        self._steps, self._told_in = [], None

    # --- what becomes durable -------------------------------------------------------------------

    def _durable(self, shard: int, position: int) -> None:
        """Records of a shard are durable by now, and take effect one after the other."""
        known = self._shard(shard)
        for at in range(known.committed + 1, position + 1):
            self._applied(shard, known.records.pop(at))
        known.committed = max(known.committed, position)

    def _applied(self, shard: int, record: Record) -> None:
        match record:
            case HomeEntry():
                self._apply_entry(shard, "commit", self.logs[shard, record.number])
            case ReceivedEntries():
                for number in range(record.first, record.last + 1):
                    self._apply_entry(shard, "receive", self.logs[record.shard, number])
            case Announcement() | Pinned() | FrontsGranted() | Swept():
                # In a later generation it is nothing, but what waits for a pin to be durable waits no more.
                if record.generation == self._shard(shard).generation or isinstance(record, Pinned):
                    self._applied_beside(shard, record, record.generation)
            case _:
                raise AssertionError(f"{type(record).__name__} is not in the system")

    def _apply_entry(self, shard: int, step: str, tick: Tick) -> None:
        known = self._shard(shard)
        if tick.begins > known.generation:
            known.generation = tick.begins
            self._take("begin", generation=tick.begins, s=shard)
        self._take(step, s=shard, t=tick.name)
        match self._steps_of.get(tick.name):
            case ShardJoined(newcomer):
                self._take("join", s=newcomer)
                self._take("count_in", p=shard, s=newcomer)
            case ShardRemoved(newcomer):
                self._take("give_up", s=newcomer)

    def _applied_beside(
        self, shard: int, record: Announcement | Pinned | FrontsGranted | Swept, generation: int
    ) -> None:
        match record:
            case Announcement():
                self._told_in = generation
                self._take("record", record.min_times, generation, p=shard)
            case Pinned():
                for pin in record.pins:
                    self._take("keep_pin", None, generation, s=shard, f=self._front(pin).name)
            case FrontsGranted():
                for grant in record.grants:
                    front = self._front(grant)
                    self.granters.setdefault(front.name, shard)
                    self._take("grant_front", grant.slot, generation, p=shard, f=front.name)
            case Swept():
                self._take("sweep", (record.segment, record.below), generation, s=shard)

    def _front(self, pin: FrontPin) -> Front:
        return self.front(pin.node_id, pin.front, pin.incarnation, pin.number)

    def front(self, node_id: str, front: str, incarnation: int, number: int) -> Front:
        """The front that joined by this tick."""
        tick = self.world.nodes[node_id].tick_of(incarnation, number)
        (joined,) = (each for each in tick.joins if each.front == front)
        return joined

    # --- what is heard --------------------------------------------------------------------------

    def _hear(self, shard: int, before: Look, look: Look, event: Event) -> None:
        """Reports that were taken by this event: the one that has come, or those that had waited for something."""
        for other, (epoch, number, needs_whole) in look.heard.items():
            old_epoch, old_number, needed_whole = before.heard.get(other, (0, -1, True))
            body = event.frame.body if isinstance(event, FrameArrived) else None
            if isinstance(body, ShardReport) and body.whole and event.frame.shard == other:  # type: ignore[union-attr]
                is_news = epoch != old_epoch or number > old_number or needed_whole
                if number == body.number and not needs_whole and is_news:
                    self._heard_whole(shard, other, self._frames[id(body)][1])
            elif number > old_number and epoch == old_epoch:
                for each in range(old_number + 1, number + 1):
                    self._heard(shard, other, _named(other, epoch, each))

    def _heard(self, shard: int, other: int, report: str) -> None:
        known = self._shard(shard)
        self._take("hear", p=shard, r=report, r0=known.goes_by.get(other, report))
        known.goes_by[other] = report

    def _heard_whole(self, shard: int, other: int, whole: str | None) -> None:
        if whole is not None:
            known, report = self._shard(shard), self.wholes[whole]
            self._take(
                "hear_whole", p=shard, w=whole, r=report, r0=known.goes_by.get(other, report)
            )
            known.goes_by[other] = report

    # --- what is done ---------------------------------------------------------------------------

    def _carry_out(
        self, shard: int, before: Look | None, look: Look, effects: Sequence[Effect]
    ) -> None:
        """What an event has appended and sent, in that order. A report is made before what it brings about."""
        made = self._reports_made(shard, before, look, effects)
        for effect in effects:
            match effect:
                case Append(position, record):
                    self._shard(shard).records[position] = record
                    if isinstance(record, Pinned | Announcement | Swept | FrontsGranted):
                        next(made, None)
                    self._appended(shard, record, look)
                case Send(_, frame) if isinstance(frame.body, ShardReport):
                    self._send(shard, frame.body, frame.epoch, made)
                case Announced():
                    self._take(
                        "tell",
                        effect.min_times,
                        _generation(look) if self._told_in is None else self._told_in,
                        p=shard,
                    )
        for _ in made:
            pass

    def _reports_made(
        self, shard: int, before: Look | None, look: Look, effects: Sequence[Effect]
    ) -> Iterator[None]:
        """Takes a step for each report that an event has made, when it is asked for the next one."""
        epoch = self.world.epochs[shard]
        first = 1 if before is None else before.reports + 1
        numbers = [*range(first, look.reports + 1)]
        is_news = look.own_word != (({}, None) if before is None else before.own_word)
        if not look.heard and not numbers and is_news:
            numbers = [-len(self.reports)]  # with nobody to tell it to it has no number
        pins = {
            self._front(pin).name: pin.slot
            for effect in effects
            if isinstance(effect, Append) and isinstance(effect.record, Pinned)
            for pin in effect.record.pins
        }
        for number in numbers:
            name = _named(shard, epoch, number)
            self._report(shard, name, look, pins, self._body_of(look, number, effects))
            pins = {}
            yield

    @staticmethod
    def _body_of(look: Look, number: int, effects: Sequence[Effect]) -> ShardReport | None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.frame.body, ShardReport):
                body = effect.frame.body
                if not body.whole and body.number == number:
                    return body
        return None

    def _report(
        self, shard: int, name: str, look: Look, pins: dict[str, int], body: ShardReport | None
    ) -> None:
        known, part = self._shard(shard), look.part
        runs = () if part is None else part.runs
        settled = look.cut
        if body is not None:
            runs, settled = _runs_of(body), {}
        fronts = () if part is None else part.views[shard].fronts.values()
        reported = Reported(
            vector=look.vectors[shard], runs=runs, settled=settled,
            counted=look.counted,
            fronts=frozenset(self.front(f.node_id, f.front, f.incarnation, f.number).name for f in fronts),
            pins=pins, follows=known.latest, first=known.latest is None,
        )  # fmt: skip
        self.reports[name] = shard
        self._generation_of[name] = _generation(look)
        self._take("report", reported, _generation(look), s=shard, r=name)
        known.latest = known.goes_by[shard] = name

    def _appended(self, shard: int, record: Record, look: Look) -> None:
        match record:
            case HomeEntry():
                self._accept(shard, record.number, record.entry)
            case Announcement():
                self._take("announce", record.min_times, record.generation, p=shard)
                if look.part is not None and look.part.told.items() >= {*record.min_times}:
                    # One shard by itself tells ahead of the record what recovery is sure to find again, and the system has no word for
                    # that: it is as if it were durable.
                    self._take("record", record.min_times, record.generation, p=shard)

    def _accept(self, home: int, number: int, entry: Entry) -> None:
        if isinstance(entry, KeyTick):
            key = entry.tick.key
            tick = self.world.nodes[key.node_id].tick_of(key.incarnation, entry.tick.number)
            for item in tick.created:
                if item.hold is not None:
                    item.value = hold_value(
                        key.node_id, item.hold, key.incarnation, entry.tick.number
                    )
            late = {(segment, slot) for segment, slot, *_ in entry.late.rows()}
            self._take("accept", {i.name for i in tick.consumed if i.place in late}, t=tick.name)
        else:
            name = f"entry {len(self.world.ledger.ticks)} of home {home}: {type(entry).__name__}"
            evicted = entry if isinstance(entry, KeyClosed) and entry.evicted else None
            node = name if evicted is None else evicted.key.node_id
            tick = self.world.ledger.tick(name, node, *self._generations(entry))
            if evicted is not None:
                self._evict(home, tick)
            if isinstance(entry, ShardJoined | ShardRemoved):
                self._steps_of[name] = entry
            self._take("publish", t=tick.name)
            self._take("accept", set(), t=tick.name)
        tick.home = home
        self.logs[home, number] = tick
        self.numbers[tick.name] = home, number

    def _evict(self, home: int, tick: Tick) -> None:
        """By this entry all fronts of its node leave that have joined, and have not left by a tick that was taken."""
        taken = {each.name for (at, _), each in self.logs.items() if at == home}
        for front in self.world.ledger.fronts:
            is_of_it = front.node == tick.node and front.joins.generation == tick.generation
            if is_of_it and front.joins.name in taken and (front.leaves is None or front.leaves.name not in taken):  # fmt: skip
                if front.leaves is not None:
                    front.leaves.leaves.remove(front)
                front.leaves = tick
                tick.leaves.append(front)

    def _generations(self, entry: Entry) -> tuple[int, int]:
        """The generation that an entry is of, and the one that begins where it is applied."""
        match entry:
            case KeyOpened():
                self._keys[entry.key] = entry.generation
                return entry.generation, entry.generation
            case PipelineRestarted():
                self.begins_at[entry.restart.generation] = entry.restart.from_slot
                return entry.restart.generation, entry.restart.generation
            case KeyClosed() | KeyDropped():
                return self._keys[entry.key], 0
            case WrittenOff() if not len(entry.cells):
                return entry.generation, 0
            case PipelineRegistered() | ShardJoining() | ShardJoined() | ShardRemoved():
                return 0, 0
        raise AssertionError(f"{type(entry).__name__} is not in the system")

    def _send(self, shard: int, body: ShardReport, epoch: int, made: Iterator[None]) -> None:
        if id(body) not in self._frames:
            if body.whole:
                self._send_whole(shard, body, epoch)
            else:
                name = _named(shard, epoch, body.number)
                while name not in self.reports:
                    next(made)
                self._frames[id(body)] = body, name
                self._take("send", r=name)
        for report in body.pipelines:
            if report.announced:
                self._take("tell", report.announced, report.generation, p=shard)

    def _send_whole(self, shard: int, body: ShardReport, epoch: int) -> None:
        """It tells what was reported when it was made, which may be before it could go out. From a process that has reported nothing in its
        generation it tells nothing."""
        report, name = _named(shard, epoch, body.number), None
        generation = max(
            (p.generation for p in body.pipelines), default=self._shard(shard).generation
        )
        if self._generation_of.get(report) == generation:
            name = f"whole report {len(self.wholes) + 1}, of shard {shard}"
            self.wholes[name] = report
            whole = Whole(_runs_of(body), dict(body.cut))
            self._take("send_whole", whole, w=name, r=report)
        self._frames[id(body)] = body, name


def _generation(look: Look) -> int:
    return 0 if look.part is None else look.part.generation


def _runs_of(body: ShardReport) -> tuple[TouchedRun, ...]:
    return tuple(run for report in body.pipelines for run in report.runs)


def _named(shard: int, epoch: int, number: int) -> str:
    return f"report {number} of shard {shard}, run {epoch}"
