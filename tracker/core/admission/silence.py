"""Fronts that have been silent for too long are evicted, where the pipeline says so (rule 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracker.core.admission.nodes import Nodes
from tracker.core.config import MS, ProcessConfig
from tracker.core.home.home import HomeNode
from tracker.core.log import KeyClosed
from tracker.core.log.journal import Journal
from tracker.core.membership.shards import Shards
from tracker.core.model import FrontPolicy, PipelineSpec, SilentFront
from tracker.core.model import durable as d
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.shard.vacancies import MAX_VACANCIES

_LATE_WAKE = 2
"""So many times as long as asked for between two events: the process was paused."""
_SLOW_STORE = 5
"""Nothing has become durable for so many checks: the store stands."""


@dataclass(slots=True, eq=False)
class Silence:
    """Measures silence in time in which nodes could be heard. Not durable: after a restart, silence begins anew."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _homes: Homes
    _nodes: Nodes
    _config: ProcessConfig
    check_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """When silent fronts are looked for next."""
    _checked_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """When they were looked for last."""
    _handled_ns: int | None = d.forgotten(d.A_MOMENT, default=None)
    """When the last event was handled, where some pipeline evicts silent fronts."""
    _deaf_until_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """Until when nodes may have spoken and were not heard."""
    _store_mark: tuple[int, int] = d.forgotten(d.A_MOMENT, default=(0, 0))
    """A position and when it was appended: where it is not durable for long, the store stands."""

    def listen(self, now_ns: int, takes_ticks: bool) -> None:
        """Notes that until now nodes may have spoken and were not heard: where this process was paused,
        which it sees by a wake that came late or by what came before it; where it has stopped reading
        ticks. What had come by then is handled behind this event."""
        before, self._handled_ns = self._handled_ns, now_ns
        most_ns = _LATE_WAKE * self._config.evict_check_ms * MS
        if before is None or now_ns - before > most_ns or not takes_ticks:
            self.begin_anew(now_ns)

    def begin_anew(self, now_ns: int) -> None:
        """Until now nodes could not be heard: they are listened to from here on before any is judged."""
        self._deaf_until_ns = now_ns

    def _store_stands(self, now_ns: int) -> bool:
        """Whether nothing has become durable for some time that should have: then nobody can join."""
        position, since_ns = self._store_mark
        if self._journal.committed >= position:
            self._store_mark = self._journal.position, now_ns
            return False
        return now_ns - since_ns > _SLOW_STORE * self._config.evict_check_ms * MS

    def evict(self, now_ns: int) -> None:
        """Closes the keys of nodes whose fronts have been silent for too long, where the pipeline
        says so (rule 8), and were so when this was looked at before: in between, all that had arrived
        was handled."""
        before_ns, self._checked_ns = self._checked_ns, now_ns
        self.check_ns = now_ns + self._config.evict_check_ms * MS
        if not self._homes.takes_up_nodes or self._store_stands(now_ns):
            # Some shard may still have to hear what a node's former home logged of it; nobody can join.
            self.begin_anew(now_ns)
        could_hear = before_ns is not None and self._deaf_until_ns <= before_ns
        for name in self._pipelines.evicting:
            pipeline = self._pipelines[name]
            if pipeline.held is not None or name in self._shards.membership.moving:
                continue
            if name in self._pipelines.changing:
                continue  # whoever changes it is answered before an eviction would be durable
            policies = {policy.front: policy for policy in pipeline.spec.front_policies}
            room: int | None = None
            for node in list(pipeline.home.nodes.values()):
                if could_hear:
                    node.silent_ns += now_ns - max(before_ns or 0, node.last_alive_ns)
                limit_ms = _evict_after_ms(pipeline.spec, policies, node.fronts)
                was_suspected = node.suspected
                node.suspected = limit_ms is not None and self._is_silent(node, limit_ms, now_ns)
                if (
                    node.suspected
                    and was_suspected
                    and self._shards.routing.home(name, node.key.node_id) == self._shards.own
                    and pipeline.home.newest.get(node.key.node_id) == node.key
                ):
                    room = self._room_for_places(pipeline) if room is None else room
                    if len(node.fronts) > room:
                        continue
                    room -= len(node.fronts)
                    del pipeline.home.newest[node.key.node_id]
                    self._nodes.close_key(name, node.key, evicted=True)

    def _room_for_places(self, pipeline: Pipeline) -> int:
        """How many more places may be vacant, beside those that will be by evictions which are not durable yet."""
        closing = self._journal.pending_of(KeyClosed, pipeline.spec.name)
        nodes = pipeline.home.nodes
        coming = (nodes.get(entry.key.node_id) for entry in closing if entry.keeps_places)
        there = sum(len(node.fronts) for node in coming if node is not None)
        return MAX_VACANCIES - len(pipeline.shard.vacancies) - there

    def _is_silent(self, node: HomeNode, limit_ms: int, now_ns: int) -> bool:
        """Whether a node was not heard for longer than it may be, in time in which it would have been
        heard. What it sent while it was not heard comes late, so one that is deaf now and then listens
        again for some time before it judges; but not for as long as a node may be silent, since then a node
        that may be silent for minutes would be let off by each stall. Whoever waits for a grant waits for the
        shards; whoever has no stream may still be on the way back to a process that could not be reached."""
        if node.waits_for_grant:
            node.lives(now_ns)
        reconnect_ms = self._config.reconnect_ms
        listens_ms = min(limit_ms, reconnect_ms) + (reconnect_ms if node.session is None else 0)
        listened_ns = now_ns - self._deaf_until_ns
        return node.silent_ns > limit_ms * MS and listened_ns > listens_ms * MS


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
