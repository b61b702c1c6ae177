"""How a process comes back: a snapshot of everything durable, and the records after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracker.core.admission.confirmations import Confirmations
from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.cut.stable import StableCut
from tracker.core.log import Effect, PipelineReport, Record
from tracker.core.log.journal import Journal
from tracker.core.membership.shards import Shards
from tracker.core.model import RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.moving.directory import Directory
from tracker.core.moving.moves import Moves
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.pipeline.snapshot import restore_pipeline, snapshot_pipeline
from tracker.core.process.applier import LogApplier
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.core.replication.lost import LogLost
from tracker.core.replication.replication import Replication
from tracker.core.rescaling.rescaling import Rescaling


@dataclass(slots=True, eq=False)
class Recovery:
    """Turns the components into a snapshot, and a snapshot and records into them."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _confirmations: Confirmations
    _nodes: Nodes
    _sessions: Sessions
    _rescaling: Rescaling
    _generations: Generations
    _moves: Moves
    _directory: Directory
    _applier: LogApplier
    _effects: list[Effect]
    _bootstraps: dict[int, dict[int, int]] = d.forgotten("it is asked again", dict)
    """By shard that joins, what all others had logged when they were first known to keep their logs for it, or later."""

    def _logged(self) -> dict[int, int]:
        """By home what is known to be in its log."""
        vectors = self._cut.vectors
        return {home: vectors.vector(home).get(home, 0) for home in vectors.shards}

    def bootstrap_snapshot(self, shard: int) -> ProcessSnapshot:
        """What a shard that is joining begins with: all that this one knows of everyone, and nothing
        that is this one's own. Raises Refused while some home may let go of what comes after it, and while this one may still
        forget a pin: it would pin the front anew, lower, and what the newcomer keeps would count as a promise that was
        never given."""
        known = self._shards.membership
        if shard not in known.joining or not self._shards.counts:
            raise Refused(
                RefusalCode.NOT_READY,
                f"shard {shard} is not joining, as far as shard {self._shards.own} has heard; ask again",
            )
        # The sequencer that has said so, since its role moves when nobody joins.
        if self._cut.vectors.cut[known.sequencer] < known.joining[shard][1]:
            raise Refused(
                RefusalCode.NOT_READY,
                f"not every shard is known to keep what it logs for shard {shard}; ask again",
            )
        # Of what ended before each of them heard that another one is to come, that one begins with nothing.
        self._bootstraps = {s: n for s, n in self._bootstraps.items() if s in known.joining}
        needed = self._bootstraps.setdefault(shard, self._logged())
        if any(self._replication.applied().get(home, 0) < last for home, last in needed.items()):
            raise Refused(
                RefusalCode.NOT_READY,
                f"shard {self._shards.own} lacks some of what others had logged before shard {shard} was to come; ask again",
            )
        if self._journal.has_pending_pins():
            raise Refused(
                RefusalCode.NOT_READY,
                f"shard {shard} cannot begin with what shard {self._shards.own} knows, whose last pins are not durable yet; ask again",
            )
        links = self._replication.links.items()
        held = (
            (self._shards.own, self._journal.home_last),
            *((s, link.received) for s, link in links),
        )
        return self._snapshot(
            for_newcomer=True,
            received=held,
            tables=((1, known.table),),
        )

    def snapshot(self) -> ProcessSnapshot:
        """Everything durable, as of the record at `committed`."""
        outbox = tuple(item.entry for item in self._replication.outbox)
        return self._snapshot(for_newcomer=False, outbox=outbox)

    def _snapshot(self, *, for_newcomer: bool, **beside: Any) -> ProcessSnapshot:
        durable: dict[str, Any] = {
            "outbox": (),
            "cut": self._cut.let_go_by(),
            "pipelines": tuple(
                snapshot_pipeline(pipeline, self._replication.applied(), for_newcomer=for_newcomer)
                for pipeline in self._pipelines.values()
            ),
        }
        for component in (
            self._shards, self._journal, self._nodes, self._replication, self._pipelines,
            self._moves, self._directory,
        ):  # fmt: skip
            durable |= d.saved(component, for_newcomer=for_newcomer)
        return ProcessSnapshot(**(durable | beside))

    def recover(
        self,
        snapshot: ProcessSnapshot | None,
        records: Iterable[tuple[int, Record]],
        now_ns: int,
        level: int = 0,
    ) -> None:
        """Brings everything to what the log says: a snapshot, then the records after it, by position. level: as
        `Process.recover` has it."""
        if level:
            self._shards.membership.level = level
        if snapshot is not None:
            self._restore(snapshot)
            for pipeline in self._pipelines.values():
                pipeline.shard.takes_names = self._shards.membership.hands_over
            self._shards.record_change()
        for position, record in records:
            if position <= self._journal.committed:
                continue
            if position != self._journal.committed + 1:
                raise LogLost(
                    f"the log of shard {self._shards.own} goes from record {self._journal.committed} to "
                    f"{position}: records between them are missing from the store"
                )
            self._applier.apply(record, now_ns)
            self._effects.clear()
            self._journal.replayed(position)
        self._journal.restored()
        self._confirmations.restore()
        for link in self._replication.links.values():
            link.accepted = link.received
        for pipeline in self._pipelines.values():
            self._generations.take_up(pipeline, now_ns)
        self._moves.settle()
        self._sessions.forget_durable_ticks()
        self._rescaling.restored()
        self._effects.clear()

    def _restore(self, snapshot: ProcessSnapshot) -> None:
        if snapshot.membership is not None:
            d.restore(self._shards, snapshot)
            known = self._shards.membership
            self._replication.restore_links(sorted(known.with_newcomers - {self._shards.own}))
            shards = sorted(known.members | {self._shards.own})
            self._cut.restore(shards, known.former, known.lost)
        for component in (
            self._journal, self._nodes, self._replication, self._pipelines, self._moves, self._directory,
        ):  # fmt: skip
            d.restore(component, snapshot)
        self._replication.restore_outbox(snapshot.outbox)
        self._cut.need(snapshot.cut)
        for each in snapshot.pipelines:
            pipeline = restore_pipeline(each, self._cut.vectors, self._shards.own)
            told = PipelineReport(each.spec.name, runs=each.runs)
            pipeline.combiner.take(self._shards.own, told, whole=False)
            self._pipelines.add(pipeline)
