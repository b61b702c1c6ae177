"""Whether a frame of another process can be taken at all: all of it, or none (promise 5).

Processes trust one another, and what another home has accepted is not judged again. But a frame whose
numbers point nowhere (a broken link, a process of another version, or one that was started with other
settings) must not be taken in part, and must not reach the log, where it would stop this process again
and again. It is refused before it changes anything.

Entries are judged by what will be known when all that was accepted before them has been applied, durable
or not: those of this process's own log, those received, and those before them in the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from tracker.core.home.home import MAX_ITEMS_PER_CELL
from tracker.core.home.registration import MAX_SEGMENTS, check_spec
from tracker.core.log import (
    Entries,
    EntriesReceived,
    Entry,
    Frame,
    GroupKnown,
    KeyClosed,
    KeyOpened,
    KeyTick,
    PipelineChanged,
    PipelineCompleted,
    PipelineDeleted,
    PipelineRegistered,
    PipelineRestarted,
    PipelinesOver,
    Placed,
    Restart,
    ShardReport,
    TickColumns,
    TickRun,
    Told,
    WrittenOff,
    count_of,
    level_of,
    losses,
    pipeline_of,
    steps,
)
from tracker.core.log.losses import PipelineKnown, base_of
from tracker.core.log.runs import MAX_ENTRIES_PER_RUN
from tracker.core.membership.shards import Shards
from tracker.core.membership.step_checks import MAX_NUMBER, check_step, table_of
from tracker.core.model import Cells, NodeKey, PipelineSpec, RefusalCode, Refused
from tracker.core.model.placements import MAX_GROUPS, NOWHERE, Group, Placement
from tracker.core.model.slots import HIGHEST_SLOT
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.links import Link
from tracker.core.replication.replication import Replication


@dataclass(slots=True, eq=False)
class FrameCheck:
    """Checks frames before they change anything. It keeps nothing."""

    _shards: Shards
    _pipelines: Pipelines
    _replication: Replication

    def check(self, frame: Frame) -> None:
        """Raises Refused(INVALID), naming the first thing that points nowhere, if a frame that the process
        would take cannot be taken whole."""
        link = self._replication.links.get(frame.shard)
        if link is None or frame.epoch < link.epoch or self._shards.is_lost(frame.shard):
            return  # it is passed over
        if self._shards.has_gone(frame.shard):
            return
        if isinstance(frame.body, ShardReport):
            self._check_report(frame.body)
        elif isinstance(frame.body, Entries):
            self._check_entries(frame.shard, frame.body, link.accepted + 1)
        elif isinstance(frame.body, EntriesReceived) and frame.body.number < (
            owed := link.owed_to(frame.epoch)
        ):
            raise Refused(
                RefusalCode.INVALID,
                f"shard {frame.shard} has entries up to {frame.body.number} of the log of shard {self._shards.own}, and had "
                f"confirmed those up to {owed}: acknowledged records are gone from its store; restore a copy that has them",
            )

    def _check_entries(self, sender: int, body: Entries, due: int) -> None:
        for told in body.entries:
            if isinstance(told, TickRun) and not told.is_possible:
                raise Refused(
                    RefusalCode.INVALID,
                    f"a frame has a run of {told.count} entries with ticks of {len(told.keys)} keys and "
                    f"{len(told.columns)} columns and {len(told.parts)} parts; a run is of 1 to "
                    f"{MAX_ENTRIES_PER_RUN} entries, of no more keys, its parts and the ticks in a column stand within "
                    "it, each behind the one before, and a column has the cells that its ticks name",
                )
        if body.first <= due:
            judge = EntryJudge(self._shards, self._pipelines, self._replication.links, sender, due)
            for told in body.from_number(due):
                if not judge.takes(told):
                    return  # from here on nothing is taken

    def _check_report(self, report: ShardReport) -> None:
        for home in report.homes:
            if home < 0:
                raise Refused(
                    RefusalCode.INVALID, f"a report names shard {home}; they count from 0"
                )
        for pipeline in report.pipelines:
            known = self._pipelines.get(pipeline.pipeline)
            if (
                known is not None
                and known.generation == pipeline.generation
                and pipeline.changes <= known.changes
            ):
                _check_segments(known.spec, pipeline.segments)


class EntryJudge:
    """Judges the entries of one home's log that is not lost, one after the other, from number `due` on: by what will be
    known when those before them have taken effect."""

    def __init__(
        self,
        shards: Shards,
        pipelines: Pipelines,
        links: Mapping[int, Link],
        sender: int,
        due: int,
    ) -> None:
        self._shards, self._pipelines, self._links = shards, pipelines, links
        self._sender, self._due = sender, due
        self._known = shards.expected()
        self._table = table_of(self._known, sender)
        self._specs: dict[str, tuple[int, PipelineSpec]] = {}
        """By name what this log has said of a pipeline: its change by number, and what it becomes."""
        self._generations: dict[str, int] = {}
        """By name the newest generation that this log has begun."""

    def takes(self, entry: Told) -> bool:
        """Whether the entry can be taken now; False if what it names is still on its way. Raises Refused
        if it never can."""
        self._check_sender(entry)
        if not self.knows(entry):
            return False
        if self._counts(entry):
            self._check(entry)
        self.note(entry)
        return True

    def _counts(self, entry: Told) -> bool:
        """Whether an entry that is taken changes anything here."""
        return not self._known.passes_over(entry, self._sender, self._due)

    def knows(self, entry: Told) -> bool:
        """Whether what the entry names is known: its pipelines and their segments, the homes, that the sender has joined, and
        that all record by the feature level that it needs. Until then it is asked for again."""
        applied = entry.applied if isinstance(entry, steps.ShardLeft) else ()
        if isinstance(entry, losses.LossDeclared | losses.ShardLost):
            return self._is_left(entry) and not self._known.awaits(self._sender, entry)
        if isinstance(entry, losses.LossHeard) and not self._knows_declared(entry):
            return False
        if self._loses:
            # What only the log of a lost shard has does not come any more, and need not.
            if self._goes_on(entry) and not self._declares_more:
                return False
            return self._sender not in self._known.joining
        return (
            level_of(entry) <= self._known.level
            and not (isinstance(entry, steps.MoveReady) and entry.number > self._known.moved)
            and not self._known.awaits(self._sender, entry)
            and all(home < self._known.next_shard for home, _ in applied)
            and all(self._is_known(*named, entry) for named in _named_by(entry))
            and all(map(self._knows_segments, _summaries(entry)))
            and not self._comes_too_early(entry)
        )

    def _knows_segments(self, words: steps.DepartureSummary) -> bool:
        """Whether the segments of which a shard says what it has announced are known: it may have heard first of the change
        that adds them, which is in another log."""
        spec = self._spec(words.pipeline)
        return spec is None or not len(spec.segments) < len(words.announced) <= MAX_SEGMENTS

    def _knows_declared(self, entry: losses.LossHeard) -> bool:
        """Whether that declaration, or one that has taken its place, has come, or stands behind it; or need not come: one that takes
        the place of what is under way names all that this does."""
        loss = self._known.loss
        if loss is not None and not {*loss.lost} <= {*entry.lost}:
            return True
        return self._declares_more or {*entry.lost} <= self._known.lost.keys() | {
            *(() if loss is None else loss.lost)
        }

    def _goes_on(self, entry: Told) -> bool:
        """Whether the sender may have logged it when it had applied how all go on, which has not come here."""
        loss = self._known.loss
        if loss is None or self._sender == loss.leader or isinstance(entry, losses.LossStep):
            return False
        return self._sender in loss.heard

    @property
    def _loses(self) -> bool:
        """Whether shards are declared lost, here or by an entry that is on the way, and how all go on has not come."""
        known = self._known
        return known.loss is not None or any(
            link.accepted < link.declares and not known.is_lost(shard)
            for shard, link in self._links.items()
        )

    def _is_left(self, entry: losses.LossDeclared | losses.ShardLost) -> bool:
        """Whether this shard is one of those that go on, and has all that they had logged by then. One of them may be lost by now,
        and send the rest no more: where the sender has declared others lost since, all begin anew once more."""
        own, known = self._shards.own, self._known
        if own in entry.lost:
            return False
        if isinstance(entry, losses.LossDeclared) or entry.shards is None:
            return True
        if not known.settles(entry):
            return True  # another declaration has taken its place, and this is nothing
        return own in entry.shards.members and all(
            self._declares_more or home in (own, self._sender) or self._has(home, number)
            for home, number in entry.shards.heard
        )

    @property
    def _declares_more(self) -> bool:
        """Whether the sender has declared others lost behind this entry. What it waits for here may be in their logs alone."""
        return self._links[self._sender].declares > self._due

    def _has(self, home: int, number: int) -> bool:
        link = self._links.get(home)
        return link is not None and link.accepted >= number

    def _is_known(self, pipeline: str, generation: int | None, entry: Told) -> bool:
        """Whether a pipeline is known, and has come to this generation; or was deleted: then nothing that names it counts. The
        registrar decides when a generation begins, and on changes, in one order: nothing that rests on one of them is taken
        before what came before it there."""
        if self._spec(pipeline) is None:
            return self._pipelines.is_over(pipeline, generation, self._sender)
        if generation is None or isinstance(entry, PipelineRestarted | PipelineDeleted):
            return True
        newest = self._pipelines.newest_generation(pipeline)
        return generation <= max(newest, self._generations.get(pipeline, 0))

    def _comes_too_early(self, entry: Told) -> bool:
        """Whether it registers a pipeline anew, or lets one come, or says that such a one is over, while entries of the one that was
        deleted before may still come here; or lets one go that is not registered here yet."""
        if isinstance(entry, PipelinesOver):
            shards, ended = self._known.members, self._pipelines.ended
            return any(
                name in ended
                and ended[name].generation < generation
                and self._pipelines.is_ending(name, shards)
                for name, generation in entry.pipelines
            )
        if isinstance(entry, steps.MoveBegun) and entry.arrives:
            # The sender may have begun that before it heard of the end of one, and says that it is over behind it.
            return self._pipelines.is_ending(entry.pipeline, self._known.members - {self._sender})
        if isinstance(entry, steps.MoveBegun):
            return self._spec(entry.pipeline) is None and not self._has_gone(entry)
        if not isinstance(entry, PipelineRegistered):
            return False
        name = entry.spec.name
        move = self._known.moving.get(name)
        if move is not None and not move.arrives:
            return True  # none comes by a placement before that of one that is registered
        if entry.restart is None:
            return False
        known = self._pipelines.get(name)
        if known is not None:
            return known.generation < entry.restart.generation
        # A shard that joins may have logged of it, too, before it heard of the end: the registrar has waited for that.
        begins = entry.restart.generation
        return not self._pipelines.may_begin(name, self._known.with_newcomers, begins)

    def _has_gone(self, entry: steps.MoveBegun) -> bool:
        """Whether the pipeline has ended here that the sender lets go. What a home has logged behind its last of one is of the next
        one of its name, which may have no other placement: so all that it has logged before has to be applied here."""
        known = self._pipelines.ended.get(entry.pipeline)
        if known is None or known.hearsay or known.placed < entry.version:
            return False
        is_next = self._links[self._sender].received == self._due - 1
        return is_next and bool(known.awaited({self._sender}))

    def note(self, entry: Told) -> bool:
        """The entry is taken: those after it are judged by what it changes. Returns whether it changes anything here."""
        counts = self._counts(entry)
        if not counts:
            pass
        elif isinstance(entry, PipelineRegistered):
            self._specs.setdefault(entry.spec.name, (0, entry.spec))
            if entry.restart is not None:
                self._generations[entry.spec.name] = entry.restart.generation
        elif isinstance(entry, PipelineRestarted):
            self._generations[entry.pipeline] = entry.restart.generation
        elif isinstance(entry, PipelineChanged):
            # One that is over is not known by it, nor the next of its name.
            if self._spec(entry.pipeline) is not None:
                self._specs[entry.pipeline] = entry.number, entry.spec
        elif isinstance(entry, steps.MembershipStep):
            if self._known is self._shards.membership:
                self._known = self._known.copy()
            self._known.apply(entry, self._sender, self._due)
            self._table = table_of(self._known, self._sender)
        self._due += count_of(entry)
        return counts

    def _spec(self, pipeline: str) -> PipelineSpec | None:
        """A pipeline as it will be: by its last change, which has the segments of all before."""
        told = (self._pipelines.newest(pipeline), self._specs.get(pipeline))
        return max(
            (each for each in told if each is not None), key=itemgetter(0), default=(0, None)
        )[1]

    def _check_sender(self, entry: Told) -> None:
        known, sender = self._known, self._sender
        if sender not in known.members and sender not in known.joining:
            raise Refused(
                RefusalCode.INVALID,
                f"shard {sender} says {type(entry).__name__}, but it "
                f"{'has left' if sender in known.former else 'has not joined'}: the shards are "
                f"{sorted(known.members)}",
            )

    def _check(self, entry: Told) -> None:
        """Raises Refused if the entry, of which all is known, can never be taken."""
        if isinstance(entry, PipelineRegistered):
            check_spec(entry.spec)
            _check_restart(entry.spec, entry.restart)
            _check_base(entry.spec, entry.base)
        elif isinstance(entry, Placed | GroupKnown):
            _check_directory(entry.placement if isinstance(entry, Placed) else entry.group)
        elif isinstance(entry, PipelinesOver):
            for name, generation in entry.pipelines:
                if not 1 <= generation <= MAX_NUMBER:
                    raise _refused(name, f"that it is over in generation {generation}")
        elif isinstance(entry, steps.MembershipStep):
            if isinstance(entry, steps.FeatureLevelRaised):
                _check_spoken(entry, self._shards.speaks)
            elif isinstance(entry, steps.NodesMoved | steps.CellsMoved):
                spec = self._spec(entry.pipeline)
                if spec is not None:
                    _check_moved(spec, entry)
            elif isinstance(entry, losses.LossHeard | losses.ShardLost):
                for known in entry.pipelines:
                    _check_known(known)
                for placement in entry.placed:
                    _check_directory(placement)
            for words in _summaries(entry):
                if (spec := self._spec(words.pipeline)) is not None:
                    # A change that adds segments may be in the log of a lost shard alone.
                    segments = MAX_SEGMENTS if self._loses else len(spec.segments)
                    _check_summary(spec, words, segments)
            check_step(self._known, self._shards.own, entry, self._sender, loses=self._loses)
        elif isinstance(entry, TickRun):
            self._check_run(entry)
        elif (spec := self._spec(pipeline_of(entry) or "")) is not None:
            self._check_entry(spec, entry)

    def _check_entry(self, spec: PipelineSpec, entry: Entry) -> None:
        if isinstance(entry, KeyTick):
            self._check_home(spec, entry.tick.key, entry.tick.number)
            _check_tick(spec, entry)
        elif isinstance(entry, WrittenOff) and len(entry.cells):
            _check_places(spec, entry.cells)
        elif isinstance(entry, KeyClosed):
            self._check_home(spec, entry.key, entry.last_number)
        elif isinstance(entry, KeyOpened):
            self._check_home(spec, entry.key, 0)
        elif isinstance(entry, PipelineChanged):
            _check_changed(spec, entry)
        elif isinstance(entry, PipelineCompleted):
            self._check_completed(spec, entry)
        if isinstance(entry, KeyOpened | PipelineRestarted | PipelineDeleted):
            _check_restart(spec, entry.restart)

    def _check_run(self, run: TickRun) -> None:
        last = dict[tuple[str, NodeKey], int]()
        for progress in run.keys:
            if (of_key := self._spec(progress.pipeline)) is not None:
                self._check_home(of_key, progress.key, progress.number)
            last[progress.pipeline, progress.key] = progress.number
        for columns in run.columns:
            self._check_columns(run, columns)
        for _, part in run.parts:
            tick = part.tick
            if self._spec(tick.pipeline) is None and (
                self._loses or self._pipelines.is_over(tick.pipeline, None, self._sender)
            ):
                continue
            number = last.get((tick.pipeline, tick.key), -1)
            spec = self._known_in(tick.pipeline, tick.key, tick.number, number)
            if tick.content.heartbeats or tick.content.joins or tick.content.leaves:
                raise _refused(
                    spec.name,
                    f"fronts of node {tick.key} in a part of a run, which has cells and units alone",
                )
            _check_tick(spec, part)

    def _check_columns(self, run: TickRun, columns: TickColumns) -> None:
        spec = self._spec(columns.pipeline)
        for place, number in zip(columns.keys, columns.numbers, strict=True):
            progress = run.keys[place]
            last = progress.number if progress.pipeline == columns.pipeline else -1
            if not 0 <= number <= last:
                self._known_in(columns.pipeline, progress.key, number, last)
        for cells in (columns.created, columns.consumed):
            if cells.size and spec is not None:
                _check_cells(spec, cells)

    def _known_in(self, pipeline: str, key: NodeKey, number: int, last: int) -> PipelineSpec:
        """The pipeline of a tick of a run, which has its key's ticks up to `last`."""
        spec = self._spec(pipeline)
        if spec is None or not 0 <= number <= last:
            raise _refused(
                pipeline,
                f"tick {number} of node {key} in a run that has its ticks up to {last} (-1: none)",
            )
        return spec

    def _check_completed(self, spec: PipelineSpec, entry: PipelineCompleted) -> None:
        table = self._table
        if not 0 <= entry.generation <= MAX_NUMBER:
            raise _refused(spec.name, f"that it is complete, in generation {entry.generation}")
        if table is not None and table.registrar(spec.name) != self._sender:
            raise _refused(
                spec.name,
                f"that it is complete, said by shard {self._sender}; by version {table.version} of the "
                f"table its registrar is shard {table.registrar(spec.name)}",
            )

    def _check_home(self, spec: PipelineSpec, key: NodeKey, number: int) -> None:
        """A key's entries come from its home alone: they stand in one order (rule 3)."""
        _check_numbers(spec, key, number)
        table = self._table
        if table is not None and table.home(spec.name, key.node_id) != self._sender:
            raise _refused(
                spec.name,
                f"node {key} of shard {self._sender}; by version {table.version} of the table it is at "
                f"home at shard {table.home(spec.name, key.node_id)}",
            )


