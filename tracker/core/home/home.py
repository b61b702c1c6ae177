"""A home's judgement of its nodes' ticks: all that may be refused is refused here (rules 1, 2, 9).

The home checks a tick before it is durable; after that nobody refuses. What has been accepted and is
not durable yet counts in the checks and in nothing else, since a crash forgets it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tracker.core.home.rounds import Ways, check_roots, check_rounds, ways_round
from tracker.core.model import (
    Batch,
    Cells,
    FrontName,
    HeldSlot,
    HoldMove,
    NodeKey,
    PipelineSpec,
    RefusalCode,
    Refused,
    StagedContribution,
    TickContent,
)
from tracker.core.model import durable as d
from tracker.core.model.names import printable, unprintable, unprintable_unit
from tracker.core.model.nodes import DurableNode, NodeSnapshot
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT, add_delay
from tracker.core.model.waits import WaitCause

CELLS_PER_STAGED = 256
"""As many cells may be staged for each contribution that may: in all, 700 MB where that is not changed."""
MAX_CELLS_PER_TICK = 262_144
MAX_ITEMS_PER_CELL = 2**48
"""Of one cell of a tick; so that what people are shown can be added up."""
MAX_NAMES_PER_TICK = 100_000
"""Heartbeats, joins, leaves, units and holds of one tick, together."""
MAX_NAME_BYTES_PER_TICK = 24 * 1024 * 1024
"""Of all these names together: with the cells of a tick they still are a message."""
MAX_NAME_CHARACTERS = 1_024
MAX_FINGERPRINT_BYTES = 64
KEPT_FINGERPRINTS = 128
"""Batches of a scope whose fingerprints a home remembers; an older batch is refused."""
MAX_CELLS_PER_WRITE_OFF = 65_536
KEPT_GONE_NODES = 1_000
"""Evicted and retired nodes of a pipeline whose batches a home remembers, at least, beside those whose places are vacant; those gone
longest are forgotten, as those are that left by themselves."""
KEPT_SCOPES = 8
"""Scopes of a node, those used last, of which a home remembers so many batches; of the others it remembers
the newest one."""
MAX_SCOPES = 1_024
"""Scopes of batches of one node: none is ever forgotten, one more is refused."""

RAISE_LIMIT = "raise the limit (lowmark pipelines apply)"


@dataclass(slots=True)
class FrontClaim:
    """A front of a node, as of the ticks that its home has accepted: the segment it feeds, its joining, and
    its last promise (LOWEST_SLOT if none)."""

    segment: int
    incarnation: int
    number: int
    promise: int = LOWEST_SLOT


@dataclass(slots=True)
class HomeNode(DurableNode):
    """What a node's home knows of it."""

    pending: deque[Batch | None] = d.follows("what is appended", deque, ahead=True)
    fronts: dict[str, FrontClaim] = d.follows("the shard's", dict, ahead=True)
    """Its fronts, as of the ticks that were accepted."""
    held: dict[str, HeldSlot] = d.follows("`holds`", dict, ahead=True)
    """What it holds, as of the ticks that were accepted."""
    session: Hashable | None = d.forgotten(d.ASKS_AGAIN, default=None)
    last_heard_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """When its last tick arrived; for people."""
    last_alive_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """When it was last heard, be it only that it lives."""
    silent_ns: int = d.forgotten(d.A_MOMENT, default=0)
    """For how long nothing was heard of it since, in time in which it would have been heard."""
    suspected: bool = d.forgotten("silence begins anew", default=False)
    """Whether it was silent for too long when that was looked at last, and has been since."""
    refused: str = d.forgotten(d.FOR_PEOPLE, default="")
    """Why its last tick was refused, or what it was to stage; empty if it was not. For people."""
    refused_consumes: set[int] = d.forgotten(d.FOR_PEOPLE, set)
    """Numbers of the segments in which that tick was to consume."""
    waits: tuple[WaitCause, ...] = d.forgotten(d.ASKS_AGAIN, default=())
    """What it says that it waits for, on its session, since `waits_since_ns`. For people."""
    waits_since_ns: int = d.forgotten(d.A_MOMENT, default=0)

    def derive(self) -> None:
        """Works out what follows from what is durable."""
        self.held = dict(self.holds)

    def heard(self, now_ns: int) -> None:
        """A tick of it has arrived, or it is known from now on."""
        self.last_heard_ns = now_ns
        self.lives(now_ns)

    def lives(self, now_ns: int) -> None:
        """Something was heard of it."""
        self.last_alive_ns, self.silent_ns, self.suspected = now_ns, 0, False

    @property
    def waits_for_grant(self) -> bool:
        """Whether it is the tracker that owes one of its fronts a word."""
        return any(self.granted(front) is None for front in self.fronts)

    @property
    def accepted(self) -> int:
        """Number of the last tick that was not refused, durable or not."""
        return self.durable + len(self.pending)

    def commit(self, number: int, batch: Batch | None, holds: Sequence[HoldMove] = ()) -> None:
        """Tick `number` is durable."""
        self.durable = number
        if holds:
            move_holds(self.holds, holds, self.key, number)
        if self.pending:
            self.pending.popleft()
        elif holds:  # in recovery
            self.held = dict(self.holds)
        if batch is not None:
            kept = self.batches.setdefault(batch.scope, OrderedDict())
            self.batches.move_to_end(batch.scope)
            kept[batch.id] = batch.fingerprint
            while len(kept) > KEPT_FINGERPRINTS:
                kept.popitem(last=False)
            for older in islice(reversed(self.batches.values()), KEPT_SCOPES, KEPT_SCOPES + 1):
                while len(older) > 1:
                    older.popitem(last=False)

    def granted(self, front: str) -> int | None:
        """The slot from which one of its fronts may label; None while it waits for its grant. What an
        earlier joining of the name was granted is nothing to this one."""
        claim, grant = self.fronts.get(front), self.grants.get(front)
        if claim is None or grant is None:
            return None
        same = grant.incarnation == claim.incarnation and grant.number == claim.number
        return grant.slot if same else None

    def record_segments(self, content: TickContent, late: Cells) -> None:
        """Remembers in which segments a durable tick consumed and created."""
        created, consumed = content.created, content.consumed
        if content.holds:
            only_held, only_let_go = self._only_held(content)
            self.creates.update(created.lowest_slots().keys() - only_held)
            self.consumes.update(consumed.lowest_slots().keys() - only_let_go)
        else:
            if created.size:
                self.creates.update(created.lowest_slots())
            if consumed.size:
                self.consumes.update(consumed.lowest_slots())
        if late.size:
            self.consumes.update(late.lowest_slots())

    def _only_held(self, content: TickContent) -> tuple[set[int], set[int]]:
        """The segments in which a tick that is durable now created and consumed nothing but holds."""
        key = self.key.incarnation, self.durable
        moved = [h for h in self.holds.values() if (h.incarnation, h.number) == key]
        of = Counter(move.segment for move in content.holds)
        created, consumed = (
            Counter(cells.segments.tolist()) for cells in (content.created, content.consumed)
        )
        begun = Counter(held.segment for held in moved)
        return (
            {segment for segment, count in begun.items() if created[segment] <= count},
            {segment for segment, count in of.items() if consumed[segment] <= count},
        )

    def record_refused(self, refusal: str, content: TickContent) -> None:
        """Remembers why a tick was refused, and who would be the reader of what it names."""
        self.refused = refusal
        named = content.consumed.segments.tolist() + [u.segment for u in content.units_consumed]
        self.refused_consumes = set(named)

    def record_accepted(self) -> None:
        self.refused, self.refused_consumes = "", set()

    def record_waits(self, waits: tuple[WaitCause, ...], now_ns: int) -> None:
        """Remembers what it waits for; since when, counts from the first of reports without a gap."""
        if not self.waits:
            self.waits_since_ns = now_ns
        self.waits = tuple(replace(wait, text=printable(wait.text)) for wait in waits)

    def last_batches(self) -> tuple[Batch, ...]:
        """The last durable batch of each scope."""
        return tuple(
            Batch(scope, *next(reversed(kept.items()))) for scope, kept in self.batches.items()
        )


