"""What is due by itself: sending again, reports without news, silent fronts, the next wake."""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core.admission.silence import Silence
from tracker.core.config import MS, ProcessConfig
from tracker.core.log import Effect, WakeAt
from tracker.core.model import durable as d
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter


@dataclass(slots=True, eq=False)
class Timers:
    """When the process wants to be woken, and what it does then. Not durable."""

    _pipelines: Pipelines
    _replication: Replication
    _reporter: Reporter
    _silence: Silence
    _config: ProcessConfig
    _effects: list[Effect]
    _wake_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """When the process will be woken at the latest."""

    def wake(self, now_ns: int) -> None:
        """Does what is due by now."""
        self._wake_ns = None
        retransmit_ns = self._config.retransmit_ms * MS
        for shard, link in self._replication.links.items():
            if link.sent > link.confirmed and now_ns - link.progress_ns >= retransmit_ns:
                link.restart_sending(now_ns)
                self._replication.pump(shard, now_ns)
            # It may have said of which release it is before this side's connection to it was there.
            if link.connected and (link.needs_whole or not link.speaks):
                self._reporter.want_report(shard, now_ns)
        if self._replication.links and now_ns - self._reporter.last_report_ns >= retransmit_ns:
            # Beside the report, since one that was lost would leave the other side without what it says of the release.
            self._replication.confirm_again()
            self._reporter.refresh(now_ns)
        self._reporter.tell_announced_due(now_ns)
        if self._silence.check_ns is None or now_ns >= self._silence.check_ns:
            self._silence.evict(now_ns)

    def schedule(self, now_ns: int, refresh_ns: int | None) -> None:
        """Asks to be woken for what is due first. refresh_ns: when a report or an announcement is due; None
        where there is nothing to tell."""
        retransmit_ns = self._config.retransmit_ms * MS
        due = [] if refresh_ns is None else [refresh_ns]
        if self._reporter.announced_due_ns is not None:
            due.append(self._reporter.announced_due_ns)
        # What a link is due from here on is no sooner than that: else the wake that is asked for comes first.
        is_late = self._wake_ns is None or self._wake_ns > now_ns + retransmit_ns
        if self._replication.links and is_late:
            due.append(self._reporter.last_report_ns + retransmit_ns)
            for link in self._replication.links.values():
                if link.sent > link.confirmed:
                    due.append(link.progress_ns + retransmit_ns)
                if link.needs_whole and link.connected:
                    due.append((link.wanted_ns or now_ns) + retransmit_ns)
        if self._pipelines.evicting:
            due.append(self._silence.check_ns or now_ns + self._config.evict_check_ms * MS)
        if due:
            first = min(due)
            if self._wake_ns is None or first < self._wake_ns:
                self._wake_ns = first
                self._effects.append(WakeAt(first))
