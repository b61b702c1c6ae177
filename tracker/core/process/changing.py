"""Shards come and go: what a process does of itself, and what each step changes (rule 10).

Every step is an entry of a home log, and what a process does next follows from the steps that it has
applied: a process that dies between two of them goes on where it was. It takes one step at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from tracker.core.home.home import HomeNode
from tracker.core.log import (
    Announcement,
    Answer,
    JoinShard,
    LeftTracker,
    MembersChanged,
    RescaleShards,
    SessionRefused,
    ShardNumber,
    UnitsArrived,
)
from tracker.core.log.sizes import (
    CELL_BYTES,
    given_up_bytes,
    node_bytes,
    pieces,
    staged_bytes,
    unit_bytes,
    words_bytes,
)
from tracker.core.log.steps import (
    MAX_CELLS_PER_MOVE,
    MAX_SHARDS,
    SEQUENCER,
    CellsMoved,
    HighestSlots,
    LastWords,
    NodesMoved,
    RoutingAdopted,
    RoutingChanged,
    RoutingDone,
    RoutingEntry,
    ShardJoined,
    ShardJoining,
    ShardLeaving,
    ShardLeft,
    ShardRemoved,
    ShardSaid,
    SlotsAsked,
)
from tracker.core.model import Cells, Refusal, RefusalCode, Refused, Unit
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.restore import restore_node, snapshot_late, snapshot_node
from tracker.core.process.applying import Applying
from tracker.core.process.state import _MS
from tracker.core.replication.links import Link
from tracker.core.shard.cells import shown_items
from tracker.core.shard.shard import LateEntry


class Changing(Applying):
    """Shards come and go."""

    # --- what is asked for ------------------------------------------------------------------------

    def _request_shards(self, event: JoinShard | RescaleShards) -> None:
        try:
            if self.shard != SEQUENCER:
                raise Refused(
                    RefusalCode.NOT_HOME,
                    f"shards come and go by the word of shard {SEQUENCER}",
                    home=SEQUENCER,
                )
            if isinstance(event, JoinShard):
                self._join_shard(event)
            else:
                self._rescale(event)
        except Refused as refused:
            self._out.append(Answer(event.request, refused.refusal))

    def _join_shard(self, event: JoinShard) -> None:
        known = self.membership
        for shard, (address, number) in known.joining.items():
            if address == event.address:
                if self.links[shard].confirmed >= number:
                    # What it has confirmed, nobody keeps for it: it must not begin a second time.
                    raise _there_already(shard, address)
                self._out.append(Answer(event.request, ShardNumber(shard)))
                return
        self._need_no_step("another shard")
        if not known.is_settled:
            raise Refused(
                RefusalCode.NOT_READY,
                "another shard has to wait: the shards are changing; ask again",
            )
        for shard in known.members:
            if known.addresses.get(shard) == event.address:
                raise _there_already(shard, event.address)
        if len(known.members) + len(known.joining) >= MAX_SHARDS:
            raise Refused(
                RefusalCode.FULL,
                f"the tracker has {len(known.members) + len(known.joining)} shards, the limit is "
                f"{MAX_SHARDS}",
            )
        self._step(ShardJoining(known.next_shard, event.address))
        self._append_request(event.request)

    def _need_no_step(self, what: str) -> None:
        if self._step_appended > self._home_last:
            raise Refused(
                RefusalCode.NOT_READY,
                f"{what} has to wait: a change of shards is under way; ask again",
            )

    def _rescale(self, event: RescaleShards) -> None:
        known = self.membership
        now = known.table.shards
        target = self._target(event.shards)
        if known.asked is not None and known.asked.shards == target:
            self._rescales.append((event.request, target))
            return
        self._need_no_step(f"a rescale to {event.shards} shards")
        if known.asked is not None or not known.is_done or known.leaving is not None:
            if now == target and known.asked is None:
                self._rescales.append((event.request, target))
                return
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: one to "
                f"{len(known.asked.shards if known.asked else now)} is under way; ask again",
            )
        owning = known.draining & {*known.table.owning}
        if now == target and event.evacuate and owning and not known.joining:
            self._step(RoutingChanged(known.table.without(known.draining)))
            self._rescales.append((event.request, target))
        elif now == target:
            self._out.append(Answer(event.request, known.table))
        elif known.joining:
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: shards {sorted(known.joining)} are "
                "joining; ask again",
            )
        elif known.draining:
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {event.shards} shards has to wait: shards {sorted(known.draining)} are "
                "still draining; ask again, or let them hand over what is open with --evacuate",
            )
        else:
            self._step(SlotsAsked(known.table.version + 1, target, event.evacuate))
            self._rescales.append((event.request, target))

    def _target(self, number: int) -> tuple[int, ...]:
        known = self.membership
        now = known.table.shards
        if number < 1:
            raise Refused(RefusalCode.INVALID, f"a tracker needs at least 1 shard, not {number}")
        if number <= len(now):
            return now[:number]
        spare = sorted(known.members - set(now) - known.draining)
        if known.asked is not None:
            spare = sorted({*spare, *known.asked.shards} - set(now))
        coming = sorted(self.expected_membership().joining)
        if len(now) + len(spare) < number <= len(now) + len(spare) + len(coming):
            raise Refused(
                RefusalCode.NOT_READY,
                f"a rescale to {number} shards has to wait: shards {coming} are joining; ask again",
            )
        if len(now) + len(spare) < number:
            raise Refused(
                RefusalCode.FULL,
                f"{number} shards are asked for, and {len(now) + len(spare)} processes are there to "
                "have one; more have to join first",
            )
        return tuple(sorted((*now, *spare[: number - len(now)])))

    # --- going on ---------------------------------------------------------------------------------

    def _step(self, entry: RoutingEntry) -> None:
        self._append_home(entry)
        self._step_appended = self._home_appended

    def _go_on(self, now_ns: int) -> None:
        """Takes the next step of a change, if it is this shard's turn."""
        known = self.membership
        if not self._changing or self._step_appended > self._home_last:
            return
        if self.shard in known.former:
            if self.links[SEQUENCER].confirmed >= self._home_last:
                self._changing = False
                self._out.append(LeftTracker())
        elif not self.counts:
            return
        elif known.asked is not None and self.shard not in known.highest:
            self._step(HighestSlots(known.asked.version, self._highest_slots()))
        elif known.table.version and self.shard not in known.adopted_at:
            if self.committed >= self._handing_over_from:
                self._hand_over_nodes()
        elif self._hands_over_cells():
            if not any(pipeline.sweeping for pipeline in self._pipelines.values()):
                self._hand_over_cells()
        elif known.leaving == self.shard:
            self._leave_tracker()
        elif self.shard == SEQUENCER:
            self._lead(now_ns)

    def _highest_slots(self) -> tuple[tuple[str, int], ...]:
        """By pipeline that is not complete, the highest slot of anything that is known of it here."""
        highest = []
        for name, pipeline in self._pipelines.items():
            slots = [slot for slot in pipeline.announced if slot != FOREVER]
            if not slots:
                continue
            for state in pipeline.shard.fronts.values():
                slots.append(state.heartbeat)
            cells = pipeline.shard.cells.open_cells()
            if len(cells):
                slots.append(int(cells.slots.max()))
            highest.append((name, min(max(slots), HIGHEST_SLOT)))
        return tuple(highest)

    def _hand_over_nodes(self) -> None:
        """The nodes that are at home elsewhere by the newest table go there, with all that their home
        knows of them; from then on this home's entries are split by that table."""
        version = self.membership.table.version
        for name, pipeline in self._pipelines.items():
            closed = {key for _, of, key in self._closed_keys if of == name}
            moving: dict[int, list[HomeNode]] = {}
            for node in pipeline.home.nodes.values():
                home = self.routing.home(name, node.key.node_id)
                if home != self.shard and (node.evicted or node.key not in closed):
                    moving.setdefault(home, []).append(node)
            for home, nodes in moving.items():
                for entry in _nodes_moved(
                    version, home, pipeline, nodes, self.config.max_bytes_per_move
                ):
                    self._append_home(entry)
        self._step(RoutingAdopted(version, self._next_incarnation))

    def _hand_over_cells(self) -> None:
        """What is open here and belongs elsewhere by the newest table goes there: no home splits by an
        older one any more, so nothing else comes for it."""
        version = self.membership.table.version
        for name, pipeline in self._pipelines.items():
            shard = pipeline.shard
            cells = shard.cells.open_cells()
            if len(cells):
                cells = cells.select(self.routing.owners(cells.slots, name) != self.shard)
            self.moved_cells += len(cells)
            units = [
                unit
                for segment, names in shard.units.items()
                if self.routing.names_keeper(name, segment) != self.shard
                for unit in names.units(segment)
            ]
            given_up = [
                cell
                for cell in shard.written_off.cells.values()
                if self.routing.owner(cell.slot, name) != self.shard
            ]
            consumed = [
                Unit(segment, unit, LOWEST_SLOT)
                for segment, names in shard.units.items()
                if self.routing.names_keeper(name, segment) != self.shard
                for unit in names.early
            ]
            most_bytes = self.config.max_bytes_per_move
            moved = partial(CellsMoved, version, name, pipeline.generation)
            for part in _cells_in_pieces(cells, most_bytes):
                self._append_home(moved(cells=part))
            for names_moved in pieces(units, unit_bytes, most_bytes):
                self._append_home(moved(units=names_moved))
            for names_consumed in pieces(consumed, unit_bytes, most_bytes):
                self._append_home(moved(consumed=names_consumed))
            for listed in pieces(given_up, given_up_bytes, most_bytes):
                self._append_home(moved(written_off=listed))
        self._step(RoutingDone(version))

    def _leave_tracker(self) -> None:
        """Says the last, once nothing is left that this home has to answer for."""
        if self.committed < self._handing_over_from or self._closed_keys:
            return
        if self._unconfirmed_registrations or self._unconfirmed_requests:
            return
        words = []
        for name, pipeline in self._pipelines.items():
            ledger = pipeline.shard.written_off
            words.append(
                LastWords(
                    name,
                    pipeline.restart,
                    tuple(pipeline.announced),
                    snapshot_late(pipeline.shard),
                    tuple(ledger.items.items()),
                )
            )
        *before, last = [*pieces(words, words_bytes, self.config.max_bytes_per_move)] or [()]
        for some in before:
            self._step(ShardSaid(some))
        self._step(ShardLeft(tuple(self._applied().items()), last))

    def _lead(self, now_ns: int) -> None:
        """The sequencer's next step, when every shard has done its part of the one before."""
        known = self.membership
        step: RoutingEntry | None = None
        if known.asked is not None:
            if known.members <= known.highest.keys():
                step = RoutingChanged(self._next_table(known.asked))
        elif not known.is_settled:
            return
        elif known.joining:
            # One that comes later than the table it would hear of is no part of the agreement on it:
            # it could hear of a node at its new home before it has heard all of the old one.
            step = self._step_of_joining(now_ns)
        elif known.draining:
            owning = known.draining & set(known.table.owning)
            if owning and all(self._has_drained(shard) for shard in owning):
                step = RoutingChanged(known.table.without(owning))
            elif not owning:
                step = ShardLeaving(max(known.draining))
        if step is not None:
            self._step(step)

    def _step_of_joining(self, now_ns: int) -> RoutingEntry | None:
        for shard, (_, number) in self.membership.joining.items():
            since_ns = self._joining_since_ns.setdefault(shard, now_ns)
            # It has confirmed what it can have only from its peer's state; the others count it.
            if min(self._confirmed_everywhere(), self.links[shard].confirmed) >= number:
                return ShardJoined(shard)
            if now_ns - since_ns > self.config.join_timeout_ms * _MS:
                return ShardRemoved(shard)
        return None

    def _has_drained(self, shard: int) -> bool:
        views = (pipeline.combiner.views[shard] for pipeline in self._pipelines.values())
        return all(v.heard and not any(low.open_slots for low in v.lows.values()) for v in views)

    def _next_table(self, asked: SlotsAsked) -> RoutingTable:
        known = self.membership
        highest: dict[str, int] = {}
        for told in known.highest.values():
            for name, slot in told.slots:
                highest[name] = max(slot, highest.get(name, slot))
        margin_ns = self.config.rescale_margin_ms * _MS
        from_slots = {
            name: min(slot + 1 + margin_ns // self._pipelines[name].spec.slack_ns, HIGHEST_SLOT)
            for name, slot in highest.items()
            if name in self._pipelines
        }
        done = {name: min(self._pipelines[name].said) for name in from_slots}
        table = known.table.resized(asked.shards, from_slots, done)
        if asked.evacuate:
            gone = set(known.table.shards) - set(asked.shards)
            table = table.without(gone, version=table.version)
        return table

    # --- what the steps change --------------------------------------------------------------------

    def _apply_step(self, entry: RoutingEntry, home: int, number: int, now_ns: int) -> None:
        known = self.membership
        match entry:
            case ShardJoining() if entry.shard != self.shard:
                held = self._held_everywhere()
                if home == self.shard:
                    held = min(held, number - 1)
                self.links[entry.shard] = Link(confirmed=held, sent=held)
                self._out.append(MembersChanged(entry.shard, entry.address))
            case ShardRemoved() if entry.shard in self.links:
                del self.links[entry.shard]
                self._joining_since_ns.pop(entry.shard, None)
                self._out.append(MembersChanged(entry.shard, None))
            case NodesMoved():
                self._move_nodes(entry, home, now_ns)
            case CellsMoved():
                self._move_cells(entry, home)
            case RoutingAdopted():
                self._next_incarnation = max(self._next_incarnation, entry.next_incarnation)
        known.apply(entry, home, number)
        match entry:
            case ShardJoined():
                self._count_shard(entry.shard, number, now_ns)
            case RoutingChanged():
                self._handing_over_from = self.position
                self._send_nodes_away()
            case ShardLeaving():
                self._handing_over_from = self.position
            case RoutingAdopted() if home == self.shard:
                self._split_by(known.table, number + 1)
            case ShardSaid() if home == self.shard:
                for words in entry.pipelines:
                    self._pipelines[words.pipeline].shard.give_ledgers(words)
            case ShardSaid():
                self._take_words(entry.pipelines, now_ns)
            case ShardLeft() if home != self.shard:
                self._part_from(entry, home, now_ns)
        for pipeline in self._pipelines.values():
            pipeline.shard.expect_names(known.hands_over)
        self._changing = known.is_busy or self.shard in known.former
        self._step_untold = True
        if known.is_done and known.asked is None and self._rescales:
            for request, target in self._rescales:
                if target == known.table.shards:
                    self._out.append(Answer(request, known.table))
            self._rescales = [r for r in self._rescales if r[1] != known.table.shards]

    def _split_by(self, table: RoutingTable, number: int) -> None:
        """The home log is split by a table from an entry on."""
        self._tables.append((number, table))
        first = self._outbox[0].number if self._outbox else number
        while len(self._tables) > 1 and self._tables[1][0] <= first:
            del self._tables[0]

    def _count_shard(self, shard: int, number: int, now_ns: int) -> None:
        """A shard counts from here on."""
        self._joining_since_ns.pop(shard, None)
        if shard == self.shard:
            # It may speak when it has heard from every other one after that one began to count it.
            self._need_cut([(SEQUENCER, number)])
            for other in self.links:
                self._send_whole_report(other)
        else:
            self._vectors.add_shard(shard)
            for pipeline in self._pipelines.values():
                pipeline.combiner.add_shard(shard)
            self.links[shard].needs_whole = True
            for other, link in self.links.items():  # also those whose reports named it too early
                if link.needs_whole:
                    link.wanted_ns = None
                    self._want_report(other, now_ns)
        self._dirty.update(dict.fromkeys(self._pipelines))

    def _send_nodes_away(self) -> None:
        """Ends the streams of nodes that are at home elsewhere from now on."""
        for session, (name, key) in [*self._sessions.items()]:
            home = self.routing.home(name, key.node_id)
            if home != self.shard:
                message = f"pipeline {name!r}: node {key.node_id!r} is at home at shard {home}"
                refusal = Refusal(RefusalCode.NOT_HOME, message, home)
                self._out.append(SessionRefused(session, refusal))
                self._detach(session)

    def _move_nodes(self, entry: NodesMoved, home: int, now_ns: int) -> None:
        """Nodes leave this home, or come to it."""
        if entry.restart is not None:
            self._begin_generation(entry.pipeline, entry.restart, now_ns)
        pipeline = self._pipelines[entry.pipeline]
        if entry.generation != pipeline.generation:
            return  # their keys are over
        nodes, claims = pipeline.home, pipeline.claims()
        self._dirty[entry.pipeline] = None  # some may be granted here what they wait for
        for saved in entry.nodes:
            node_id = saved.key.node_id
            if home == self.shard:
                nodes.nodes.pop(node_id, None)
                nodes.newest.pop(node_id, None)
                nodes.drop_staged(node_id, unless=lambda _: False)
                continue
            node = restore_node(saved)
            node.heard(now_ns)
            nodes.nodes[node_id] = node
            nodes.take_up(node, claims.get(node_id, {}))
            if not node.evicted:
                nodes.newest[node_id] = node.key
        if home != self.shard:
            for node_id, contribution in entry.staged:
                nodes.stage(node_id, (contribution,))

    def _move_cells(self, entry: CellsMoved, home: int) -> None:
        """Cells and names leave this shard, or come to it. Both touch the cells, as by a tick: so they
        are held until every shard is known to have gone by the entry (rule 6)."""
        pipeline = self._pipelines[entry.pipeline]
        self._dirty[entry.pipeline] = None
        if entry.generation != pipeline.generation:
            return
        if home == self.shard:
            pipeline.shard.give_cells(entry, home)
            return
        pipeline.shard.take_cells(entry, home)
        for segment in {unit.segment for unit in entry.units}:
            pipeline.shard.names(segment).forget_below(pipeline.reached[segment])
            self._out.append(UnitsArrived(entry.pipeline, segment))

    def _part_from(self, entry: ShardLeft, shard: int, now_ns: int) -> None:
        """A shard has left. What it announced binds those that stay: it may have been the first to."""
        self._need_cut(entry.applied)
        self._vectors.remove_shard(shard)
        del self.links[shard]
        self._take_words(entry.pipelines, now_ns)
        for name, pipeline in self._pipelines.items():
            pipeline.combiner.remove_shard(shard)
            self._dirty[name] = None
        self._let_part()
        self._out.append(MembersChanged(shard, None))

    def _take_words(self, said_of: Iterable[LastWords], now_ns: int) -> None:
        """What a shard that leaves has announced binds those that stay, and what it has listed goes on. That
        some segments are complete, each finds out by itself, and takes them to be as far as the pipeline was:
        with what it has announced, all might be complete, and the registrar has not said so."""
        for words in said_of:
            if words.restart is not None:
                self._begin_generation(words.pipeline, words.restart, now_ns)
            pipeline = self._pipelines[words.pipeline]
            if words.generation == pipeline.generation:
                said = words.said
            else:
                said = (min(words.said),) * len(words.said)
            pipeline.floors = [max(pair) for pair in zip(pipeline.floors, said, strict=True)]
            least = min(said)
            known = [least if slot == FOREVER else slot for slot in said]
            news = tuple((s, slot) for s, slot in enumerate(known) if slot > pipeline.announced[s])
            if news:
                self._say(Announcement(words.pipeline, news, pipeline.generation), now_ns)
            for late in words.late:
                ledger = pipeline.shard.late.setdefault(late.segment, LateEntry())
                ledger.items = shown_items(ledger.items + late.items)
                ledger.cells = shown_items(ledger.cells + late.cells)
                ledger.last_slot = max(ledger.last_slot, late.last_slot)
                pipeline.shard.changes.segments[late.segment] = None
            for segment, items in words.written_off_items:
                pipeline.shard.written_off.add_items(segment, items)
                pipeline.shard.changes.segments[segment] = None
            self._dirty[words.pipeline] = None


def _there_already(shard: int, address: str) -> Refused:
    return Refused(
        RefusalCode.CONFLICT,
        f"shard {shard} is reached at {address}; start its process again with its own store, or join "
        "under another address",
        home=shard,
    )


def _cells_in_pieces(cells: Cells, most_bytes: int) -> Iterator[Cells]:
    number = min(MAX_CELLS_PER_MOVE, max(1, most_bytes // CELL_BYTES))
    for first in range(0, len(cells), number):
        chunk = slice(first, first + number)
        yield Cells(
            cells.segments[chunk], cells.slots[chunk], cells.checksums[chunk], cells.counts[chunk]
        )


def _nodes_moved(
    version: int, home: int, pipeline: Pipeline, nodes: list[HomeNode], most_bytes: int
) -> Iterator[NodesMoved]:
    """What is staged goes before the nodes that it is of: with its node a home lets go of it, so a process
    that dies between two entries would have lost the rest. Staged again, it changes nothing."""
    staged = (
        (node.key.node_id, contribution)
        for node in nodes
        if not node.retired
        for contribution in pipeline.home.staged.get(node.key.node_id, {}).values()
    )
    moved = partial(NodesMoved, version, pipeline.spec.name, home, pipeline.restart)
    for contributions in pieces(staged, staged_bytes, most_bytes):
        yield moved(staged=contributions)
    for saved in pieces(map(snapshot_node, nodes), node_bytes, most_bytes):
        yield moved(nodes=saved)