def move_holds(
    held: dict[str, HeldSlot], moves: Sequence[HoldMove], key: NodeKey, number: int
) -> None:
    """What a node holds after a tick."""
    for move in moves:
        known = held.get(move.name)
        if move.slot == FOREVER:
            held.pop(move.name, None)
        elif known is None or move.slot > known.slot:
            held[move.name] = HeldSlot(move.name, move.segment, move.slot, key.incarnation, number)


def snapshot_node(node: HomeNode) -> NodeSnapshot:
    """What is durable of a node."""
    return NodeSnapshot(**d.saved(node))


def restore_node(snapshot: NodeSnapshot) -> HomeNode:
    """The node that a snapshot was taken of."""
    node = HomeNode(snapshot.key, snapshot.kind)
    d.restore(node, snapshot)
    return node


_NODES = d.each(
    NodeSnapshot,
    lambda nodes: map(snapshot_node, nodes.values()),
    lambda nodes, saved: nodes.setdefault(saved.key.node_id, restore_node(saved)),
)
_STAGED = d.each(
    tuple[str, StagedContribution],
    lambda staged: ((node_id, each) for node_id in staged for each in staged[node_id].values()),
    lambda staged, saved: staged.setdefault(saved[0], {}).setdefault(saved[1].key, saved[1]),
)


