"""Home logs on their way between processes: sent, taken, confirmed (rule 3)."""

from __future__ import annotations

from tracker.core.log import (
    Answer,
    Entries,
    EntriesReceived,
    Entry,
    Frame,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyTick,
    LimitsChanged,
    PipelineCompleted,
    PipelineRegistered,
    PipelineRestarted,
    ReceivedEntries,
    ReportWanted,
    ShardReport,
    WrittenOff,
)
from tracker.core.log.steps import STEPS, CellsMoved, NodesMoved, ShardLeft, ShardSaid
from tracker.core.process.reports import Reports
from tracker.core.process.state import LogLost
from tracker.core.replication.links import Link


class Exchange(Reports):
    """Home logs on their way between processes."""

    def _connect(self, shard: int, now_ns: int) -> None:
        link = self.links.get(shard)
        if link is None:
            return  # it has left
        link.connected = True
        link.restart_sending(now_ns)
        self._send(shard, EntriesReceived(link.received))
        self._send_whole_report(shard)
        if link.needs_whole:
            self._want_report(shard, now_ns)
        self._pump(shard, now_ns)

    def _pump(self, shard: int, now_ns: int) -> None:
        """Sends the entries that a shard has not been sent, as far as its window allows."""
        link = self.links[shard]
        limit = link.confirmed + self.config.max_entries_in_flight
        while link.connected and link.sent < min(self._home_last, limit):
            first = link.sent + 1
            start = first - self._outbox[0].number
            entries: list[Entry] = []
            size_bytes = 0
            for place in range(start, len(self._outbox)):
                item = self._outbox[place]
                size_bytes += item.size_bytes
                if len(entries) >= self.config.max_entries_per_frame or (
                    entries and size_bytes > self.config.max_bytes_per_frame
                ):
                    break
                entries.append(item.part(shard))
            if link.sent == link.confirmed:
                link.progress_ns = now_ns
            link.sent += len(entries)
            self._send(shard, Entries(first, tuple(entries)))

    def _take_frame(self, frame: Frame, now_ns: int) -> None:
        link = self.links.get(frame.shard)
        if link is None:
            if isinstance(frame.body, Entries):
                self._confirm_last_of(frame.shard)
            return
        if frame.epoch < link.epoch:
            return
        if frame.epoch > link.epoch:
            link.epoch = frame.epoch
            link.report_number = -1
            link.needs_whole = True
            link.wanted_ns = None
        match frame.body:
            case Entries():
                self._take_entries(frame.shard, link, frame.body)
            case EntriesReceived():
                self._take_confirmation(frame.shard, link, frame.body, now_ns)
            case ShardReport():
                if frame.shard in self.membership.members:
                    self._take_report(frame.shard, link, frame.body, now_ns)
            case ReportWanted():
                self._send_whole_report(frame.shard)

    def _take_entries(self, shard: int, link: Link, body: Entries) -> None:
        due = link.accepted + 1
        last = body.first + len(body.entries) - 1
        if body.first > due or last < due:
            self._send(shard, EntriesReceived(link.received, again=body.first > due))
            return
        entries = body.entries[due - body.first :]
        known = self.expected_membership()
        for place, entry in enumerate(entries):
            if known.awaits(shard, entry) or not self._can_take(entry):
                entries = entries[:place]  # what it names is still on the way: ask again later
                break
        if entries:
            link.accepted = due + len(entries) - 1
            self._append(ReceivedEntries(shard, due, tuple(entries)))
            for place, entry in enumerate(entries):
                if type(entry) in STEPS:
                    self._note_step(entry, shard, due + place)

    def _can_take(self, entry: Entry) -> bool:
        """Whether the pipeline that an entry is of is known, and the shards that it names."""
        match entry:
            case PipelineRegistered():
                if entry.spec.name not in self._pipelines:  # of several, the first one counts
                    self._registering.setdefault(entry.spec.name, entry.spec)
                return True
            case KeyTick():
                name = entry.tick.pipeline
            case KeyOpened() | KeyClosed() | KeyDropped() | WrittenOff() | PipelineRestarted():
                name = entry.pipeline
            case LimitsChanged() | PipelineCompleted():
                name = entry.pipeline
            case NodesMoved() | CellsMoved():
                name = entry.pipeline
            case ShardSaid() | ShardLeft():
                applied = entry.applied if isinstance(entry, ShardLeft) else ()
                next_shard = self.expected_membership().next_shard
                known = self._pipelines.keys() | self._registering.keys()
                return all(home < next_shard for home, _ in applied) and all(
                    words.pipeline in known for words in entry.pipelines
                )
            case _:
                return True
        return name in self._pipelines or name in self._registering

    def _take_confirmation(
        self, shard: int, link: Link, body: EntriesReceived, now_ns: int
    ) -> None:
        if body.number > self._home_last:
            raise LogLost(
                f"shard {shard} holds the home log of shard {self.shard} up to entry "
                f"{body.number}, but it ends at {self._home_last}: acknowledged entries were lost "
                "from the store; restore it from a backup that has them"
            )
        news = link.confirm(body.number, now_ns)
        if body.again and link.sent > link.confirmed:
            link.restart_sending(now_ns)
            news = True
        if news:
            self._after_progress(now_ns)

    def _after_progress(self, now_ns: int) -> None:
        """Something became durable here or was confirmed by another shard."""
        everywhere = self._confirmed_everywhere()
        held = self._held_everywhere()
        while self._outbox and self._outbox[0].number <= held:
            self._outbox.popleft()
        while self._dropping < len(self._closed_keys):
            number, name, key = self._closed_keys[self._dropping]
            if number > everywhere:
                break
            self._dropping += 1
            self._append_home(KeyDropped(name, key))
        if self._unconfirmed_registrations:
            self._answer_registrations()
        while self._unconfirmed_requests and self._unconfirmed_requests[0][0] <= everywhere:
            _, request, result = self._unconfirmed_requests.popleft()
            self._out.append(Answer(request, result))
        for shard in self.links:
            self._pump(shard, now_ns)

    def _answer_registrations(self) -> None:
        everywhere = self._confirmed_everywhere()
        for name, (number, requests) in list(self._unconfirmed_registrations.items()):
            if number <= everywhere and name in self._pipelines:
                del self._unconfirmed_registrations[name]
                spec = self._pipelines[name].spec
                self._out.extend(Answer(request, spec) for request in requests)
