"""Reports between shards, what they allow to announce, and the pins of fronts (rules 5, 6, 8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracker.core.log import (
    Announcement,
    EntriesReceived,
    Frame,
    FrontsGranted,
    Pinned,
    PipelineCompleted,
    PipelineReport,
    ReportWanted,
    Send,
    ShardReport,
    Swept,
)
from tracker.core.log.steps import SEQUENCER
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process.checking import homes_of
from tracker.core.process.reads import Reads
from tracker.core.process.state import _MS
from tracker.core.replication.links import Link


class Reports(Reads):
    """Reports between shards."""

    def _take_report(self, shard: int, link: Link, body: ShardReport, now_ns: int) -> None:
        known = all(self._is_known(report) for report in body.pipelines)
        known = known and not self.unknown_homes(body)
        if body.number < link.report_number or (
            body.number == link.report_number and not link.needs_whole
        ):
            return  # older than what was taken
        follows = body.whole or (not link.needs_whole and body.number == link.report_number + 1)
        if not follows or not known:
            # A gap; or a pipeline whose registration or restart, or a shard whose joining is still on
            # the way: nothing of the report may be taken without the rest.
            link.needs_whole = True
            self._want_report(shard, now_ns)
            return
        link.report_number, link.needs_whole, link.wanted_ns = body.number, False, None
        self._need_cut(body.cut)
        for report in body.pipelines:
            pipeline = self._pipelines[report.pipeline]
            if report.generation == pipeline.generation:  # else it was before the restart
                self._combine(pipeline, shard, report, body.whole, now_ns)
        if body.whole:
            for name in self._pipelines.keys() - {report.pipeline for report in body.pipelines}:
                self._pipelines[name].combiner.forget(shard)
        self._move_cut(shard, body.applied)

    def unknown_homes(self, report: ShardReport) -> list[int]:
        """The shards that a report names and that have not joined, as far as this process has heard."""
        return sorted(homes_of(report) - self._vectors.cut.keys())

    def _is_known(self, report: PipelineReport) -> bool:
        pipeline = self._pipelines.get(report.pipeline)
        return pipeline is not None and report.generation <= pipeline.generation

    def _move_cut(self, shard: int, applied: Iterable[tuple[int, int]]) -> None:
        """A shard's vector has moved: where M follows, pipelines that hold runs may have news."""
        moved = self._vectors.take(shard, applied)
        self._let_part()
        if moved:
            self._dirty.update(self._holding)
            if self._held_back and self._may_announce():
                self._held_back = False
                self._dirty.update(dict.fromkeys(self._pipelines))

    def _let_part(self) -> None:
        for shard in tuple(self._parting):
            self._confirm_last_of(shard)

    def _confirm_last_of(self, shard: int) -> None:
        """Tells a shard that has left that its last entry has come. Its process may end when the
        sequencer, which never leaves, says so, and that one does when all who stay have the entry: each
        of the others may go, too, and answer no more."""
        last = self.membership.former.get(shard)
        if last is None:
            return
        if self.shard == SEQUENCER and self._vectors.behind(shard, last):
            self._parting.add(shard)
            return
        self._parting.discard(shard)
        self._out.append(Send(shard, Frame(self.shard, self.epoch, EntriesReceived(last))))

    def _let_go_by(self) -> tuple[tuple[int, int], ...]:
        """M as far as it has ever come, also before a restart: runs inside it are not kept."""
        needed = self._needed_cut
        return tuple(
            (home, max(number, needed.get(home, 0))) for home, number in self._vectors.cut.items()
        )

    def _may_announce(self) -> bool:
        """Whether all that others have let go of runs by has been heard here too; and whether every
        other shard counts this one, which has not said its last."""
        cut = self._vectors.cut
        if not self.counts or self.membership.leaving == self.shard:
            return False
        return all(cut.get(home, 0) >= number for home, number in self._needed_cut.items())

    def _need_cut(self, cut: Iterable[tuple[int, int]]) -> None:
        """Nothing is announced before M has come as far."""
        for home, number in cut:
            self._needed_cut[home] = max(number, self._needed_cut.get(home, 0))
        self._held_back = True

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
        self._dirty[report.pipeline] = None

    def _want_report(self, shard: int, now_ns: int) -> None:
        link = self.links[shard]
        interval_ns = self.config.retransmit_ms * _MS
        if link.wanted_ns is None or now_ns - link.wanted_ns >= interval_ns:
            link.wanted_ns = now_ns
            self._send(shard, ReportWanted())

    def _send_whole_report(self, shard: int) -> None:
        reports = tuple(
            replace(pipeline.combiner.whole_report(name), generation=pipeline.generation)
            for name, pipeline in self._pipelines.items()
            if pipeline.combiner.views[self.shard].heard
        )
        applied = self._vectors.of(self.shard)
        body = ShardReport(self._report_number, True, applied, reports, self._let_go_by())
        self._send_report(shard, body)

    def _send_report(self, shard: int, report: ShardReport) -> None:
        if self._held_frames or self.committed < self._pins_position:
            self._held_frames.append((self._pins_position, shard, report))
        else:
            self._send(shard, report)

    def _refresh_if_due(self, now_ns: int) -> None:
        if (self._dirty or self._step_untold) and now_ns >= self._refresh_due(now_ns):
            self._refresh(now_ns)

    def _refresh_due(self, now_ns: int) -> int:
        if self._last_refresh_ns is None:
            return now_ns
        return self._last_refresh_ns + self.config.report_interval_ms * _MS

    def _refresh(self, now_ns: int) -> None:
        """Reports what has changed here, and announces what all reports together allow."""
        self._last_refresh_ns = now_ns
        self._step_untold = False
        dirty, self._dirty = self._dirty, {}
        news = [self._report(self._pipelines[name], now_ns) for name in dirty]
        self._tell([report for report in news if report is not None], now_ns)
        dirty.update(self._dirty)  # M has moved by the own vector
        dirty.update(self._completing)  # whose registrar may be another one by now
        self._dirty = {}
        for name in dirty:
            self._announce(self._pipelines[name], now_ns)

    def _tell(self, reports: list[PipelineReport], now_ns: int) -> None:
        """Sends a report of what has changed, if anything has, to the other shards. One is sent now
        and then in any case: a lost report is noticed by the next one."""
        applied = tuple(self._applied().items())
        overdue = now_ns - self._last_report_ns >= self.config.retransmit_ms * _MS
        if not (reports or overdue or applied != self._vectors.of(self.shard)):
            return
        self._move_cut(self.shard, applied)
        self._last_report_ns = now_ns
        if not self.links:
            return
        self._report_number += 1
        body = ShardReport(self._report_number, False, applied, tuple(reports))
        for shard, link in self.links.items():
            if link.connected:
                self._send_report(shard, body)

    def _report(self, pipeline: Pipeline, now_ns: int) -> PipelineReport | None:
        """Pins the fronts that are new, and takes the shard's changes into the own combiner: from
        here on the front is held in every min time that this process computes. None if nothing has
        changed; what was announced is told along with something else, or when it is due."""
        pins = pipeline.new_pins()
        if pins:
            for pin in pins:
                pipeline.shard.pin(pin)
            self._append(Pinned(pipeline.spec.name, pins, pipeline.generation))
            self._pins_position = self.position
        if pipeline.reported and not pipeline.shard.changes and not pipeline.announced_due:
            return None
        report = pipeline.shard.take_report(self._applied(), tuple(pipeline.unreported.items()))
        report = replace(report, generation=pipeline.generation)
        pipeline.reported, pipeline.announced_due = True, False
        pipeline.unreported.clear()
        self._combine(pipeline, self.shard, report, False, now_ns)
        del self._dirty[pipeline.spec.name]
        return report

    def _is_settled(self, pipeline: Pipeline, news: Sequence[tuple[int, int]]) -> bool:
        """Whether so much may be announced here. That the whole pipeline is complete, its registrar says
        first, by an entry of its home log: it has no restart before that, and begins none after it."""
        name = pipeline.spec.name
        self._completing.pop(name, None)
        if not pipeline.would_complete(news):
            return True
        registrar = pipeline.combiner.views.get(self.routing.registrar(name))
        if registrar is not None and registrar.says_complete(pipeline.graph.size):
            return True
        if self._decides_on(name):
            pipeline.announced = [FOREVER] * pipeline.graph.size
            pipeline.unsaid.clear()
            self._append_home(PipelineCompleted(name, pipeline.generation, self._unix_ms))
        else:
            self._completing[name] = None
        return False

    def _tell_announced(self, now_ns: int) -> None:
        """What is announced is told to the other shards in time."""
        if self.links and self._announced_due_ns is None:
            self._announced_due_ns = now_ns + self.config.announced_report_ms * _MS

    def _announce(self, pipeline: Pipeline, now_ns: int) -> None:
        changed = pipeline.new_announcements() if self._may_announce() else ()
        if not self._is_settled(pipeline, changed):
            changed = ()
        if pipeline.combiner.trim():
            self._holding[pipeline.spec.name] = None
        else:
            self._holding.pop(pipeline.spec.name, None)
        if changed:
            for segment, slot in changed:
                pipeline.announced[segment] = slot
                pipeline.unsaid.discard(segment)
            self._append(
                Announcement(pipeline.spec.name, changed, pipeline.generation, self._unix_ms)
            )
            self._tell_announced(now_ns)
        handing_over = self._changing and self._hands_over_cells()  # cells as they are now
        for segment, below in () if handing_over else pipeline.new_sweeps():
            pipeline.sweeping[segment] = below
            self._append(Swept(pipeline.spec.name, segment, below, pipeline.generation))
        grants = pipeline.new_grants()
        if grants:
            self._append(FrontsGranted(pipeline.spec.name, grants, pipeline.generation))
