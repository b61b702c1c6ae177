"""Reports between shards, and what all of them together allow to announce (rules 5, 6, 8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tracker.core.config import MS, ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.log import (
    Announced,
    Announcement,
    Effect,
    FrameBody,
    FrontsGranted,
    Pinned,
    PipelineChanged,
    PipelineCompleted,
    PipelineReport,
    ReportWanted,
    ShardReport,
    Swept,
)
from tracker.core.log.journal import Journal
from tracker.core.membership.shards import Shards
from tracker.core.model import durable as d
from tracker.core.model.allowance import Allowance
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.links import MAX_EARLY_REPORTS, Link
from tracker.core.replication.replication import Replication


@dataclass(slots=True, eq=False)
class Reporter:
    """What this shard tells the others of its state, and takes from them. Nothing of it is durable but what it appends."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _homes: Homes
    _config: ProcessConfig
    _effects: list[Effect]
    last_report_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """When a report was last made."""
    announced_due_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """By when what was announced is to be reported to the other shards; None where nothing is."""
    _unreported: dict[str, None] = d.forgotten(d.REPORTED_AGAIN, dict)
    """Pipelines of which something was announced since that was due last."""
    step_unreported: bool = d.forgotten(d.REPORTED_AGAIN, default=False)
    """Whether a step of a change was applied that the others wait to hear of."""
    _completing: dict[str, None] = d.forgotten(d.REPORTED_AGAIN, dict)
    """Pipelines that are complete, as far as is known here, which their registrar has yet to say."""
    _holding: dict[str, None] = d.forgotten(d.REPORTED_AGAIN, dict)
    """Pipelines with runs outside the stable cut: they may have news whenever it moves."""
    _report_number: int = d.forgotten("it is of this run of the process", default=0)
    _pins_position: int = d.forgotten("the pins up to it are durable, or lost", default=0)
    """Reports wait until the records up to here are durable: a pin is reported when it cannot be
    forgotten any more."""
    _held_frames: deque[tuple[int, int, FrameBody]] = d.forgotten(d.REPORTED_AGAIN, deque)
    """Reports that wait for it: (position, shard, report)."""
    _refreshes: Allowance = d.forgotten(d.A_MOMENT, init=False)
    """How often reports and announcements are made..."""
    _reports: Allowance = d.forgotten(d.A_MOMENT, init=False)
    """... and how often reports are sent, each to every other shard."""

    def __post_init__(self) -> None:
        self._refreshes = Allowance(self._config.report_burst)
        self._reports = Allowance(self._config.report_burst)

    @property
    def _interval_ns(self) -> int:
        return self._config.report_interval_ms * MS

    @property
    def _report_interval_ns(self) -> int:
        return self._config.report_interval_of_ms(len(self._replication.links)) * MS

    @property
    def _loss(self) -> tuple[int, int] | None:
        loss = self._shards.membership.loss
        return None if loss is None else (loss.leader, loss.number)

    def record_step(self) -> None:
        """A step of a change was applied: the others wait to hear of it."""
        self.step_unreported = True

    def committed(self, now_ns: int) -> None:
        """More records are durable: reports that have waited for them go out, and those are taken that came before
        a pipeline which they name."""
        while self._held_frames and self._held_frames[0][0] <= self._journal.committed:
            _, shard, body = self._held_frames.popleft()
            self._replication.send(shard, body)
        for shard, link in self._replication.links.items():
            if link.early:
                self._take_early(shard, link, now_ns)

    def want_whole_reports(self, now_ns: int) -> None:
        """What the others have reported of a pipeline so far was passed over: all of it is asked for."""
        for shard, link in self._replication.links.items():
            link.need_whole()
            self.want_report(shard, now_ns)

    def forget_generation(self, pipeline: str) -> None:
        """A new generation has begun: nothing of the old one is held."""
        self._holding.pop(pipeline, None)

    def forget_pipeline(self, pipeline: str) -> None:
        """It was deleted: nothing of it is reported or announced any more."""
        self.forget_generation(pipeline)
        self._completing.pop(pipeline, None)
        self._unreported.pop(pipeline, None)

    def tell_announced_due(self, now_ns: int) -> None:
        """What was announced and not reported is reported now, if it is time."""
        if self.announced_due_ns is None or now_ns < self.announced_due_ns:
            return
        self.announced_due_ns = None
        unreported, self._unreported = self._unreported, {}
        for name in unreported:
            pipeline = self._pipelines[name]
            if pipeline.unreported:
                pipeline.announced_due = True
                self._pipelines.mark(name)

    def take_report(self, shard: int, link: Link, body: ShardReport, now_ns: int) -> None:
        """Takes a report that follows the one before, or a whole one; else asks for a whole one (rule 5). One that
        names a pipeline whose registration is still on the way is kept until that is durable here, as if it had
        been on the way as long: whole reports, of all pipelines, would be asked for with each registration."""
        if body.number < link.last_report or (
            body.number == link.last_report and not link.needs_whole
        ):
            return  # older than what was taken
        follows = body.whole or (not link.needs_whole and body.number == link.last_report + 1)
        if not follows:
            self._pass_over(shard, link, now_ns)
        elif body.whole or not (link.early or not self._names_known(body)):
            self._take_next(shard, link, body, now_ns)
        elif len(link.early) < MAX_EARLY_REPORTS:
            link.early.append(body)
        else:
            self._pass_over(shard, link, now_ns)

    def _take_early(self, shard: int, link: Link, now_ns: int) -> None:
        """Takes the reports whose pipelines have come. A whole one instead of one that points nowhere is refused
        when it comes."""
        while link.early and self._names_known(link.early[0]):
            body = link.early.popleft()
            if any(map(self._points_nowhere, body.pipelines)):
                self._pass_over(shard, link, now_ns)
            else:
                self._take_next(shard, link, body, now_ns)

    def _pass_over(self, shard: int, link: Link, now_ns: int) -> None:
        link.needs_whole = True
        link.early.clear()
        self.want_report(shard, now_ns)

    def _take_next(self, shard: int, link: Link, body: ShardReport, now_ns: int) -> None:
        known = all(self._is_known(report) for report in body.pipelines)
        if not known or self.unknown_homes(body):
            # A pipeline whose restart, or a shard whose joining is still on the way: nothing of the report
            # may be taken without the rest.
            self._pass_over(shard, link, now_ns)
            return
        if body.whole:
            link.early.clear()
        link.report_number, link.needs_whole, link.wanted_ns = body.number, False, None
        self._cut.need(body.cut)
        for report in body.pipelines:
            pipeline = self._pipelines.get(report.pipeline)
            # Else it was before the restart, before the deletion, or before it came to this group, be it once more.
            if (
                pipeline is not None
                and report.generation == pipeline.generation
                and pipeline.has_arrived(body.applied)
            ):
                self._combine(pipeline, shard, report, body.whole, now_ns)
        if body.whole:
            for name in self._pipelines.keys() - {report.pipeline for report in body.pipelines}:
                self._pipelines[name].combiner.forget(shard)
        self._move_cut(shard, body.applied)

    def unknown_homes(self, report: ShardReport) -> list[int]:
        """The shards that a report names and that have not joined, as far as this process has heard."""
        return sorted(report.homes - self._cut.vectors.cut.keys())

    def _names_known(self, report: ShardReport) -> bool:
        """Whether all pipelines are known that it names, as often changed as its sender knows; also those that were
        deleted."""
        return all(
            self._knows_changes(self._pipelines[each.pipeline], each)
            if each.pipeline in self._pipelines
            else self._pipelines.is_over(each.pipeline, each.generation)
            for each in report.pipelines
        )

    @staticmethod
    def _knows_changes(pipeline: Pipeline, report: PipelineReport) -> bool:
        """Whether it is not of a pipeline that has changed since, as far as is known here; of another generation it is
        passed over, or waits."""
        return report.generation != pipeline.generation or report.changes <= pipeline.changes

    def _is_known(self, report: PipelineReport) -> bool:
        pipeline = self._pipelines.get(report.pipeline)
        if pipeline is None:
            return self._pipelines.is_over(report.pipeline, report.generation)
        return report.generation <= pipeline.generation and self._knows_changes(pipeline, report)

    def _points_nowhere(self, report: PipelineReport) -> bool:
        """Whether it names a segment that there is not: this could not be asked when the report came."""
        pipeline = self._pipelines.get(report.pipeline)
        if pipeline is None or report.generation != pipeline.generation:
            return False  # it is passed over, or waits
        size = pipeline.graph.size
        return not all(0 <= segment < size for segment in report.segments)

    def _move_cut(self, shard: int, applied: Iterable[tuple[int, int]]) -> None:
        """A shard's vector has moved: where the stable cut follows, pipelines that hold runs may have news."""
        moved = self._cut.vectors.take(shard, applied)
        self._replication.let_part()
        if moved:
            self._pipelines.mark(*self._holding)
            if self._cut.held_back and self._may_announce():
                self._cut.release()
                self._pipelines.mark(*self._pipelines)

    def _may_announce(self) -> bool:
        """Whether all that others have let go of runs by has been heard here too; and whether every
        other shard counts this one, which has not left yet."""
        if not self._shards.counts or self._shards.membership.leaving == self._shards.own:
            return False
        if self._shards.membership.loss is not None:
            return False
        return self._cut.is_reached

    def _combine(
        self,
        pipeline: Pipeline,
        shard: int,
        report: PipelineReport,
        whole: bool,
        now_ns: int,
    ) -> None:
        pipeline.combiner.take(shard, report, whole)
        for front in report.fronts:
            pipeline.front_heard_ns[front.id] = now_ns
        for left in report.left:
            pipeline.front_heard_ns.pop(left, None)
        if whole:  # whoever has come back does not say who left before
            known = {each for view in pipeline.combiner.views.values() for each in view.fronts}
            for gone in pipeline.front_heard_ns.keys() - known:
                del pipeline.front_heard_ns[gone]
        self._pipelines.mark(report.pipeline)

    def want_report(self, shard: int, now_ns: int) -> None:
        """Asks a shard for a whole report, now and then until it comes."""
        link = self._replication.links[shard]
        interval_ns = self._config.retransmit_ms * MS
        if link.wanted_ns is None or now_ns - link.wanted_ns >= interval_ns:
            link.wanted_ns = now_ns
            self._replication.send(shard, ReportWanted())

    def send_whole_report(self, shard: int) -> None:
        """Sends a shard all that there is to report."""
        reports = tuple(
            replace(
                pipeline.combiner.whole_report(name),
                generation=pipeline.generation,
            )
            for name, pipeline in self._pipelines.items()
            if pipeline.combiner.views[self._shards.own].heard
        )
        applied = self._cut.vectors.of(self._shards.own)
        body = ShardReport(
            self._report_number, True, applied, reports, self._cut.let_go_by(), self._loss
        )
        self._send_report(shard, body)

    def _send_report(self, shard: int, report: ShardReport) -> None:
        if self._held_frames or self._journal.committed < self._pins_position:
            self._held_frames.append((self._pins_position, shard, report))
        else:
            self._replication.send(shard, report)

    def refresh_if_due(self, now_ns: int) -> int | None:
        """Reports and announces, if there is news and that was not done too often of late. Returns when to do so
        next, as `refresh_due`."""
        due_ns = self.refresh_due()
        if due_ns is None or now_ns < due_ns:
            return due_ns
        self.refresh(now_ns)
        return self.refresh_due()

    def refresh_due(self) -> int | None:
        """When to report and to announce next, in nanoseconds; None where there is nothing to. What the others have
        said is gone by at once, unless there is something to report along with it."""
        if not (self._pipelines.has_news or self.step_unreported):
            return None
        due_ns = self._refreshes.free_ns(self._interval_ns)
        report_ns = self._reports.free_ns(self._report_interval_ns)
        return report_ns if report_ns > due_ns and self._would_tell() else due_ns

    def _would_tell(self) -> bool:
        """Whether there is something to report."""
        if self._replication.applied() != self._cut.vectors.vector(self._shards.own):
            return True
        return any(self._pipelines[name].has_changed for name in self._pipelines.of_which_news)

    def refresh(self, now_ns: int) -> None:
        """Reports what has changed here, and announces what all reports together allow."""
        self._refreshes.spend(now_ns, self._interval_ns)
        self.step_unreported = False
        dirty = self._pipelines.marked()
        news = [self._report(self._pipelines[name], now_ns) for name in dirty]
        self._tell([report for report in news if report is not None], now_ns)
        dirty.update(self._pipelines.marked())  # the stable cut has moved by the own vector
        dirty.update(self._completing)  # whose registrar may be another one by now
        may_announce = self._may_announce()
        if not may_announce:
            self._cut.hold_back()
        for name in dirty:
            self._announce(self._pipelines[name], may_announce, now_ns)

    def _tell(self, reports: list[PipelineReport], now_ns: int) -> None:
        """Sends a report of what has changed, if anything has, to the other shards. One is sent now
        and then in any case: a lost report is noticed by the next one."""
        applied = self._replication.applied()
        overdue = now_ns - self.last_report_ns >= self._config.retransmit_ms * MS
        if not (reports or overdue or applied != self._cut.vectors.vector(self._shards.own)):
            return
        vector = tuple(applied.items())
        self._move_cut(self._shards.own, vector)
        self.last_report_ns = now_ns
        if not self._replication.links:
            return
        self._reports.spend(now_ns, self._report_interval_ns)
        self._report_number += 1
        body = ShardReport(self._report_number, False, vector, tuple(reports), loss=self._loss)
        for shard, link in self._replication.links.items():
            if link.connected:
                self._send_report(shard, body)

    def _report(self, pipeline: Pipeline, now_ns: int) -> PipelineReport | None:
        """Pins the fronts that are new, and takes the shard's changes into the own combiner: from
        here on the front is held in every min time that this process computes. None if nothing has
        changed; what was announced is reported along with something else, or when it is due."""
        pins = pipeline.new_pins()
        if pins:
            for pin in pins:
                pipeline.shard.pin(pin)
            self._journal.append(Pinned(pipeline.spec.name, pins, pipeline.generation))
            self._pins_position = self._journal.position
        if not pipeline.has_changed:
            return None
        report = pipeline.shard.take_report(
            self._replication.applied(), tuple(pipeline.unreported.items())
        )
        report = replace(report, generation=pipeline.generation, changes=pipeline.changes)
        if pipeline.change_unreported:
            # What was announced before the change and is not durable must not be forgotten any more.
            self._pins_position = self._journal.position
        pipeline.reported, pipeline.announced_due, pipeline.change_unreported = True, False, False
        pipeline.unreported.clear()
        self._combine(pipeline, self._shards.own, report, False, now_ns)
        self._pipelines.unmark(pipeline.spec.name)
        return report

    def _is_settled(self, pipeline: Pipeline, news: Sequence[tuple[int, int]]) -> bool:
        """Whether so much may be announced here. That the whole pipeline is complete, its registrar says
        first, by an entry of its home log: it has no restart before that, and begins none after it."""
        name = pipeline.spec.name
        self._completing.pop(name, None)
        if not pipeline.would_complete(news):
            return True
        registrar = pipeline.combiner.views.get(self._shards.routing.registrar(name))
        if registrar is not None and registrar.says_complete(pipeline.graph.size):
            return True
        if self._homes.decides_on(name):
            if any(self._journal.pending_of(PipelineChanged, name)):
                return False  # it is another pipeline by then, and looked at again
            pipeline.announced = [FOREVER] * pipeline.graph.size
            pipeline.unpublished.clear()
            self._journal.append_home(
                PipelineCompleted(name, pipeline.generation, self._journal.unix_ms)
            )
        else:
            self._completing[name] = None
        return False

    def _announce(self, pipeline: Pipeline, may_announce: bool, now_ns: int) -> None:
        if pipeline.graph_change.is_under_way:
            members = {*self._cut.vectors.shards}
            pipeline.settle_change(members, self._replication.applied())
        if pipeline.held is not None:
            return
        is_open = self._pipelines.is_open(pipeline)
        changed = pipeline.new_announcements(is_open) if may_announce else ()
        if not self._is_settled(pipeline, changed):
            changed = ()
        if pipeline.combiner.trim() or pipeline.graph_change.is_under_way:
            self._holding[pipeline.spec.name] = None
        else:
            self._holding.pop(pipeline.spec.name, None)
        if changed:
            self._announce_changed(pipeline, changed)
        handing_over = (
            self._shards.changing and self._shards.hands_over_cells()
        )  # cells as they are now
        for segment, below in () if handing_over else pipeline.new_sweeps():
            pipeline.sweeping[segment] = below
            self._journal.append(Swept(pipeline.spec.name, segment, below, pipeline.generation))
        grants = pipeline.new_grants()
        if grants:
            self._journal.append(FrontsGranted(pipeline.spec.name, grants, pipeline.generation))

    def _announce_changed(self, pipeline: Pipeline, changed: Sequence[tuple[int, int]]) -> None:
        """Appends an announcement, and tells it at once where recovery finds it again without the record."""
        is_found_again = self._is_found_again(pipeline)
        self._append_announcement(pipeline, changed, can_wait=is_found_again)
        if is_found_again:
            heard = pipeline.min_times, pipeline.min_time
            pipeline.told.update(changed)
            self._tell_subscribers(pipeline, *heard)

    def adopt_announced(self, pipeline: Pipeline) -> None:
        """What others have announced is announced here too where items may now come along new edges from below it: this home
        refuses those, also when it comes back and has heard nobody yet."""
        floors = pipeline.floors()
        reached = pipeline.remaining.min_times(floors)
        news = [
            (segment, slot)
            for segment, slot in enumerate(floors)
            if slot > max(pipeline.announced[segment], reached[segment])
        ]
        if news and not pipeline.would_complete(news):
            self._append_announcement(pipeline, news)

    def _append_announcement(
        self, pipeline: Pipeline, changed: Sequence[tuple[int, int]], *, can_wait: bool = False
    ) -> None:
        for segment, slot in changed:
            pipeline.announced[segment] = slot
            pipeline.unpublished.discard(segment)
        record = Announcement(
            pipeline.spec.name, tuple(changed), pipeline.generation, self._journal.unix_ms
        )
        self._journal.append(record, can_wait=can_wait)

    def _is_found_again(self, pipeline: Pipeline) -> bool:
        """Whether recovery is sure to find what can be announced now, without the record of it (rule 8): this
        shard is alone, so that it follows from this log; all that this log has of the pipeline is durable, and
        whatever comes later stands behind the record; and it does not depend on announcements before. While a change is
        under way, a process that comes back counts on with what the one before has taken away."""
        return (
            self._shards.is_alone
            and not self._journal.has_pending_changes(pipeline.spec.name)
            and not pipeline.graph_change.is_under_way
            and not pipeline.stands_by_what_was_said
        )

    def _tell_subscribers(self, pipeline: Pipeline, heard: Sequence[int], least: int) -> None:
        """Whoever listens, and has heard so much, hears what is beyond that."""
        news = tuple(
            (segment, slot)
            for segment, (slot, before) in enumerate(zip(pipeline.min_times, heard, strict=True))
            if slot > before
        )
        if news or pipeline.min_time > least:
            self._effects.append(Announced(pipeline.spec.name, news, pipeline.min_time))

    def publish(self, record: Announcement, now_ns: int) -> None:
        """Min times are durable, and may be announced to anyone; they never go back."""
        pipeline = self._pipelines.get(record.pipeline)
        if pipeline is None or record.generation != pipeline.generation:
            return
        heard = pipeline.min_times, pipeline.min_time
        for segment, slot in record.min_times:
            pipeline.announced[segment] = max(slot, pipeline.announced[segment])
            pipeline.durable[segment] = max(slot, pipeline.durable[segment])
            pipeline.unpublished.discard(segment)
            if slot > pipeline.published[segment]:
                pipeline.history[segment].record(slot, record.at_ms)
            pipeline.published[segment] = max(slot, pipeline.published[segment])
            pipeline.moved_ns[segment] = now_ns
            pipeline.shard.forget_names(segment, slot)
            pipeline.shard.written_off.forget_below(segment, slot)
            # What a change has to be reported with may be more, and not durable yet.
            reported = pipeline.unreported.get(segment, LOWEST_SLOT)
            pipeline.unreported[segment] = max(pipeline.durable[segment], reported)
            if pipeline.told.get(segment, slot + 1) <= slot:
                del pipeline.told[segment]
        self._unreported[record.pipeline] = None
        if self._replication.links and self.announced_due_ns is None:
            self.announced_due_ns = now_ns + self._config.announced_report_ms * MS
        self._tell_subscribers(pipeline, *heard)
