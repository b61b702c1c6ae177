"""Frames of other shards: taken, or passed over and asked for again (rules 3, 5)."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.log import (
    Entries,
    EntriesReceived,
    Frame,
    PipelineChanged,
    PipelineRegistered,
    PipelineRestarted,
    ReceivedEntries,
    ReportWanted,
    ShardReport,
    numbered,
)
from tracker.core.log.journal import Journal
from tracker.core.log.steps import MembershipStep
from tracker.core.membership.shards import Shards
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.process.checking import EntryJudge
from tracker.core.process.progress import Progress
from tracker.core.replication.links import Link
from tracker.core.replication.lost import LogLost
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter


@dataclass(slots=True, eq=False)
class Receiver:
    """Takes what other shards say. It keeps nothing: links do."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _replication: Replication
    _reporter: Reporter
    _progress: Progress

    def connect(self, shard: int, now_ns: int) -> None:
        """A link is up (again): what was sent before may be lost, so both sides begin from what is confirmed."""
        link = self._replication.links.get(shard)
        if link is None or self._shards.is_lost(shard):
            return  # it has left
        link.connected = True
        link.forget_release()
        link.restart_sending(now_ns)
        self._replication.send(shard, self._replication.received(link))
        self._reporter.send_whole_report(shard)
        if link.needs_whole:
            self._reporter.want_report(shard, now_ns)
        self._replication.pump(shard, now_ns)

    def take_frame(self, frame: Frame, now_ns: int) -> None:
        """Takes a frame, or passes over one of a former owner, or of a shard that has left."""
        if self._shards.is_lost(frame.shard):
            return
        link = self._replication.links.get(frame.shard)
        if link is None:
            if isinstance(frame.body, Entries):
                self._replication.confirm_last_of(frame.shard)
            return
        if frame.epoch < link.epoch:
            return
        if self._shards.has_gone(frame.shard):
            return
        if frame.epoch > link.epoch:
            link.owed, link.epoch = link.owed_to(frame.epoch), frame.epoch
            link.report_number = -1
            link.need_whole()
            link.forget_release()
        match frame.body:
            case Entries():
                self._take_entries(frame.shard, link, frame.body)
            case EntriesReceived():
                self._take_confirmation(frame.shard, link, frame.body, now_ns)
            case ShardReport():
                self._hear_of_loss(frame.body)
                if frame.shard in self._shards.membership.members:
                    self._reporter.take_report(frame.shard, link, frame.body, now_ns)
            case ReportWanted():
                self._reporter.send_whole_report(frame.shard)
                self._replication.send(frame.shard, self._replication.received(link))

    def _hear_of_loss(self, body: ShardReport) -> None:
        if body.loss is None or (link := self._replication.links.get(body.loss[0])) is None:
            return
        leader, number = body.loss
        if number > link.declares and number > link.accepted:
            link.declares = number
            self._replication.ask_again(leader)

    def _take_entries(self, shard: int, link: Link, body: Entries) -> None:
        due = link.accepted + 1
        if body.last < due or (body.first > due and not link.awaits):
            confirmation = self._replication.received(link, again=body.first > due)
            self._replication.send(shard, confirmation)
        if body.last < due or body.first > due:
            return
        told, awaits = body.from_number(due), False
        judge = EntryJudge(self._shards, self._pipelines, self._replication.links, shard, due)
        for index, entry in enumerate(told):
            if not judge.knows(entry):
                told, awaits = told[:index], True
                break
            if not judge.note(entry):
                continue
            if isinstance(entry, PipelineRegistered) and entry.spec.name not in self._pipelines:
                # Of several registrations of one name, the first one counts.
                self._pipelines.registering.setdefault(entry.spec.name, entry.spec)
                self._pipelines.will_begin(entry.spec.name, entry.restart)
            elif isinstance(entry, PipelineRestarted):
                self._pipelines.will_begin(entry.pipeline, entry.restart)
            elif isinstance(entry, PipelineChanged):
                self._pipelines.will_change(entry.number, entry.spec)
        link.awaits = awaits
        if told:
            record = ReceivedEntries(shard, due, told)
            link.accepted = record.last
            self._journal.append(record)
            for number, entry in numbered(due, told):
                if isinstance(entry, MembershipStep):
                    self._shards.record_step(self._journal.position, entry, shard, number)

    def _take_confirmation(
        self, shard: int, link: Link, body: EntriesReceived, now_ns: int
    ) -> None:
        if body.number > self._journal.home_last:
            raise LogLost(
                f"shard {shard} holds the home log of shard {self._shards.own} up to entry "
                f"{body.number}, but it ends at {self._journal.home_last}: acknowledged entries were lost "
                "from the store; restore it from a backup that has them"
            )
        link.level, link.speaks = body.level, body.speaks
        news = link.confirm(body.number, now_ns)
        if body.again and link.sent > link.confirmed:
            link.restart_sending(now_ns)
            news = True
        if news:
            self._progress.confirmed(shard, now_ns)