@dataclass(eq=False)
class HomePipeline:
    """The nodes of one pipeline whose home this is, and what is staged for them."""

    spec: PipelineSpec = d.follows("what of the pipeline this home judges by", ahead=True)
    nodes: dict[str, HomeNode] = d.survives(_NODES, dict, own=True)
    newest: dict[str, NodeKey] = d.follows("`nodes`", dict, ahead=True)
    """The newest key given to an id, durable or not: only its ticks are accepted."""
    gone_ids: dict[str, None] = d.follows("`nodes`", dict)
    """Of those that were evicted or retired, those that are gone longest first."""
    staged: dict[str, dict[tuple[object, ...], StagedContribution]] = d.survives(
        _STAGED, dict, own=True
    )
    """By node id, and by the key of the contribution."""
    staged_count: int = d.follows("`staged`", default=0)
    staged_cells: int = d.follows("`staged`", default=0)
    ways: Ways | None = d.forgotten("the edges of `spec` say it", default=None)
    """Where items go round, once it was asked for."""
    removed: frozenset[int] = d.follows("`spec`", ahead=True, default=frozenset())
    """Segments that take nothing more, by number."""
    coming: tuple[str, ...] = d.follows("the pipeline's", ahead=True, default=())
    """Segments that are new, and that this home does not judge by yet."""
    waiting: dict[FrontName, None] = d.forgotten("`fronts` of nodes say it", dict)
    """Fronts of these nodes that wait for their grant, and some that do no more."""

    def derive(self) -> None:
        """Works out what follows from what is durable."""
        self.gone_ids = {node_id: None for node_id, node in self.nodes.items() if node.evicted}
        self.staged_count = sum(map(len, self.staged.values()))
        self.staged_cells = sum(_cells_of(kept.values()) for kept in self.staged.values())

    def change(self, judged: PipelineSpec, newest: PipelineSpec) -> None:
        """Judges by what the pipeline was, or has become."""
        self.spec, self.ways = judged, None
        self.removed = frozenset(map(judged.segments.index, judged.removed))
        self.coming = newest.segments[len(judged.segments) :]

    def take_up(self, node: HomeNode, claims: dict[str, FrontClaim]) -> None:
        """A node goes on here with the fronts that it has. One whose key is closed may have a later one at another home by now:
        the fronts of that are not its own."""
        newest = node.key.incarnation
        node.fronts = {f: claim for f, claim in claims.items() if claim.incarnation <= newest}
        for front in node.fronts:
            if node.granted(front) is None:
                self.waiting[node.key.node_id, front] = None

    def gone(self, key: NodeKey, counts: Callable[[HomeNode], bool]) -> HomeNode | None:
        """The node of a key that was evicted or retired is remembered, among the last ones; returns it,
        or None if the key is not the node's last one. counts: whether a node that is gone still counts (`Pipeline.counts`). Such are
        never forgotten."""
        node = self.nodes.get(key.node_id)
        if node is None or node.key != key:
            return None
        node.evicted = True
        node.fronts, node.grants = {}, {}
        self.take(node)
        # Those that may be forgotten are looked for now and then, so that many evictions cost no more than each alone.
        often = max(1, len(self.gone_ids) // 64)
        if self.may_forget(0) and len(self.gone_ids) % often == 0:
            self._forget(often, counts)
        return node

    def _forget(self, most: int, counts: Callable[[HomeNode], bool]) -> None:
        """Nodes that are gone are forgotten, those first that are gone longest, where so many more than are to be remembered are."""
        remembered = [node_id for node_id in self.gone_ids if not counts(self.nodes[node_id])]
        if len(remembered) < KEPT_GONE_NODES + most:
            return
        for node_id in remembered[: len(remembered) - KEPT_GONE_NODES]:
            self.let_go(node_id)
            self.drop_staged(node_id, unless=lambda _: False)

    def may_forget(self, more: int) -> bool:
        """Whether some of those that are gone may be forgotten when so many more are."""
        return len(self.gone_ids) + more > KEPT_GONE_NODES

    def take(self, node: HomeNode) -> None:
        """A node is known here, as the last one."""
        self.let_go(node.key.node_id)
        self.nodes[node.key.node_id] = node
        if node.evicted:
            self.gone_ids[node.key.node_id] = None

    def let_go(self, node_id: str) -> None:
        """A node is not known here any more."""
        self.nodes.pop(node_id, None)
        self.gone_ids.pop(node_id, None)

    def has_left(self, node_id: str) -> bool:
        """Whether no node of an id is here, nor was closed by others: one that has left is known until its
        key is dropped, and may have joined at another home since."""
        node = self.nodes.get(node_id)
        return node is None or not (node_id in self.newest or node.evicted)

    def check_owner(self, node_id: str, owner: str, take_over: bool) -> None:
        """Raises Refused where a node id is in use for another owner (rule 9): a copy that is started by
        mistake must not end what runs. Who does not say an owner, or was not asked for it, is let in."""
        node = self.nodes.get(node_id)
        if take_over or node is None or node.session is None or "" in (owner, node.owner):
            return
        if owner != node.owner:
            raise self._refuse(
                RefusalCode.CONFLICT,
                f"node {node.key} runs for {node.owner!r}, and its session lives: {owner!r} cannot join "
                "under its id; give it a node id of its own, or stop the other one, or join with "
                "take_over=True, which ends the other one",
            )

    def check_known(self, node_id: str, incarnation: int, ticks: int, given: int) -> None:
        """Raises Refused where a node that comes back knows more of itself than this home does (rule 9):
        then what it was acknowledged is gone, and to go on from what is left would count some of it twice
        and some never. Keys are never given twice, so a node that is not known any more has left or was
        retired, unless the newest incarnation that was `given` to any is older than its own."""
        node = None if self.has_left(node_id) else self.nodes.get(node_id)
        newest = given if node is None else node.key.incarnation
        if incarnation > newest:
            missing = f"its incarnation {incarnation}, with ticks up to {ticks}"
            known = f"no incarnation above {newest}" + (
                " of any node" if node is None else " of it"
            )
        elif node is not None and incarnation == newest and ticks > node.durable:
            missing = f"ticks {node.durable + 1} to {ticks} of its incarnation {incarnation}"
            known = f"that one up to tick {node.durable}"
        else:
            return
        raise self._refuse(
            RefusalCode.LOST,
            f"node {node_id!r} was acknowledged {missing}, and this tracker has {known}: acknowledged "
            "records are gone from the store; restore a copy that has them",
        )

    def check_not_forgotten(self, node_id: str) -> None:
        """Raises Refused where a node that has joined, and has not left, is not known: it was evicted or retired, and forgotten with
        its batches. What it commits again would count twice."""
        if node_id not in self.nodes and node_id not in self.newest:
            raise self._refuse(
                RefusalCode.LOST,
                f"node {node_id!r} was acknowledged ticks, and is forgotten with its batches: it was evicted or retired, and more than "
                f"{KEPT_GONE_NODES} others since; what it commits again would count twice. Start it under another node id, with a "
                "record of its own, or restart the pipeline",
            )

    def check_write_off(self, cells: Cells) -> None:
        """Raises Refused if an operator's write-off names what cannot be."""
        self._check_lengths("written off", cells)
        if len(cells) > MAX_CELLS_PER_WRITE_OFF:
            raise self._refuse(
                RefusalCode.INVALID,
                f"{len(cells)} cells are to be written off at once, the limit is "
                f"{MAX_CELLS_PER_WRITE_OFF}; name fewer slots",
            )
        if len(cells):
            self._check_cells("written off", cells)

    # --- checking a tick --------------------------------------------------------------------------

    def is_repeated_batch(self, node: HomeNode, batch: Batch) -> bool:
        """Whether a batch was committed before, with the same fingerprint; raises Refused if with
        another, or if it is too old to tell (rule 2)."""
        kept = node.batches.get(batch.scope) or OrderedDict()
        known = {b.id: b.fingerprint for b in node.pending if b and b.scope == batch.scope}
        newest = max([*known, *list(reversed(kept))[:1]], default=None)
        if newest is None:
            self.check_printable("scope", unprintable((batch.scope,)))
            self._check_scopes(node, batch.scope)
        fingerprint = known.get(batch.id, kept.get(batch.id))
        if fingerprint == batch.fingerprint:
            return True
        if fingerprint is not None or (newest is not None and batch.id <= newest):
            raise Refused(
                RefusalCode.ROLLED_BACK,
                f"batch {batch.id} of {batch.scope!r} of node {node.key} was committed before with "
                f"other contents, or is older than the batches that are remembered (at most "
                f"{KEPT_FINGERPRINTS} of a scope; the newest is {newest}): its checkpoint was rolled "
                "back or rewritten; restore the newer checkpoint, or start the query under a new node id",
            )
        return False

    def _check_scopes(self, node: HomeNode, scope: str) -> None:
        """Raises Refused if a node begins one more scope than may be remembered."""
        known = node.batches.keys() | {batch.scope for batch in node.pending if batch}
        if len(known) >= MAX_SCOPES:
            raise self._refuse(
                RefusalCode.INVALID,
                f"node {node.key} has batches of {len(known)} scopes, and {scope!r} would be one more; "
                f"the limit is {MAX_SCOPES}, since the newest batch of each is remembered for good: "
                "commit what is new under a scope that is there, or under another node id",
            )

    def check_cells(self, content: TickContent | StagedContribution) -> None:
        """Raises Refused unless the cells are what cells can be, in segments that there are: before anything else is asked of
        them."""
        for what, cells in (("created", content.created), ("consumed", content.consumed)):
            if cells.packed is None:  # else they are of one length
                self._check_lengths(what, cells)
            if cells.size:
                self._check_cells(what, cells)
                self._check_counts(what, cells)

    def check(
        self,
        node: HomeNode,
        content: TickContent,
        announced: Sequence[int],
        floors: Sequence[int],
    ) -> None:
        """Raises Refused if any part of a tick, of which the cells are checked, cannot be honoured (promise 5). By segment
        number, announced: min times of this process, which limits rest on; floors: the largest of any process, as far as it
        is known."""
        created, consumed = content.created, content.consumed
        if created.size + consumed.size > MAX_CELLS_PER_TICK:
            raise self._refuse(
                RefusalCode.INVALID,
                f"a tick of {created.size + consumed.size} cells is over the limit of {MAX_CELLS_PER_TICK}; "
                "commit smaller ticks",
            )
        names = content.names
        if names:
            self._check_sizes(names, content)
        if created.size:
            if self.removed and not consumed.size:
                self._check_not_removed(created.lowest_slots())
            self._check_created(created, announced, floors)
            self._check_granted(node, created)
            if self.spec.rounds > 1:
                self._check_rounds(node, content)
        if names or content.batch is not None:
            self._check_names(content)
            self._check_fronts(node, content, announced)

    def _refuse(self, code: RefusalCode, message: str) -> Refused:
        return Refused(code, f"pipeline {self.spec.name!r}: {message}")

    def _check_sizes(self, names: int, content: TickContent) -> None:
        if names > MAX_NAMES_PER_TICK:
            raise self._refuse(
                RefusalCode.INVALID,
                f"a tick with {names} fronts, units and holds is over the limit of {MAX_NAMES_PER_TICK}; "
                "commit smaller ticks",
            )
        self._check_name_bytes(content)

    def _check_name_bytes(self, content: TickContent) -> None:
        names = [unit.name for unit in content.units_created + content.units_consumed]
        names += [named.front for named in content.heartbeats + content.joins]
        names += content.leaves
        names += [move.name for move in content.holds]
        if 4 * sum(map(len, names)) <= MAX_NAME_BYTES_PER_TICK:
            return  # no character takes more
        size = sum(len(name.encode()) for name in names)
        if size > MAX_NAME_BYTES_PER_TICK:
            raise self._refuse(
                RefusalCode.INVALID,
                f"a tick whose {len(names)} names of fronts, units and holds take {size} bytes is over the "
                f"limit of {MAX_NAME_BYTES_PER_TICK}; commit smaller ticks, or use shorter names",
            )

    def _check_lengths(self, what: str, cells: Cells) -> None:
        lengths = (
            len(cells.segments),
            len(cells.slots),
            len(cells.checksums),
            len(cells.counts),
        )
        if lengths.count(lengths[0]) != len(lengths):
            raise self._refuse(
                RefusalCode.INVALID,
                f"{what} cells have arrays of unequal lengths {sorted(set(lengths))}",
            )

    def _check_cells(self, what: str, cells: Cells) -> None:
        low, high = cells.segment_span()
        if low < 0 or high >= len(self.spec.segments):
            raise self.unknown(f"{what} cells name", low if low < 0 else high)
        highest = cells.highest_slot()
        if highest > HIGHEST_SLOT:
            raise self._refuse(
                RefusalCode.INVALID,
                f"{what} cells name slot {highest}; the largest is {HIGHEST_SLOT}",
            )

    def unknown(self, what: str, number: int) -> Refused:
        """Why a number of a segment is refused by which this home does not judge."""
        new = number - len(self.spec.segments)
        if 0 <= new < len(self.coming):
            return self._refuse(
                RefusalCode.NOT_READY,
                f"{what} segment {self.coming[new]!r}, which is new: not every shard is known to reckon with it; ask again",
            )
        return self._refuse(
            RefusalCode.UNKNOWN_SEGMENT,
            f"{what} segment number {number}; the pipeline has {len(self.spec.segments)} segments, numbered from 0",
        )

    def _check_counts(self, what: str, cells: Cells) -> None:
        least, most = cells.count_span()
        if least < 0 or most > MAX_ITEMS_PER_CELL:
            raise self._refuse(
                RefusalCode.INVALID,
                f"{what} cells count {least if least < 0 else most} items in one cell; a number of "
                f"items must lie within 0 and {MAX_ITEMS_PER_CELL}",
            )

    def _check_not_removed(self, segments: Iterable[int]) -> None:
        gone = sorted(self.removed & {*segments})
        if gone:
            raise self._refuse(
                RefusalCode.UNKNOWN_SEGMENT,
                f"segment {self.spec.segments[gone[0]]!r} was removed and takes nothing more; let the node create in "
                f"others, or bring the segment back under another name (lowmark pipelines apply)",
            )

    def _check_created(
        self, created: Cells, announced: Sequence[int], floors: Sequence[int]
    ) -> None:
        below = created.below(floors)
        if below is not None:
            at = int(below.argmax())
            number = int(created.segments[at])
            advice = "label it with a later slot"
            if number in self.removed:
                advice = "the segment was removed: let the node create in others"
            raise self._refuse(
                RefusalCode.BELOW_MIN_TIME,
                f"segment {self.spec.segments[number]!r}: an item was created at slot "
                f"{int(created.slots[at])}, but min time {floors[number]} is announced: everything "
                f"below it is complete; {advice}",
            )
        horizon = add_delay(min(announced), self.spec.horizon_slots)
        highest = created.highest_slot()
        if highest >= horizon and horizon != FOREVER:
            at = int(created.slots.argmax())
            segment = self.spec.segments[int(created.segments[at])]
            raise self._refuse(
                RefusalCode.BEYOND_HORIZON,
                f"segment {segment!r}: an item was created at slot {highest}; the limit is the "
                f"pipeline's min time {min(announced)} + horizon_slots {self.spec.horizon_slots}; "
                "find out what holds min time back, or raise the limit (lowmark pipelines apply)",
            )

    def _check_granted(self, node: HomeNode, created: Cells) -> None:
        segments = created.lowest_slots()
        for front, claim in node.fronts.items():
            if claim.segment in segments and node.granted(front) is None:
                raise self._refuse(
                    RefusalCode.NOT_READY,
                    f"segment {self.spec.segments[claim.segment]!r}: front {front!r} of node {node.key} "
                    "created items before every shard had answered its joining; wait for its grant",
                )

    def _check_rounds(self, node: HomeNode, content: TickContent) -> None:
        """Where a node holds nothing: then what it creates came in by its fronts, or of what it consumes."""
        if node.held or content.holds:
            return
        if not len(content.consumed):
            if node.fronts:
                check_roots(self.spec, content.created)
        elif not node.fronts:
            if self.ways is None:
                self.ways = ways_round(self.spec)
            check_rounds(self.spec, self.ways, content.created, content.consumed)

    def _check_names(self, content: TickContent) -> None:
        created = [unit.name for unit in content.units_created]
        fronts = [join.front for join in content.joins]
        for name in (*created, *(unit.name for unit in content.units_consumed), *fronts):
            if not 0 < len(name) <= MAX_NAME_CHARACTERS:
                raise self._refuse(
                    RefusalCode.INVALID,
                    f"a name of {len(name)} characters is not within 1 to {MAX_NAME_CHARACTERS}: "
                    f"{name[:60]!r}",
                )
        self.check_printable("front", unprintable(fronts))
        self.check_printable("unit", unprintable_unit(created))
        for unit in content.units_created + content.units_consumed:
            if not 0 <= unit.segment < len(self.spec.segments):
                raise self.unknown(f"unit {unit.name!r} names", unit.segment)
        batch = content.batch
        if batch is not None and (
            not 0 < len(batch.scope) <= MAX_NAME_CHARACTERS
            or len(batch.fingerprint) > MAX_FINGERPRINT_BYTES
        ):
            raise self._refuse(
                RefusalCode.INVALID,
                f"a batch needs a scope of 1 to {MAX_NAME_CHARACTERS} characters and a fingerprint "
                f"of at most {MAX_FINGERPRINT_BYTES} bytes; got {len(batch.scope)} and "
                f"{len(batch.fingerprint)}",
            )

    def check_printable(self, what: str, found: str | None) -> None:
        """Raises Refused for a name that cannot be printed; None is none."""
        if found is not None:
            raise self._refuse(
                RefusalCode.INVALID,
                f"{what} {found[:60]!r} holds a character that cannot be printed; name it by others",
            )

    def _check_fronts(self, node: HomeNode, content: TickContent, announced: Sequence[int]) -> None:
        if not (content.joins or content.heartbeats or content.leaves):
            return
        fronts = {name: (claim.segment, claim.promise) for name, claim in node.fronts.items()}
        for join in content.joins:
            if not 0 <= join.segment < len(self.spec.segments):
                raise self.unknown(f"front {join.front!r} joins", join.segment)
            segment = self.spec.segments[join.segment]
            self._check_not_removed((join.segment,))
            if announced[join.segment] == FOREVER:
                raise self._refuse(
                    RefusalCode.COMPLETE,
                    f"front {join.front!r} joins segment {segment!r}, which is complete; register "
                    "the pipeline as open if fronts are to come after the last has left",
                )
            known = fronts.setdefault(join.front, (join.segment, LOWEST_SLOT))
            if known[0] != join.segment:
                raise self._refuse(
                    RefusalCode.CONFLICT,
                    f"front {join.front!r} of node {node.key} joins segment {segment!r} and feeds "
                    f"{self.spec.segments[known[0]]!r}; let it leave there first, or name another",
                )
        for heartbeat in content.heartbeats:
            self._need_front(node, fronts, heartbeat.front)
            segment_number, promised = fronts[heartbeat.front]
            if not promised <= heartbeat.slot <= HIGHEST_SLOT:
                raise self._refuse(
                    RefusalCode.INVALID,
                    f"front {heartbeat.front!r} of node {node.key} promises slot {heartbeat.slot}; "
                    f"a promise must lie within its last one, {promised}, and {HIGHEST_SLOT}",
                )
            fronts[heartbeat.front] = (segment_number, heartbeat.slot)
        for name in content.leaves:
            self._need_front(node, fronts, name)
            del fronts[name]

    def _need_front(self, node: HomeNode, fronts: dict[str, tuple[int, int]], name: str) -> None:
        if name not in fronts:
            raise self._refuse(
                RefusalCode.UNKNOWN_FRONT,
                f"node {node.key} has no front {name!r} (it has {sorted(fronts)}); "
                "let it join by a tick first",
            )

    def accept(self, node: HomeNode, content: TickContent) -> None:
        """Counts a checked tick as accepted."""
        node.pending.append(content.batch)
        for join in content.joins:
            if join.front not in node.fronts:
                node.fronts[join.front] = FrontClaim(
                    join.segment, node.key.incarnation, node.accepted
                )
                self.waiting[node.key.node_id, join.front] = None
        for heartbeat in content.heartbeats:
            node.fronts[heartbeat.front].promise = heartbeat.slot
        for name in content.leaves:
            node.fronts.pop(name, None)
        if content.holds:
            move_holds(node.held, content.holds, node.key, node.accepted)

    # --- staged contributions ---------------------------------------------------------------------

    def check_staged(
        self,
        node_id: str,
        contributions: Sequence[StagedContribution],
        waiting: Mapping[tuple[str, tuple[object, ...]], StagedContribution],
    ) -> tuple[StagedContribution, ...]:
        """The contributions that are new; raises Refused where one differs from what is staged under
        its key, or the table is full. Equal repeats are passed over. waiting: by node id and key what is to be staged
        and not durable yet."""
        if node_id not in self.newest:
            raise self._refuse(
                RefusalCode.UNKNOWN_NODE,
                f"contributions for node {node_id!r}, which has not joined; start its query first",
            )
        known = self.staged.get(node_id, {})
        new: dict[tuple[object, ...], StagedContribution] = {}
        for contribution in contributions:
            self._check_size_of_staged(contribution)
            self.check_cells(contribution)
            key = contribution.key
            staged = known.get(key) or waiting.get((node_id, key)) or new.get(key)
            if staged is None:
                new[key] = contribution
            elif not same_contribution(staged, contribution):
                raise self._refuse(
                    RefusalCode.CONFLICT,
                    f"operator {contribution.operator!r} handed over twice, with other contents, "
                    f"in batch {contribution.batch}, partition {contribution.partition}, attempt "
                    f"{contribution.attempt} of query {contribution.query!r}; give each use of it "
                    "a name of its own",
                )
        most, more_cells = self.spec.max_staged, _cells_of(new.values())
        there = self.staged_count + len(waiting)
        there_cells = self.staged_cells + _cells_of(waiting.values())
        if there + len(new) > most or there_cells + more_cells > most * CELLS_PER_STAGED:
            raise self._refuse(
                RefusalCode.FULL,
                f"{there} contributions with {there_cells} cells are staged, and {len(new)} more "
                f"with {more_cells} would pass the limit max_staged of {most} with {most * CELLS_PER_STAGED} cells "
                "together; are batches committed? If so, raise the limit (lowmark pipelines apply)",
            )
        return tuple(new.values())

    def _check_size_of_staged(self, contribution: StagedContribution) -> None:
        """So that one contribution can go to another home in one entry."""
        cells = len(contribution.created) + len(contribution.consumed)
        names = (contribution.query, contribution.run, contribution.operator)
        if cells > MAX_CELLS_PER_TICK or max(map(len, names)) > MAX_NAME_CHARACTERS:
            raise self._refuse(
                RefusalCode.INVALID,
                f"a contribution of operator {contribution.operator[:60]!r} with {cells} cells, and names "
                f"of up to {max(map(len, names))} characters, is over the limits of {MAX_CELLS_PER_TICK} "
                f"cells and {MAX_NAME_CHARACTERS} characters; give the batch fewer slots, or more tasks",
            )
        self.check_printable("query, run or operator", unprintable(names))

    def stage(self, node_id: str, contributions: Sequence[StagedContribution]) -> None:
        kept = self.staged.get(node_id, {})
        new: dict[tuple[object, ...], StagedContribution] = {
            c.key: c for c in contributions if c.key not in kept
        }
        if not new:
            return
        self.staged.setdefault(node_id, kept).update(new)
        self.staged_count += len(new)
        self.staged_cells += _cells_of(new.values())

    def drop_staged(self, node_id: str, unless: Callable[[StagedContribution], bool]) -> None:
        """Forgets what is staged for a node, but what `unless` keeps."""
        kept = self.staged.get(node_id)
        if not kept:
            return
        left = {key: c for key, c in kept.items() if unless(c)}
        self.staged_count -= len(kept) - len(left)
        self.staged_cells -= _cells_of(kept.values()) - _cells_of(left.values())
        if left:
            self.staged[node_id] = left
        else:
            del self.staged[node_id]


def _cells_of(contributions: Iterable[StagedContribution]) -> int:
    return sum(len(c.created) + len(c.consumed) for c in contributions)


def same_contribution(one: StagedContribution, other: StagedContribution) -> bool:
    """Whether two contributions say the same, in whatever order and grouping their cells are."""
    return all(
        _sums(a) == _sums(b)
        for a, b in ((one.created, other.created), (one.consumed, other.consumed))
    )


def _sums(cells: Cells) -> dict[tuple[int, int], tuple[int, int]]:
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for segment, slot, checksum, count in cells.rows():
        x, n = sums.get((segment, slot), (0, 0))
        sums[(segment, slot)] = (x ^ checksum, n + count)
    return sums
