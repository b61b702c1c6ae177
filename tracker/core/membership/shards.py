"""The shards as one process knows them: by what it has applied, and by all that it has accepted (rule 10)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tracker.core.log import Entry
from tracker.core.log.steps import CellsMoved, DepartureSummarized, MembershipStep, NodesMoved
from tracker.core.membership.membership import Membership
from tracker.core.model import durable as d
from tracker.core.model.routing import RoutingTable

_MEMBERSHIP = d.form(
    Membership | None,  # stores of processes that were never rescaled may have none
    Membership.copy,
    lambda begun, saved: begun if saved is None else saved.copy(),
)


@dataclass(eq=False)
class Shards:
    """This shard's number, and the others."""

    own: int = d.follows("which process it is")
    speaks: int = d.forgotten("the next process may be of another release")
    """The highest feature level that this process speaks. Invariant: at least the membership's."""
    membership: Membership = d.survives(_MEMBERSHIP)
    changing: bool = d.forgotten("whoever has left is told so again", default=False)
    """Whether a change is under way, as far as this process has heard. Follows from the membership."""
    _accepted: deque[tuple[int, MembershipStep, int, int]] = d.forgotten(
        "it is what is appended and may be lost", deque
    )
    """Steps that are appended and have not taken effect: (position, step, home, its number)."""

    @property
    def routing(self) -> RoutingTable:
        """The newest table that this process has heard of."""
        return self.membership.table

    @property
    def counts(self) -> bool:
        """Whether this shard has joined, and has not left."""
        return self.own in self.membership.members

    def is_lost(self, shard: int) -> bool:
        """Whether nothing of a shard is taken any more, by what has been accepted: what comes behind a declaration of its
        loss is not logged behind it."""
        return self.expected().is_lost(shard)

    @property
    def is_alone(self) -> bool:
        """Whether this shard is the only one, and none joins, as far as has been accepted: then its own log alone
        says what can be announced."""
        known = self.membership
        return known.members == {self.own} and not (self.changing or self._accepted)

    def hands_over_cells(self) -> bool:
        """Whether every home splits by the newest table, and this shard has not handed over yet what it
        does not own: nothing else may change that any more."""
        known = self.membership
        version = known.table.version
        return (
            version > 0
            and known.is_adopted
            and self.counts
            and self.own not in known.done.get(version, ())
        )

    def has_gone(self, shard: int) -> bool:
        """Whether a shard has left, by what has been accepted: by its own last entry, or by how all go on without others, behind which
        nothing of its log is taken."""
        return shard in self.expected().former

    def record_step(self, position: int, step: Entry, home: int, number: int) -> None:
        """A step was appended, by the record at this position. What moves nodes and cells changes nothing
        in the membership."""
        if isinstance(step, MembershipStep) and not isinstance(
            step, NodesMoved | CellsMoved | DepartureSummarized
        ):
            self._accepted.append((position, step, home, number))

    def settle_steps(self, committed: int) -> None:
        """Steps up to this position take effect now."""
        while self._accepted and self._accepted[0][0] <= committed:
            self._accepted.popleft()

    def expected(self) -> Membership:
        """The shards as they will be when all that has been accepted has taken effect."""
        if not self._accepted:
            return self.membership
        known = self.membership.copy()
        for _, step, home, number in self._accepted:
            known.apply(step, home, number)
        return known

    def part(self) -> None:
        """This shard has left, and everybody knows."""
        self.changing = False

    def record_change(self) -> None:
        """The membership has changed, or has come back."""
        self.changing = self.membership.is_busy or self.own in self.membership.former
