"""How a process comes back: a snapshot of everything durable, and the records after it."""

from __future__ import annotations

from collections.abc import Iterable

from tracker.core.cut.vectors import Vectors
from tracker.core.log import Effect, LimitsChanged, PipelineRegistered, Record
from tracker.core.log.steps import SEQUENCER
from tracker.core.membership.membership import Membership
from tracker.core.model import RefusalCode, Refused
from tracker.core.model.routing import RoutingTable
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.restore import restore_pipeline, snapshot_for_newcomer, snapshot_pipeline
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.core.process.state import LogLost
from tracker.core.process.timers import Timers
from tracker.core.replication.links import Link
from tracker.core.replication.parts import OutboxEntry


class Recovery(Timers):
    """How a process comes back."""

    def bootstrap_snapshot(self, shard: int) -> ProcessSnapshot:
        """What a shard that is joining begins with: all that this one knows of everyone, and nothing
        that is this one's own. Raises Refused while some home may let go of what comes after it."""
        known = self.membership
        if shard not in known.joining or not self.counts:
            raise Refused(
                RefusalCode.NOT_READY,
                f"shard {shard} is not joining, as far as shard {self.shard} has heard; ask again",
            )
        if self._vectors.cut[SEQUENCER] < known.joining[shard][1]:
            raise Refused(
                RefusalCode.NOT_READY,
                f"not every shard is known to keep what it logs for shard {shard}; ask again",
            )
        links = self.links.items()
        return ProcessSnapshot(
            position=0,
            home_last=0,
            next_incarnation=self._next_incarnation,
            outbox=(),
            confirmed=(),
            received=((self.shard, self._home_last), *((s, link.received) for s, link in links)),
            closed=(),
            cut=self._let_go_by(),
            pipelines=tuple(
                snapshot_for_newcomer(pipeline, self._applied())
                for pipeline in self._pipelines.values()
            ),
            membership=known.copy(),
            tables=((1, known.table),),
        )

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
            membership=self.membership.copy(),
            tables=tuple(self._tables),
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
            for pipeline in self._pipelines.values():
                pipeline.shard.takes_names = self.membership.hands_over
            self._changing = self.membership.is_busy or self.shard in self.membership.former
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
            elif isinstance(item.entry, LimitsChanged):
                self._unconfirmed_registrations[item.entry.pipeline] = (item.number, [])
        for link in self.links.values():
            link.accepted = link.received
        for pipeline in self._pipelines.values():
            self._recover_home(pipeline, now_ns)
            pipeline.moved_ns = [now_ns] * len(pipeline.said)
            pipeline.shard.mark_all_changed()
            pipeline.unreported.update(enumerate(pipeline.reached))
            self._dirty[pipeline.spec.name] = None
        self._durable_ticks.clear()
        self._handing_over_from = 0  # all that was appended has been applied
        self._out = []
        self._refresh_if_due(now_ns)
        self._after_progress(now_ns)
        self._schedule(now_ns)
        return self._out

    def _recover_home(self, pipeline: Pipeline, now_ns: int) -> None:
        closed = {key for _, name, key in self._closed_keys if name == pipeline.spec.name}
        claims = pipeline.claims()
        # One that was moved here may have left since, or have been granted what it waited for.
        pipeline.home.newest.clear()
        pipeline.home.waiting.clear()
        for node in pipeline.home.nodes.values():
            node.pending.clear()
            node.heard(now_ns)
            pipeline.home.take_up(node, claims.get(node.key.node_id, {}))
            if node.key not in closed and not node.evicted:
                pipeline.home.newest[node.key.node_id] = node.key

    def _restore_membership(self, membership: Membership) -> None:
        self.membership = membership
        others = {*membership.members, *membership.joining} - {self.shard}
        self.links = {other: Link() for other in sorted(others)}
        self._vectors = Vectors(sorted(membership.members | {self.shard}))
        for home in membership.former:
            self._vectors.add_home(home)
        self._needed_cut = dict.fromkeys(self._vectors.cut, 0)

    def _table_of(self, number: int) -> RoutingTable:
        """The table by which an entry of the home log is split."""
        return next(table for first, table in reversed(self._tables) if first <= number)

    def _restore(self, snapshot: ProcessSnapshot) -> None:
        if snapshot.membership is not None:
            self._restore_membership(snapshot.membership.copy())
            self._tables = list(snapshot.tables)
        self.committed = snapshot.position
        self._home_last = snapshot.home_last
        self._next_incarnation = snapshot.next_incarnation
        first = snapshot.home_last - len(snapshot.outbox) + 1
        for place, entry in enumerate(snapshot.outbox):
            number = first + place
            self._outbox.append(OutboxEntry(number, entry, self._table_of(number)))
        for shard, number in snapshot.confirmed:
            self.links[shard].confirmed = self.links[shard].sent = number
        for shard, number in snapshot.received:
            if shard in self.links:
                self.links[shard].received = number
        self._closed_keys.extend(snapshot.closed)
        self._need_cut(snapshot.cut)
        for saved in snapshot.pipelines:
            pipeline = restore_pipeline(saved, self._vectors, self.shard)
            self._add_pipeline(pipeline)
