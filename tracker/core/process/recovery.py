"""How a process comes back: a snapshot of everything durable, and the records after it."""

from __future__ import annotations

from collections.abc import Iterable

from tracker.core.messages import Effect, PipelineRegistered, Record
from tracker.core.parts import OutboxEntry
from tracker.core.pipeline import Pipeline
from tracker.core.process.state import LogLost
from tracker.core.process.timers import Timers
from tracker.core.restore import restore_pipeline, snapshot_pipeline
from tracker.core.snapshot import ProcessSnapshot


class Recovery(Timers):
    """How a process comes back."""

    def snapshot(self) -> ProcessSnapshot:
        """Everything durable, as of the record at `committed`."""
        return ProcessSnapshot(
            position=self.committed,
            home_last=self._home_last,
            next_incarnation=self._next_incarnation,
            outbox=tuple(item.entry for item in self._outbox),
            confirmed=tuple((shard, link.confirmed) for shard, link in self.links.items()),
            received=tuple((shard, link.received) for shard, link in self.links.items()),
            closed=tuple(self._closed_keys),
            cut=self._let_go_by(),
            pipelines=tuple(
                snapshot_pipeline(pipeline, self._applied())
                for pipeline in self._pipelines.values()
            ),
        )

    def recover(
        self,
        snapshot: ProcessSnapshot | None,
        records: Iterable[tuple[int, Record]],
        now_ns: int,
    ) -> list[Effect]:
        """Becomes what the log says: a snapshot, then the records after it, by position. To be
        called once, before any event. Nothing is announced that was not announced before until the
        other shards have been heard."""
        if snapshot is not None:
            self._restore(snapshot)
        for position, record in records:
            if position <= self.committed:
                continue
            if position != self.committed + 1:
                raise LogLost(
                    f"the log of shard {self.shard} goes from record {self.committed} to "
                    f"{position}: records between them are missing from the store"
                )
            self._apply(record, now_ns)
            self._out.clear()
            self.committed = position
        self.position = self.committed
        self._home_appended = self._home_last
        for item in self._outbox:
            if isinstance(item.entry, PipelineRegistered):
                self._unconfirmed_registrations[item.entry.spec.name] = (item.number, [])
        for link in self.links.values():
            link.accepted = link.received
        for pipeline in self._pipelines.values():
            self._recover_home(pipeline, now_ns)
            pipeline.moved_ns = [now_ns] * len(pipeline.said)
            pipeline.shard.mark_all_changed()
            pipeline.unreported.update(enumerate(pipeline.reached))
            self._dirty[pipeline.spec.name] = None
        self._durable_ticks.clear()
        self._out = []
        self._refresh_if_due(now_ns)
        self._after_progress(now_ns)
        self._schedule(now_ns)
        return self._out

    def _recover_home(self, pipeline: Pipeline, now_ns: int) -> None:
        closed = {key for _, name, key in self._closed_keys if name == pipeline.spec.name}
        for node in pipeline.home.nodes.values():
            node.pending.clear()
            node.last_heard_ns = now_ns
            node.ungranted = {}
            node.fronts = {
                front: (
                    state.segment,
                    state.heartbeat if state.promised is not None else -(2**63),
                )
                for (node_id, front), state in pipeline.shard.fronts.items()
                if node_id == node.key.node_id
            }
            if node.key not in closed and not node.evicted:
                pipeline.home.newest[node.key.node_id] = node.key

    def _restore(self, snapshot: ProcessSnapshot) -> None:
        self.committed = snapshot.position
        self._home_last = snapshot.home_last
        self._next_incarnation = snapshot.next_incarnation
        first = snapshot.home_last - len(snapshot.outbox) + 1
        for place, entry in enumerate(snapshot.outbox):
            self._outbox.append(OutboxEntry(first + place, entry, self.routing))
        for shard, number in snapshot.confirmed:
            self.links[shard].confirmed = self.links[shard].sent = number
        for shard, number in snapshot.received:
            self.links[shard].received = number
        self._closed_keys.extend(snapshot.closed)
        self._needed_cut.update(snapshot.cut)
        for saved in snapshot.pipelines:
            pipeline = restore_pipeline(saved, self._vectors, self.shard)
            self._add_pipeline(pipeline)
