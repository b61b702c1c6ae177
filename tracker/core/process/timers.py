"""What is due by itself: sending again, reports without news, silent fronts, the next wake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tracker.core.home.home import HomeNode
from tracker.core.log import WakeAt
from tracker.core.model import FrontPolicy, PipelineSpec, SilentFront
from tracker.core.process.changing import Changing
from tracker.core.process.state import _MS
from tracker.core.shard.vacancies import MAX_VACANCIES

_LATE_WAKE = 2
"""So many times as long as asked for between two events: the process was paused."""
_SLOW_STORE = 5
"""Nothing has become durable for so many checks: the store stands."""


class Timers(Changing):
    """What is due by itself."""

    def _wake(self, now_ns: int) -> None:
        retransmit_ns = self.config.retransmit_ms * _MS
        for shard, link in self.links.items():
            if link.sent > link.confirmed and now_ns - link.progress_ns >= retransmit_ns:
                link.restart_sending(now_ns)
                self._pump(shard, now_ns)
            if link.connected and link.needs_whole:
                self._want_report(shard, now_ns)
        if self.links and now_ns - self._last_report_ns >= retransmit_ns:
            self._refresh(now_ns)
        if self._announced_due_ns is not None and now_ns >= self._announced_due_ns:
            self._announced_due_ns = None
            for name, pipeline in self._pipelines.items():
                if pipeline.unreported:
                    pipeline.announced_due = True
                    self._dirty[name] = None
        if self._evict_check_ns is None or now_ns >= self._evict_check_ns:
            self._evict_silent(now_ns)

    def _listen(self, now_ns: int) -> None:
        """Notes that until now nodes may have spoken and were not heard: where this process was paused,
        which it sees by a wake that came late or by what came before it; where it has stopped reading
        ticks. What had come by then is handled behind this event."""
        before, self._handled_ns = self._handled_ns, now_ns
        most_ns = _LATE_WAKE * self.config.evict_check_ms * _MS
        if before is None or now_ns - before > most_ns or not self.takes_ticks:
            self._deaf_until_ns = now_ns

    def _store_stands(self, now_ns: int) -> bool:
        """Whether nothing has become durable for some time that should have: then nobody can join."""
        position, since_ns = self._store_mark
        if self.committed >= position:
            self._store_mark = self.position, now_ns
            return False
        return now_ns - since_ns > _SLOW_STORE * self.config.evict_check_ms * _MS

    def _evict_silent(self, now_ns: int) -> None:
        """Closes the keys of nodes whose fronts have been silent for too long, where the pipeline
        says so (rule 8), and were so when this was looked at before: in between, all that had arrived
        was handled."""
        before_ns, self._evict_checked_ns = self._evict_checked_ns, now_ns
        self._evict_check_ns = now_ns + self.config.evict_check_ms * _MS
        if not self.takes_up_nodes or self._store_stands(now_ns):
            # Some shard may still have to hear what a node's home before said of it; nobody can join.
            self._deaf_until_ns = now_ns
        could_hear = before_ns is not None and self._deaf_until_ns <= before_ns
        for name in self._evicting:
            pipeline = self._pipelines[name]
            policies = {policy.front: policy for policy in pipeline.spec.front_policies}
            for node in list(pipeline.home.nodes.values()):
                if could_hear:
                    node.silent_ns += now_ns - max(before_ns or 0, node.last_alive_ns)
                limit_ms = _evict_after_ms(pipeline.spec, policies, node.fronts)
                was_suspected = node.suspected
                node.suspected = limit_ms is not None and self._is_silent(node, limit_ms, now_ns)
                if (
                    node.suspected
                    and was_suspected
                    and self.routing.home(name, node.key.node_id) == self.shard
                    and len(pipeline.shard.vacancies) < MAX_VACANCIES
                    and pipeline.home.newest.get(node.key.node_id) == node.key
                ):
                    del pipeline.home.newest[node.key.node_id]
                    self._close_key(name, node.key, evicted=True)

    def _is_silent(self, node: HomeNode, limit_ms: int, now_ns: int) -> bool:
        """Whether a node has said nothing for longer than it may, in time in which it would have been
        heard. What it said while it was not heard comes late, so one that is deaf now and then listens
        again for some time before it judges; but not for as long as a node may be silent, since then a node
        that may be silent for minutes would be let off by each stall. Whoever waits for a grant waits for the
        shards; whoever has no stream may still be on the way back to a process that could not be reached."""
        if node.waits_for_grant:
            node.lives(now_ns)
        reconnect_ms = self.config.reconnect_ms
        listens_ms = min(limit_ms, reconnect_ms) + (reconnect_ms if node.session is None else 0)
        listened_ns = now_ns - self._deaf_until_ns
        return node.silent_ns > limit_ms * _MS and listened_ns > listens_ms * _MS

    def _schedule(self, now_ns: int) -> None:
        """Asks to be woken for what is due first."""
        retransmit_ns = self.config.retransmit_ms * _MS
        due = [self._refresh_due(now_ns)] if self._dirty or self._step_untold else []
        if self._announced_due_ns is not None:
            due.append(self._announced_due_ns)
        if self.links:
            due.append(self._last_report_ns + retransmit_ns)
            for link in self.links.values():
                if link.sent > link.confirmed:
                    due.append(link.progress_ns + retransmit_ns)
                if link.needs_whole and link.connected:
                    due.append((link.wanted_ns or now_ns) + retransmit_ns)
        if self._evicting:
            due.append(self._evict_check_ns or now_ns + self.config.evict_check_ms * _MS)
        if due:
            first = min(due)
            if self._wake_ns is None or first < self._wake_ns:
                self._wake_ns = first
                self._out.append(WakeAt(first))


def _evict_after_ms(
    spec: PipelineSpec, policies: Mapping[str, FrontPolicy], fronts: Iterable[str]
) -> int | None:
    """How long a node with these fronts may be silent; None: for ever. Its fronts stand and fall with its
    key, so the most patient of them decides."""
    rule = FrontPolicy("", spec.silent_front, spec.evict_after_ms)
    found = [policies.get(front, rule) for front in fronts]
    if not found or any(policy.silent_front is SilentFront.HOLD for policy in found):
        return None
    return max(policy.evict_after_ms for policy in found)
