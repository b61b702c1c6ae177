"""Home logs on their way to the other shards: sent, confirmed, let go of (rule 3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracker.core.config import ProcessConfig
from tracker.core.cut.stable import StableCut
from tracker.core.log import Effect, Entries, EntriesReceived, Entry, Frame, FrameBody, Send, Told
from tracker.core.log.journal import Journal
from tracker.core.log.sizes import kept_bytes
from tracker.core.log.steps import ShardJoining
from tracker.core.membership.shards import Shards
from tracker.core.model import durable as d
from tracker.core.model.levels import RUNS
from tracker.core.model.routing import RoutingTable
from tracker.core.replication.links import Link
from tracker.core.replication.parts import OutboxEntry
from tracker.core.replication.stretches import Run, Stretch

Stretches = dict[tuple[int, int], Stretch]
"""By the numbers of the first and the last entry what shards that are due the same are told."""

_LINKS = {
    "confirmed": d.each(
        tuple[int, int],
        lambda links: ((shard, link.confirmed) for shard, link in links.items()),
        lambda links, saved: links[saved[0]].confirm(saved[1], now_ns=0),
    ),
    "received": d.each(  # a newcomer is told of its peer's own log, too, and of logs of shards that have left
        tuple[int, int],
        lambda links: ((shard, link.received) for shard, link in links.items()),
        lambda links, saved: setattr(links.get(saved[0], Link()), "received", saved[1]),
    ),
}
_CONFIRMED_AGAIN = "others confirm again what they hold of the home log"


@dataclass(init=False, eq=False)
class Replication:
    """One process's links, and the own entries that some shard has not confirmed."""

    epoch: int = d.forgotten("it is another one with each owner of the store")
    """Of this owner of the store; others ignore what an older owner says."""
    links: dict[int, Link] = d.survives(_LINKS, own=True)
    outbox: deque[OutboxEntry] = d.forgotten(_CONFIRMED_AGAIN)
    """Durable own entries that some shard has not confirmed. Invariant: numbers without a gap up to
    `home_last`. Saved as entries: the number and the table of each follow."""
    outbox_bytes: int = d.forgotten(_CONFIRMED_AGAIN)
    """About what they take."""
    tables: list[tuple[int, RoutingTable]] = d.survives(
        d.SEQUENCE, own=True, may_lag=_CONFIRMED_AGAIN
    )
    """By which tables the home log is split, each from an entry number on; the last one is used."""
    _run: Run | None = d.forgotten("it follows from the entries that it is of")
    """The run that was asked for last."""
    parting: set[int] = d.forgotten(_CONFIRMED_AGAIN)
    """Departed shards whose final entry some member has not applied."""

    def __init__(
        self,
        journal: Journal,
        shards: Shards,
        cut: StableCut,
        config: ProcessConfig,
        effects: list[Effect],
        routing: RoutingTable,
        epoch: int,
    ) -> None:
        self._journal = journal
        self._shards = shards
        self._cut = cut
        self._config = config
        self._effects = effects
        self.epoch = epoch
        self.links = {other: Link() for other in routing.owning if other != shards.own}
        self.outbox = deque()
        self.outbox_bytes = 0
        self.tables = [(1, routing)]
        self.parting = set()
        self._run = None

    @property
    def is_congested(self) -> bool:
        """Whether so much is unconfirmed by other shards that no more ticks should be submitted."""
        config = self._config
        is_large = self.outbox_bytes > config.max_unconfirmed_bytes
        return len(self.outbox) > config.max_unconfirmed_entries or is_large

    @property
    def is_alone(self) -> bool:
        """Whether nobody else gets anything of what this shard logs by now, or owns any slot."""
        return (
            not self.links and not self.outbox and self.tables[-1][1].owning == (self._shards.own,)
        )

    def record(self, entry: OutboxEntry) -> None:
        """An own entry is durable: the others, where there are any, are sent their parts."""
        if self.links or self.outbox or isinstance(entry.entry, ShardJoining):
            self._keep(entry)

    def _keep(self, entry: OutboxEntry) -> None:
        self.outbox.append(entry)
        self.outbox_bytes += kept_bytes(entry.entry)

    def run_of(self, ticks: Sequence[OutboxEntry]) -> Run:
        """Own entries that follow one another, all plain, as a run. This shard's own part is
        mostly asked for first, then those of the others."""
        if self._run is None or self._run.numbers != (ticks[0].number, ticks[-1].number):
            self._run = Run(ticks)
        return self._run

    def open_link(self, shard: int, held: int) -> None:
        """A shard is to get everything after entry `held`."""
        self.links[shard] = Link(confirmed=held, sent=held)

    def close_link(self, shard: int) -> None:
        """A shard has left, or never came."""
        del self.links[shard]

    def restore_links(self, others: Iterable[int]) -> None:
        """Begins anew with the shards that a snapshot knows."""
        self.links = {other: Link() for other in others}

    def restore_outbox(self, entries: Sequence[Entry]) -> None:
        """Takes up the last entries of the home log."""
        first = self._journal.home_last - len(entries) + 1
        for number, entry in enumerate(entries, first):
            self._keep(OutboxEntry(number, entry, self.table_of(number)))

    def let_go(self) -> bool:
        """Drops the own entries that need not be sent to anyone any more; returns whether there are any."""
        held = self.held_everywhere()
        if not self.outbox or self.outbox[0].number > held:
            return False
        while self.outbox and self.outbox[0].number <= held:
            self.outbox_bytes -= kept_bytes(self.outbox.popleft().entry)
        return True

    @property
    def is_sent_to_newcomers(self) -> bool:
        """Whether entries are kept for a shard that has not joined yet."""
        return bool(self._shards.membership.joining)

    def table_of(self, number: int) -> RoutingTable:
        """The table by which an entry of the home log is split."""
        return next(table for first, table in reversed(self.tables) if first <= number)

    def applied(self) -> dict[int, int]:
        """This shard's vector: by home the entries of its log that are applied here. Of shards that
        are joining nobody speaks, since some process may not have heard of them; nor of lost ones, whose logs end
        elsewhere at each of the others."""
        membership = self._shards.membership
        received = {shard: link.received for shard, link in self.links.items()}
        for shard in membership.joining:
            received.pop(shard, None)
        return {self._shards.own: self._journal.home_last, **received, **membership.former}

    def confirmed_everywhere(self) -> int:
        """The last entry of this home's log that every shard that has joined holds durably."""
        if not self._shards.membership.joining:
            return min([self._journal.home_last, *(link.confirmed for link in self.links.values())])
        joining = self._shards.membership.joining
        known = (link.confirmed for s, link in self.links.items() if s not in joining)
        return min([self._journal.home_last, *known])

    def held_everywhere(self) -> int:
        """The last entry of this home's log that need not be sent to anyone any more: also each one that is joining holds it durably."""
        return min([self._journal.home_last, *(link.confirmed for link in self.links.values())])

    def send(self, shard: int, body: FrameBody) -> None:
        """Sends a frame to a shard whose link is up; to others, nothing."""
        link = self.links.get(shard)
        if link is not None and link.connected:
            self._effects.append(Send(shard, Frame(self._shards.own, self.epoch, body)))

    def ask_again(self, shard: int) -> None:
        """What could not be taken yet of a shard's log may be taken now: it is asked for at once."""
        self.send(shard, EntriesReceived(self.links[shard].received, again=True))

    def pump_all(self, now_ns: int) -> None:
        """Sends each shard the entries that it has not been sent, as far as its window allows."""
        stretches: Stretches = {}
        for shard, link in self.links.items():
            if link.connected and link.sent < self._journal.home_last:
                self._pump(shard, link, stretches, now_ns)

    def pump(self, shard: int, now_ns: int) -> None:
        """Sends a shard the entries that it has not been sent, as far as its window allows."""
        self._pump(shard, self.links[shard], {}, now_ns)

    def _pump(self, shard: int, link: Link, stretches: Stretches, now_ns: int) -> None:
        limit = link.confirmed + self._config.max_entries_in_flight
        while link.connected and link.sent < min(self._journal.home_last, limit):
            first = link.sent + 1
            if link.sent == link.confirmed:
                link.progress_ns = now_ns
            if min(self._shards.membership.level, link.level) >= RUNS:
                body = Entries(first, self._in_runs(shard, first, stretches))
            else:
                body = Entries(first, self._one_by_one(shard, first))
            link.sent = body.last
            self.send(shard, body)

    def _in_runs(self, shard: int, first: int, stretches: Stretches) -> tuple[Told, ...]:
        """What a shard is told of the entries from `first` on, as many as a frame takes."""
        last = min(self._journal.home_last, first + self._config.max_entries_per_frame - 1)
        start = first - self.outbox[0].number
        while True:
            stretch = stretches.get((first, last))
            if stretch is None:
                items = [self.outbox[start + ahead] for ahead in range(last - first + 1)]
                stretch = stretches[first, last] = Stretch(items, self.run_of)
            told, size_bytes = stretch.told(shard)
            if size_bytes <= self._config.max_bytes_per_frame or last == first:
                return told
            last = first + (last - first) // 2

    def _one_by_one(self, shard: int, first: int) -> tuple[Told, ...]:
        """The same for a shard that records by a level without runs, or has not reported by which."""
        entries: list[Told] = []
        size_bytes = 0
        for index in range(first - self.outbox[0].number, len(self.outbox)):
            item = self.outbox[index]
            size_bytes += item.size_bytes
            if len(entries) >= self._config.max_entries_per_frame or (
                entries and size_bytes > self._config.max_bytes_per_frame
            ):
                break
            entries.append(item.part(shard))
        return tuple(entries)

    def received(self, link: Link, *, again: bool = False) -> EntriesReceived:
        """What a home is to hear of what is durable here of its log."""
        return self._received(link.received, again=again)

    def _received(self, number: int, *, again: bool = False) -> EntriesReceived:
        return EntriesReceived(number, again, self._shards.membership.level, self._shards.speaks)

    def let_part(self) -> None:
        """Confirms final entries that all who stay have by now."""
        for shard in tuple(self.parting):
            self.confirm_last_of(shard)

    def confirm_received(self) -> None:
        """Tells the homes of whose logs more is durable here than they have been told, once for all of a commit."""
        for shard, link in self.links.items():
            if link.received > link.told_received:
                link.told_received = link.received
                self.send(shard, self.received(link))

    def confirm_again(self) -> None:
        """Tells all homes once more what they have been told."""
        for shard, link in self.links.items():
            self.send(shard, self.received(link))

    def confirm_last_of(self, shard: int) -> None:
        """Tells a shard that has left that its last entry has come, when all who stay have it: then its process
        may end."""
        last = self._shards.membership.former.get(shard)
        if last is None:
            return
        if self._cut.vectors.behind(shard, last):
            self.parting.add(shard)
            return
        self.parting.discard(shard)
        self._effects.append(Send(shard, Frame(self._shards.own, self.epoch, self._received(last))))

    def split_by(self, table: RoutingTable, number: int) -> None:
        """The home log is split by a table from an entry on."""
        self.tables.append((number, table))
        first = self.outbox[0].number if self.outbox else number
        while len(self.tables) > 1 and self.tables[1][0] <= first:
            del self.tables[0]

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        last = self._journal.home_last
        waiting = range(last - len(self.outbox) + 1, last + 1)
        assert [item.number for item in self.outbox] == [*waiting], "outbox has gaps"
        for shard, link in self.links.items():
            assert link.confirmed <= link.sent <= last, f"link to {shard} is ahead"
            assert link.received <= link.accepted
