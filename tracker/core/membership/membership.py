"""Which shards there are, by which table, and how far a change has come (rule 10).

What one process knows of it is a function of the home log entries that it has applied, so it comes back
with them. Entries of different homes may arrive in any order: what homes say of a version is kept by
version, also before the version itself has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from tracker.core.log import GroupKnown, KeyDropped, PipelinesOver, Placed, Told, losses, steps
from tracker.core.membership.loss import Loss
from tracker.core.model.levels import LOSSES, OLDEST_LEVEL
from tracker.core.model.routing import RoutingTable

_ALWAYS_COUNT = losses.LossStep | PipelinesOver | KeyDropped | Placed | GroupKnown
"""Entries of a loss itself, and those that are of no generation: they count also where others are passed over."""


@dataclass(slots=True)
class Membership:
    """The shards and their table, as one process knows them."""

    table: RoutingTable
    members: set[int]
    """Shards that count in the stable cut. The own shard is one when it has heard that it is."""
    previous: RoutingTable | None = None
    """The table before, while some shard may have more to hand over."""
    next_shard: int = 0
    """No number is given twice: it names a home log for ever."""
    joining: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Shards that are to come: the address, and the number of the sequencer's entry."""
    addresses: dict[int, str] = field(default_factory=dict)
    """Of shards that came later, as they reported when they did."""
    former: dict[int, int] = field(default_factory=dict)
    """Shards that have left: the last number of each one's home log."""
    asked: steps.RescaleProposed | None = None
    highest: dict[int, steps.SlotBounds] = field(default_factory=dict)
    adopted: dict[int, dict[int, int]] = field(default_factory=dict)
    """By version and home, the number of the entry by which it adopted the version."""
    done: dict[int, set[int]] = field(default_factory=dict)
    draining: set[int] = field(default_factory=set)
    """Shards that are to go, while they own older slots."""
    leaving: int | None = None
    sequencer: int = steps.FIRST_SEQUENCER
    """The shard that decides on the steps, or is to when it has begun to. Invariant: it is a member."""
    moves: int = 0
    """How often its role has moved."""
    begun: int = 0
    """By which of the moves the sequencer has begun to decide. Invariant: begun is `moves`, or one less."""
    level: int = OLDEST_LEVEL
    """The feature level by which this process records and sends. It never falls."""
    lost: dict[int, int] = field(default_factory=dict)
    """Shards that were declared lost, and those that nobody counts any more since then: when, in unix time. Of their logs
    nothing more is taken, and each of the others has as much of them as it had heard."""
    loss: Loss | None = None
    """A declaration that is under way: nothing is decided or announced before it is over."""
    moved: int = 0
    """How many moves of pipelines have begun."""
    moving: dict[str, losses.Move] = field(default_factory=dict)
    """By name, pipelines that go to other groups, or come from them. While any does, no shard comes or goes, but by a loss."""

    @classmethod
    def first(cls, table: RoutingTable, level: int) -> Membership:
        """The shards that a tracker begins with, and the feature level of the release that begins it."""
        shards = set(table.owning)
        return cls(table, shards, next_shard=max(shards) + 1, level=level)

    def copy(self) -> Membership:
        """The same, for a snapshot: what comes later does not change it."""
        return replace(
            self,
            members=set(self.members),
            joining=dict(self.joining),
            addresses=dict(self.addresses),
            former=dict(self.former),
            highest=dict(self.highest),
            adopted={version: dict(homes) for version, homes in self.adopted.items()},
            done={version: set(shards) for version, shards in self.done.items()},
            draining=set(self.draining),
            lost=dict(self.lost),
            loss=None if self.loss is None else self.loss.copy(),
            moving=dict(self.moving),
        )

    def apply(self, entry: steps.MembershipStep, home: int, number: int) -> None:
        """Takes entry `number` of a home's log."""
        if self.passes_over(entry, home, number):
            return
        match entry:
            case steps.ShardJoining():
                self.joining[entry.shard] = (entry.address, number)
                self.addresses[entry.shard] = entry.address
                self.next_shard = max(self.next_shard, entry.shard + 1)
            case steps.ShardJoined():
                self.joining.pop(entry.shard, None)
                self.members.add(entry.shard)
                # It comes when nothing is under way, so it has nothing to adopt or to hand over.
                self.adopted.setdefault(self.table.version, {})[entry.shard] = 0
                self.done.setdefault(self.table.version, set()).add(entry.shard)
            case steps.ShardRemoved():
                self.joining.pop(entry.shard, None)
                self.addresses.pop(entry.shard, None)
            case steps.RescaleProposed():
                self.asked, self.highest = entry, {}
            case steps.SlotBounds():
                self.highest[home] = entry
            case steps.RoutingChanged():
                self._change(entry.table)
            case steps.RoutingActivated():
                self.adopted.setdefault(entry.version, {})[home] = number
            case steps.HandoverFinished():
                self.done.setdefault(entry.version, set()).add(home)
                if self.is_done:
                    self.previous = None
            case steps.ShardLeaving():
                # Its last entry, in its own log, may have come before this one.
                self.leaving = entry.shard if entry.shard in self.members else None
            case steps.SequencerMoved():
                if entry.move > self.moves:  # else that one was heard first
                    self.sequencer, self.moves = entry.shard, entry.move
            case steps.SequencerBegun():
                if entry.move > self.moves:  # the log that names it may be that of a lost shard
                    self.sequencer, self.moves = home, entry.move
                self.begun = entry.move
            case steps.FeatureLevelRaised():
                self.level = max(self.level, entry.level)
            case steps.MoveBegun():
                self.moved = entry.number
                self.moving[entry.pipeline] = losses.Move(
                    entry.pipeline, entry.number, entry.version, entry.group, entry.arrives
                )
            case steps.MoveReady():
                for move in [*self.moving.values()]:
                    if move.number == entry.number:
                        ready = tuple(sorted({*move.ready, home}))
                        self.moving[move.pipeline] = replace(move, ready=ready)
            case steps.MoveEnded():
                self.moving.pop(entry.pipeline, None)
            case steps.ShardLeft():
                self.members.discard(home)
                self.draining.discard(home)
                self.addresses.pop(home, None)
                self.former[home] = number
                if self.leaving == home:  # the next one may have been asked to go meanwhile
                    self.leaving = None
            case losses.LossDeclared():
                self._declare(entry, home, number)
            case losses.LossHeard():
                self._hear(entry, home, number)
            case losses.ShardLost():
                if entry.shards is not None and self.settles(entry):
                    self._lose(entry.shards, home, number)

    def _declare(self, entry: losses.LossDeclared, home: int, number: int) -> None:
        self.level = max(self.level, LOSSES)
        before = self.loss
        if not {*entry.lost} <= {*(self.lost if before is None else before.lost)}:
            heard = before.heard_before | before.heard.keys() if before else frozenset()
            self.loss = Loss(entry, home, number, heard_before=frozenset(heard))

    def _hear(self, entry: losses.LossHeard, home: int, number: int) -> None:
        if self.loss is not None and self.loss.lost == entry.lost:
            self.loss.hear(entry, home, number)
        elif self.loss is not None and number > self.adopted_at.get(home, 0):
            # Of a declaration before, by which its home may have gone on since, and this shard has not.
            self.loss.heard_before |= {home}

    def _lose(self, left: losses.WithoutLost, home: int, number: int) -> None:
        assert self.loss is not None
        gone = {*left.lost} | self.joining.keys() - {*left.members}
        self.lost |= {
            shard: self.lost.get(shard, self.loss.declared.at_ms) for shard in sorted(gone)
        }
        for shard, last in left.former:
            self.former[shard] = max(last, self.former.get(shard, 0))
        for shard in gone:
            self.former.pop(shard, None)
        for shard in self.former.keys() | gone:
            self.addresses.pop(shard, None)
        self.moved, self.moving = left.moved, {move.pipeline: move for move in left.moving}
        self.members, self.draining = set(left.members), set(left.draining)
        self.joining, self.next_shard = {}, left.next_shard
        self.table, self.previous, self.asked, self.highest = left.table, None, None, {}
        # Nothing of the generations before counts: there is nothing to adopt or to hand over.
        adopted = dict.fromkeys(left.members, 0) | dict(left.heard) | {home: number}
        self.adopted = {left.table.version: adopted}
        self.done = {left.table.version: set(left.members)}
        self.leaving, self.loss = None, None
        self.sequencer, self.moves, self.begun = home, left.move, left.move

    def _change(self, table: RoutingTable) -> None:
        gone = set(self.table.shards) - set(table.shards)
        self.draining = ((self.draining | gone) & self.members) - set(table.shards)
        self.previous, self.table, self.asked, self.highest = self.table, table, None, {}
        for told in (self.adopted, self.done):
            for version in [version for version in told if version < table.version]:
                del told[version]
        if self.is_done:
            self.previous = None

    def is_settled_in(self, shard: int) -> bool:
        """Whether a shard, as it knows itself, has applied all by which anyone announced something before that one counted it:
        it owns slots, and has applied that every home goes by a table that gives it some."""
        table = self.previous or self.table
        adopted = self.previous is not None or self.is_adopted
        return adopted and shard in table.owning

    def is_lost(self, shard: int) -> bool:
        """Whether nothing of a shard is taken any more, since it was declared lost."""
        return shard in self.lost or (self.loss is not None and shard in self.loss.lost)

    def passes_over(self, entry: Told, home: int, number: int) -> bool:
        """Whether entry `number` of a home's log counts for nothing here. By how all go on without others, it is one of before that
        comes late. Or its home has logged it when it went on, by what the log of one has that is lost by now, too; then what it
        changes is in what the home logs next of what it knows."""
        is_late = number <= self.adopted_at.get(home, 0)
        if not is_late and (self.loss is None or not self.loss.has_gone_on(home)):
            return False
        return not isinstance(entry, _ALWAYS_COUNT)

    def settles(self, entry: losses.ShardLost) -> bool:
        """Whether an entry ends the declaration that is under way, or is a part of what does: else another declaration
        has taken its place."""
        return self.loss is not None and self.loss.lost == entry.lost

    def leader_without(self, lost: Iterable[int]) -> int | None:
        """The shard that decides how all go on without others: the smallest that is left; None if none is."""
        return min(self.members - {*lost}, default=None)

    @property
    def is_led(self) -> bool:
        """Whether the sequencer has begun to decide."""
        return self.begun == self.moves

    @property
    def is_adopted(self) -> bool:
        """Whether every shard is known to split its entries by the newest table."""
        return self.table.version == 0 or self.members <= self.adopted_at.keys()

    @property
    def adopted_at(self) -> Mapping[int, int]:
        """By home, the number of the entry by which it adopted the newest table."""
        return self.adopted.get(self.table.version, {})

    @property
    def with_newcomers(self) -> Set[int]:
        """Shards that others keep their logs for: those that count, and those that are to come. One of these begins with
        what another one knew, and hears the rest."""
        return self.members | self.joining.keys()

    @property
    def is_done(self) -> bool:
        """Whether no shard has more to hand over under the newest table."""
        done = self.done.get(self.table.version, set())
        return self.table.version == 0 or self.members <= done

    @property
    def table_is_settled(self) -> bool:
        """Whether no change of the table is under way. Shards may be joining, or draining."""
        return self.asked is None and self.leaving is None and self.is_done

    @property
    def is_settled(self) -> bool:
        """The same, and no pipeline is moving, which waits for every shard that there is."""
        return self.table_is_settled and not self.moving

    def is_ready(self, pipeline: str) -> bool:
        """Whether every shard has done its part of the move of a pipeline, which is under way."""
        return self.members <= {*self.moving[pipeline].ready}

    @property
    def hands_over(self) -> bool:
        """Whether some shard may have something to hand over, also under a table not heard of yet: another
        one may go by it already."""
        return not self.is_done or self.table_is_older or self.asked is not None

    @property
    def table_is_older(self) -> bool:
        """Whether some home splits by a table that has not arrived here."""
        return any(version > self.table.version for version in self.adopted)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that one of the shards has to go on with."""
        return bool(
            self.joining
            or self.draining
            or self.asked is not None
            or self.leaving is not None
            or not self.is_done
            or not self.is_led
            or self.loss is not None
        )

    def awaits(self, shard: int, entry: object) -> bool:
        """Whether an entry of a shard's log comes before the word that it has joined (until then it says
        no more than how far it has heard of slots), or before the word that it is the sequencer."""
        if isinstance(entry, steps.SequencerBegun):
            return entry.move > self.moves
        if isinstance(entry, losses.LossDeclared):  # a smaller one may have left
            return self.leader_without(entry.lost) != shard
        return shard in self.joining and not isinstance(entry, steps.SlotBounds)

    def knows(self, shard: int) -> bool:
        """Whether the number is, or was, a shard's."""
        return any(shard in known for known in (self.members, self.joining, self.former, self.lost))

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        assert self.members.isdisjoint(self.joining), "a shard has joined and is joining"
        assert self.members.isdisjoint(self.former), "a shard has left and is there"
        for shard in self.table.owning:  # its last entry may have come before the table
            assert shard in self.members or shard in self.former, (
                f"{shard} owns slots and is nowhere"
            )
        assert max(self.with_newcomers) < self.next_shard
        assert self.sequencer in self.members, (
            f"the sequencer {self.sequencer} is none of the shards"
        )
        assert self.moves - 1 <= self.begun <= self.moves
        assert self.previous is None or self.previous.version == self.table.version - 1
        assert self.draining.isdisjoint(self.table.shards), "a shard that is to go is given slots"
