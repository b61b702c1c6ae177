"""Shards that never come back: an operator declares them lost, and the others go on without them (rule 10).

The smallest shard that is left logs the declaration, `LossDeclared`. Whoever applies it takes nothing of the lost ones
any more, decides on nothing, announces nothing, and logs what it knows when all that it had appended is durable: `LossHeard`.
When all that are left have, the leader puts that together: `ShardLost`. Who applies that has applied all that the others
had logged until then, so all go on from the same pipelines, table and shards: in new generations, or standing until an
operator restarts them. What a process does next follows from what it has applied, so it goes on after a crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from tracker.core.admission.confirmations import waiting_requests
from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.admission.sessions import Sessions
from tracker.core.config import ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.log import Answer, DeclareLost, Effect, GroupKnown, MembersChanged
from tracker.core.log.journal import Journal
from tracker.core.log.losses import (
    LossDeclared,
    LossHeard,
    LossReport,
    LossStep,
    Move,
    PipelineKnown,
    ShardLost,
    ShardsKnown,
    WithoutLost,
    incarnation_after,
)
from tracker.core.log.sizes import known_bytes, pieces, placed_bytes
from tracker.core.membership.loss import Loss
from tracker.core.membership.shards import Shards
from tracker.core.model import RefusalCode, Refused
from tracker.core.model import durable as d
from tracker.core.model.levels import LOSSES
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.moving.directory import Directory
from tracker.core.pipeline.at_loss import known_at_loss
from tracker.core.pipeline.homes import losing
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.replication.replication import Replication
from tracker.core.reporting.reporter import Reporter
from tracker.core.rescaling.upgrade import check_spoken


@dataclass(slots=True, eq=False)
class Losing:
    """Declares shards lost, logs what this one knows, and applies what follows from it."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _cut: StableCut
    _replication: Replication
    _reporter: Reporter
    _nodes: Nodes
    _sessions: Sessions
    _generations: Generations
    _directory: Directory
    _config: ProcessConfig
    _effects: list[Effect]
    _declared_at: int = d.forgotten("all up to it is durable, or lost", default=0)
    """Position of the last record that was appended before the declaration was applied."""
    _requests: deque[tuple[Hashable, tuple[int, ...]]] = d.forgotten(d.ASKS_AGAIN, waiting_requests)
    """Who waits until these are lost."""

    # --- asking -----------------------------------------------------------------------------------

    def declare(self, event: DeclareLost) -> LossDeclared | None:
        """The entry to log, if this shard leads and no such declaration is under way; answers, or notes who waits. Raises
        Refused where they cannot be declared lost, or not here."""
        known, asked = self._shards.membership, {*event.shards}
        self._check(event.shards)
        if self._shards.own in asked or known.is_lost(self._shards.own):
            raise Refused(
                RefusalCode.INVALID,
                f"shard {self._shards.own} cannot be lost: it answers; ask a shard that is left",
            )
        # Without one that has logged its last, and by what is declared, durably or not.
        expected = self._shards.expected()
        declared = {*expected.lost, *(expected.loss.lost if expected.loss else ())}
        lost = tuple(sorted(declared | asked))
        leader = expected.leader_without(lost)
        if leader is None:
            raise Refused(
                RefusalCode.INVALID,
                f"no shard that counts would be left: the shards are {sorted(expected.members)}; restore the store of one of them, or "
                "begin with an empty tracker",
            )
        if leader != self._shards.own:
            raise Refused(
                RefusalCode.NOT_HOME,
                f"shards {sorted(asked)} are declared lost by the smallest shard that is left, shard {leader}",
                home=leader,
            )
        if known.loss is None and asked <= known.lost.keys():
            self._effects.append(Answer(event.request, self._report(known.lost)))
            return None
        if known.level < LOSSES:
            # One that joins goes along, and the sequencer that would give it up may be lost.
            left, links = expected.members - {*lost}, self._replication.links
            check_spoken(LOSSES, self._shards, {s: links[s] for s in left & links.keys()})
        self._requests.append((event.request, tuple(sorted(asked))))
        if asked <= declared:
            return None
        return LossDeclared(lost, event.write_off, event.at_ms)

    def _check(self, asked: Sequence[int]) -> None:
        known = self._shards.membership
        for shard in asked:
            last = known.former.get(shard)
            waited_for = last is not None and self._cut.vectors.behind(shard, last)
            if not (shard in known.members or waited_for or known.is_lost(shard)):
                raise Refused(
                    RefusalCode.INVALID,
                    f"shard {shard} is none that is waited for; the shards are {sorted(known.members)}",
                )
            link = self._replication.links.get(shard)
            if link is not None and link.connected and not known.is_lost(shard):
                raise Refused(
                    RefusalCode.CONFLICT,
                    f"shard {shard} is connected to shard {self._shards.own}, so it is not lost: end its process first, or "
                    "let it go with `lowmark shards N --without`",
                )
        if not asked:
            raise Refused(RefusalCode.INVALID, "name the shards that are lost")

    def _report(self, lost: Iterable[int]) -> LossReport:
        """What stands since shards were lost, for one who asks again."""
        standing = (p for p in self._pipelines.values() if p.held is not None)
        return LossReport(tuple(sorted(lost)), False, tuple(known_at_loss(p, ()) for p in standing))

    # --- going on ---------------------------------------------------------------------------------

    def next_steps(self) -> list[LossStep]:
        """What this shard has to log now; also one that joins, and that others may count by the log of a lost one."""
        known = self._shards.membership
        loss = known.loss
        own = self._shards.own
        if loss is None or own in loss.lost or not (self._shards.counts or own in known.joining):
            return []
        if own not in loss.heard:
            if self._journal.committed < self._declared_at:
                return []
            return [*self._what_is_known(loss)]
        if own == loss.leader and known.members - {*loss.lost} <= loss.heard.keys():
            for group in self._directory.groups.values():  # of which another one may lack the entry
                self._journal.append_home(GroupKnown(group))
            return [*self._what_is_left(loss)]
        return []

    def restored(self) -> None:
        """Recovery has applied all that was appended."""
        self._declared_at = 0

    def _what_is_known(self, loss: Loss) -> Iterator[LossHeard]:
        known = self._shards.membership
        told = (
            known_at_loss(pipeline, loss.lost, is_counted=known.is_settled_in(self._shards.own))
            for pipeline in self._pipelines.values()
        )
        for some in pieces(told, known_bytes, self._config.max_bytes_per_move):
            yield LossHeard(loss.lost, some)
        placed = self._directory.placements.values()
        for places in pieces(placed, placed_bytes, self._config.max_bytes_per_move):
            yield LossHeard(loss.lost, placed=places)
        links = self._replication.links
        former = known.former | {s: links[s].received for s in links if s in known.members}
        ended = tuple((each.pipeline, each.generation) for each in self._pipelines.ended.values())
        yield LossHeard(
            loss.lost,
            (),
            ended,
            ShardsKnown(
                tuple(sorted(known.members)),
                tuple(former.items()),
                max(known.next_shard, self._shards.own + 1),
                max((known.table.version, *known.adopted)),
                known.moves,
                self._nodes.next_incarnation,
                tuple(known.moving.values()),
                known.moved,
            ),
        )

    def _what_is_left(self, loss: Loss) -> Iterator[ShardLost]:
        """How all go on. A shard that not every one of those that are left counts goes, too: it has just joined, or left."""
        known = self._shards.membership
        heard = {home: shards for home, (_, shards) in loss.heard.items()}
        members = {*heard} - {*loss.lost}
        for shards in heard.values():
            members &= {*shards.members}
        former = dict(known.former)
        for shards in heard.values():
            for shard, number in shards.former:
                former[shard] = max(number, former.get(shard, 0))
        counted = {shard for shards in heard.values() for shard in shards.members}
        lost = {*loss.lost, *known.lost} | (counted - members - known.former.keys())
        owning = tuple(shard for shard in known.table.shards if shard in members)
        rule = RoutingRule(
            LOWEST_SLOT, known.table.entries[-1].block_slots, owning or tuple(sorted(members))
        )
        table = RoutingTable([rule], version=max(s.version for s in heard.values()) + 1)
        for some in pieces(loss.settled_pipelines(), known_bytes, self._config.max_bytes_per_move):
            yield ShardLost(loss.lost, some)
        for places in pieces(loss.placed.values(), placed_bytes, self._config.max_bytes_per_move):
            yield ShardLost(loss.lost, placed=places)
        yield ShardLost(
            loss.lost,
            (),
            tuple(loss.ended.items()),
            WithoutLost(
                tuple(sorted(lost)),
                tuple((s, last) for s, last in former.items() if s not in members | lost),
                tuple(sorted(members)),
                tuple(sorted(known.draining & members - {*table.shards})),
                table,
                max(s.next_shard for s in heard.values()),
                max(s.moves for s in heard.values()) + 1,
                incarnation_after(max(s.next_incarnation for s in heard.values()), loss.lost),
                tuple(
                    (home, number) for home, (number, _) in loss.heard.items() if home in members
                ),
                tuple(_moving([*heard.values()], members, lost - known.lost.keys())),
                max(s.moved for s in heard.values()),
            ),
        )

    # --- applying ---------------------------------------------------------------------------------

    def before(self, entry: LossStep, now_ns: int) -> None:
        """What an entry changes before the membership is another one by it."""
        loss = self._shards.membership.loss
        if not isinstance(entry, ShardLost) or loss is None or loss.lost != entry.lost:
            return
        self._directory.take(entry.placed)
        for name, generation in entry.ended:
            assert entry.shards is not None
            still_moves = any(move.pipeline == name for move in entry.shards.moving)
            self._generations.end_before(
                name, generation, entry.shards.next_shard, still_moves=still_moves
            )
            self._directory.let_go(name)
        for known in entry.pipelines:
            self._generations.go_on_after_loss(known, loss.declared, loss.leader, now_ns)

    def after(self, entry: LossStep, loss: Loss | None, home: int, number: int) -> None:
        """What it changes when the membership is another one. loss: what was under way before."""
        known = self._shards.membership
        if isinstance(entry, LossDeclared) and known.loss is not loss:
            self._stop(entry)
        elif isinstance(entry, LossHeard):
            self._ask_again()
        elif isinstance(entry, ShardLost) and loss is not None and known.loss is None:
            assert entry.shards is not None
            self._go_on(entry.shards, loss, home, number)

    def _stop(self, entry: LossDeclared) -> None:
        """Nothing is taken any more: of the lost ones for good, of others until all go on."""
        self._declared_at = self._journal.position
        for shard in entry.lost:
            if shard in self._replication.links:
                self._replication.links[shard].connected = False
        for name in self._pipelines:
            self._sessions.end_all(name, losing(f"pipeline {name!r}", entry.lost))
        self._ask_again()

    def _ask_again(self) -> None:
        """What others log may name what only a lost shard's log has, or follow on what has come by now."""
        for shard, link in self._replication.links.items():
            if link.awaits:
                self._replication.ask_again(shard)

    def _go_on(self, left: WithoutLost, loss: Loss, home: int, number: int) -> None:
        known = self._shards.membership
        gone = {*known.lost, *known.former} | self._replication.links.keys() - {*left.members}
        for shard in gone - {self._shards.own}:
            if shard in known.lost:
                self._cut.vectors.lose_home(shard)
            elif shard in known.former:
                self._cut.vectors.add_home(shard)
            self._cut.vectors.remove_shard(shard)
            for pipeline in self._pipelines.values():
                pipeline.combiner.remove_shard(shard)
            if shard in self._replication.links:
                self._replication.close_link(shard)
                self._effects.append(MembersChanged(shard, None))
        for name in self._pipelines:
            self._pipelines.change_everywhere(name, known.members)
        self._replication.split_by(left.table, self._journal.home_last + 1)
        self._nodes.reserve(left.next_incarnation)
        self._cut.need([(home, number)])
        self._pipelines.mark(*self._pipelines)
        self._answer(loss)

    def _answer(self, loss: Loss) -> None:
        known: tuple[PipelineKnown, ...] = tuple(loss.settled_pipelines())
        report = LossReport(loss.lost, loss.declared.write_off, known)
        waiting, self._requests = self._requests, waiting_requests()
        for request, asked in waiting:
            if {*asked} <= {*loss.lost}:
                self._effects.append(Answer(request, report))
            else:  # the declaration that has its shards is behind this one
                self._requests.append((request, asked))


def _moving(heard: Sequence[ShardsKnown], members: Set[int], lost: Set[int]) -> Iterator[Move]:
    """The moves that are under way, by what all that are left know, each with those of its shards that are lost by now: one that
    any knows to have ended is over."""
    numbers = {move.number for shards in heard for move in shards.moving}
    for number in sorted(numbers):
        there = [[m for m in shards.moving if m.number == number] for shards in heard]
        if any(not m and shards.moved >= number for m, shards in zip(there, heard, strict=True)):
            continue
        known = [move for moves in there for move in moves]
        ready = {shard for move in known for shard in move.ready} & members
        gone = lost | {shard for move in known for shard in move.lost}
        yield replace(known[0], ready=tuple(sorted(ready)), lost=tuple(sorted(gone)))