def _named_by(entry: Told) -> Iterable[tuple[str, int | None]]:
    """The names of the pipelines that an entry is of, and does not begin; with the generation, where it says that. What
    does not is of keys that this home has opened before."""
    match entry:
        case TickRun():
            return ((name, None) for name in entry.pipelines)
        case steps.DepartureSummarized() | steps.ShardLeft():
            return ((words.pipeline, words.generation) for words in entry.pipelines)
        case steps.NodesMoved() | steps.CellsMoved():
            return ((entry.pipeline, entry.generation),)
        case PipelineRestarted() | PipelineDeleted():
            return ((entry.pipeline, entry.restart.generation),)
    name = pipeline_of(entry)
    return () if name is None else ((name, getattr(entry, "generation", None)),)


def _check_directory(said: Placement | Group) -> None:
    fits = NOWHERE <= said.group < MAX_GROUPS
    if isinstance(said, Placement):
        fits = fits and 1 <= said.version <= MAX_NUMBER and 0 <= said.above <= MAX_NUMBER
    if not fits:
        raise Refused(RefusalCode.INVALID, f"a frame has {said}; groups are 0 to {MAX_GROUPS - 1}")


def _check_spoken(entry: steps.FeatureLevelRaised, speaks: int) -> None:
    if entry.level > speaks:
        raise Refused(
            RefusalCode.INVALID,
            f"processes record by feature level {entry.level} from here on, and this one speaks levels up to {speaks}: start "
            "the process of the newer release in its place",
        )


def _check_moved(spec: PipelineSpec, entry: steps.NodesMoved | steps.CellsMoved) -> None:
    if isinstance(entry, steps.NodesMoved):
        _check_restart(spec, entry.restart)
        for node in entry.nodes:
            _check_segments(spec, (*node.consumes, *node.creates))
        for _, contribution in entry.staged:
            for cells in (contribution.created, contribution.consumed):
                if len(cells):
                    _check_cells(spec, cells)
        return
    if len(entry.cells):
        _check_places(spec, entry.cells)
    _check_segments(spec, [unit.segment for unit in entry.units + entry.consumed])
    _check_segments(spec, [cell.segment for cell in entry.written_off])


def _summaries(entry: Told) -> tuple[steps.DepartureSummary, ...]:
    """What a shard that leaves says of pipelines, if the entry is of that."""
    if isinstance(entry, steps.DepartureSummarized | steps.ShardLeft):
        return entry.pipelines
    return ()


def _check_summary(spec: PipelineSpec, words: steps.DepartureSummary, segments: int) -> None:
    if not 0 < len(words.announced) <= segments:
        raise _refused(spec.name, f"{len(words.announced)} segments; it has {len(spec.segments)}")
    _check_restart(spec, words.restart)
    _check_segments(spec, [late.segment for late in words.late])
    _check_segments(spec, [segment for segment, _ in words.written_off_items])


def _check_known(known: PipelineKnown) -> None:
    check_spec(known.spec)
    for restart in (*known.before, known.restart):
        _check_restart(known.spec, restart)
    _check_base(known.spec, known.base)
    spec = known.spec
    if known.changed is not None:
        _check_changed(spec, PipelineChanged(known.changes, known.changed))
        spec = known.changed
        if spec.name != known.spec.name:
            raise _refused(known.spec.name, f"that it has become {spec.name!r}")
    if known.bound is not None and known.bound > HIGHEST_SLOT:
        raise _refused(spec.name, f"slot {known.bound}; the largest is {HIGHEST_SLOT}")
    _check_segments(spec, [each.segment for each in known.open])


def _check_base(spec: PipelineSpec, base: int) -> None:
    most = base_of(MAX_NUMBER) // 2
    if not 0 <= base <= most:
        raise _refused(spec.name, f"base {base} of its generations; it is 0 to {most}")


def _check_changed(spec: PipelineSpec, entry: PipelineChanged) -> None:
    check_spec(entry.spec)
    if not 1 <= entry.number <= MAX_NUMBER:
        raise _refused(spec.name, f"change {entry.number} of it; they count from 1")
    both = min(len(spec.segments), len(entry.spec.segments))
    if spec.segments[:both] != entry.spec.segments[:both]:
        raise _refused(
            spec.name, f"segments {entry.spec.segments[:20]}; it has {spec.segments[:20]}"
        )


def _check_numbers(spec: PipelineSpec, key: NodeKey, number: int) -> None:
    if not (1 <= key.incarnation <= MAX_NUMBER and 0 <= number <= MAX_NUMBER):
        raise _refused(
            spec.name, f"tick {number} of node {key}; both count up to {MAX_NUMBER} at most"
        )


def _check_tick(spec: PipelineSpec, entry: KeyTick) -> None:
    content = entry.tick.content
    for cells in (content.created, content.consumed, entry.late):
        if len(cells):
            _check_cells(spec, cells)
    numbers = [unit.segment for unit in content.units_created + content.units_consumed]
    _check_segments(spec, numbers + [join.segment for join in content.joins])


def _check_restart(spec: PipelineSpec, restart: Restart | None) -> None:
    if restart is None:
        return
    if not 1 <= restart.generation <= MAX_NUMBER or restart.from_slot > HIGHEST_SLOT:
        raise _refused(
            spec.name,
            f"generation {restart.generation} from slot {restart.from_slot}; they count from 1, and the "
            f"largest slot is {HIGHEST_SLOT}",
        )


def _check_places(spec: PipelineSpec, cells: Cells) -> None:
    _check_segments(spec, (int(cells.segments.min()), int(cells.segments.max())))
    if int(cells.slots.max()) > HIGHEST_SLOT:
        raise _refused(spec.name, f"slot {int(cells.slots.max())}; the largest is {HIGHEST_SLOT}")


def _check_cells(spec: PipelineSpec, cells: Cells) -> None:
    _check_places(spec, cells)
    least, most = int(cells.counts.min()), int(cells.counts.max())
    if least < 0 or most > MAX_ITEMS_PER_CELL:
        raise _refused(
            spec.name,
            f"{least if least < 0 else most} items in one cell; a number of items lies within 0 and "
            f"{MAX_ITEMS_PER_CELL}",
        )


def _check_segments(spec: PipelineSpec, numbers: Iterable[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(spec.segments):
            raise _refused(
                spec.name, f"segment number {number}; it has {len(spec.segments)}, from 0"
            )


def _refused(pipeline: str, what: str) -> Refused:
    return Refused(
        RefusalCode.INVALID,
        f"a frame names, for pipeline {pipeline!r}, {what}: is the other process of another version?",
    )
