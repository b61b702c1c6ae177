"""Nodes come and go at their home: joining, leaving, retiring, staging; keys, and their end (rules 2, 9)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tracker.core.admission.confirmations import Confirmations
from tracker.core.config import ProcessConfig
from tracker.core.home.home import RAISE_LIMIT, HomeNode
from tracker.core.log import (
    Answer,
    Effect,
    Joined,
    JoinNode,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    LeaveNode,
    RetireNode,
    StageContributions,
    Staged,
    WrittenOff,
)
from tracker.core.log.journal import Journal
from tracker.core.membership.shards import Shards
from tracker.core.model import (
    Cells,
    NodeKey,
    Refusal,
    RefusalCode,
    Refused,
    StagedContribution,
)
from tracker.core.model import durable as d
from tracker.core.model.names import unprintable
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.pipeline.homes import Homes
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines

_NAMES_SHOWN = 5
KEPT_JOININGS = 10_000
"""Joinings whose later attempts a home knows, the newest ones."""
MAX_JOINING_CHARACTERS = 64


@dataclass(slots=True, eq=False)
class Nodes:
    """The keys of nodes at home here."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _homes: Homes
    _confirmations: Confirmations
    _config: ProcessConfig
    _effects: list[Effect]
    next_incarnation: int = d.survives(ahead=True, default=1)
    """No incarnation is given twice at this home."""
    closed_keys: deque[tuple[int, str, NodeKey]] = d.survives(
        {"closed": d.SEQUENCE}, deque, own=True
    )
    """Closed keys that are not dropped, by the entry that closed them."""
    _joinings: dict[tuple[str, str, str], tuple[NodeKey, int]] = d.forgotten(
        "no attempt outlives the process that it was sent to", dict
    )
    """By pipeline, node id and the joining's name the key that it was given, and the pipeline's generation by then, of the last
    KEPT_JOININGS."""
    _dropping: int = d.forgotten("it is what is appended and may be lost", default=0)
    """How many of them, the first ones, have a dropping entry that is not durable yet."""

    def drop_closed(self, everywhere: int) -> None:
        """Closed keys of which every shard has all are forgotten."""
        while self._dropping < len(self.closed_keys):
            number, name, key = self.closed_keys[self._dropping]
            if number > everywhere:
                break
            self._dropping += 1
            self._journal.append_home(KeyDropped(name, key))

    def has_closed_keys(self, pipeline: str) -> bool:
        """Whether some closed key of a pipeline is not dropped."""
        return any(name == pipeline for _, name, _ in self.closed_keys)

    def reserve(self, incarnation: int) -> None:
        """Keys up to before this incarnation are given."""
        self.next_incarnation = max(self.next_incarnation, incarnation)

    def closed(self, number: int, pipeline: str, key: NodeKey) -> None:
        """Entry `number` has closed a key."""
        self.closed_keys.append((number, pipeline, key))

    def dropped(self, key: NodeKey) -> None:
        """A dropping entry is durable."""
        _, _, first = self.closed_keys.popleft()
        assert first == key, "keys are dropped in the order in which they closed"
        self._dropping = max(0, self._dropping - 1)

    def join(self, event: JoinNode) -> None:
        """Opens a new key for a node, and closes its older one; raises Refused, changing nothing."""
        pipeline = self._homes.at_home(event.pipeline, event.node_id)
        home = pipeline.home
        lengths = len(event.node_id), len(event.kind), len(event.owner)
        if not 0 < lengths[0] <= 1024 or lengths[1] > 100 or lengths[2] > 1024:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r}: a node id has 1 to 1024 characters, a kind at most 100 "
                f"and an owner at most 1024, got {lengths[0]}, {lengths[1]} and {lengths[2]}",
            )
        if len(event.joining) > MAX_JOINING_CHARACTERS:
            raise Refused(
                RefusalCode.INVALID,
                f"pipeline {event.pipeline!r}: the name of a joining has at most {MAX_JOINING_CHARACTERS} characters, got "
                f"{len(event.joining)}",
            )
        if event.node_id not in home.newest and event.node_id not in home.nodes:
            home.check_printable("node", unprintable((event.node_id,)))
        home.check_printable("kind or owner of a node", unprintable((event.kind, event.owner)))
        self._check_known(event, pipeline)
        self._check_not_about_to_be_forgotten(event, pipeline)
        home.check_owner(event.node_id, event.owner, event.take_over)
        if event.node_id not in home.newest and len(home.newest) >= pipeline.spec.max_nodes:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot join, "
                f"{len(home.newest)} nodes have at shard {self._shards.own}, max_nodes is "
                f"{pipeline.spec.max_nodes}; let nodes that are gone leave, or {RAISE_LIMIT}",
            )
        if event.node_id not in home.newest:
            self._check_room(event)
        if event.check_only:
            known = home.nodes.get(event.node_id)
            newest = NodeKey(event.node_id, 0) if known is None else known.key
            self._effects.append(Answer(event.request, self.joined(pipeline, newest)))
            return
        if self._has_joined(event, pipeline):
            return
        key = NodeKey(event.node_id, self.next_incarnation)
        self.next_incarnation += 1
        home.newest[event.node_id] = key
        self._keep_joining(event, key, pipeline.generation)
        opened = KeyOpened(event.pipeline, key, event.kind, pipeline.restart, event.owner)
        self._journal.append_home(opened, event.request)

    def _check_not_about_to_be_forgotten(self, event: JoinNode, pipeline: Pipeline) -> None:
        """Raises Refused(NOT_READY) where a node is gone, and keys of its pipeline are about to be closed: that may make its home
        forget it, in front of the entry that opens the next one, which would then know of no batches."""
        closing = {
            entry.key.node_id
            for entry in self._journal.pending_of(KeyClosed, event.pipeline)
            if entry.evicted
        }
        is_gone = event.node_id in closing or event.node_id in pipeline.home.gone_ids
        if closing and is_gone and pipeline.home.may_forget(len(closing)):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} is gone, and others are closed just now, which is not "
                "durable yet; ask again",
            )

    def _has_joined(self, event: JoinNode, pipeline: Pipeline) -> bool:
        """Whether another attempt of the same joining was given the key that counts, which is the answer to this one too. Raises
        Refused where that key is not durable yet, and where its node has left since, or a later joining has closed it: an attempt
        that comes late opens and closes no key."""
        given, generation = self._joinings.get(
            (event.pipeline, event.node_id, event.joining), (None, pipeline.generation)
        )
        newest = pipeline.home.newest.get(event.node_id)
        over = generation != pipeline.generation or not pipeline.home.has_left(event.node_id)
        if given is None or (newest is None and over):
            return False
        if given != newest:
            why = "it has left" if newest is None else f"{newest} has taken its place"
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {event.pipeline!r}: node {given} is closed, {why}; only one process may run under a node id",
            )
        opening = self._journal.pending_of(KeyOpened, event.pipeline)
        if any(entry.key == given for entry in opening):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {event.pipeline!r}: node {given} joins, and that is not durable yet; ask again",
            )
        self._effects.append(Answer(event.request, self.joined(pipeline, given)))
        return True

    def _keep_joining(self, event: JoinNode, key: NodeKey, generation: int) -> None:
        if event.joining:
            self._joinings[event.pipeline, event.node_id, event.joining] = key, generation
            if len(self._joinings) > KEPT_JOININGS:
                del self._joinings[next(iter(self._joinings))]

    def _check_known(self, event: JoinNode, pipeline: Pipeline) -> None:
        """Raises Refused(LOST) where a node's record has what is gone here. What it has of an earlier generation counts no more:
        its keys may have been given by another group, in which the one of this name was deleted."""
        generation = event.known_generation
        if generation > pipeline.generation:
            raise Refused(
                RefusalCode.LOST,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} was acknowledged ticks in generation {generation}, and this "
                f"tracker has the pipeline in generation {pipeline.generation}: acknowledged records are gone from the store; "
                "restore a copy that has them",
            )
        if generation == pipeline.generation:
            pipeline.home.check_known(
                event.node_id, event.known_incarnation, event.known_ticks, self.next_incarnation - 1
            )
            if event.never_left and event.known_incarnation:
                pipeline.home.check_not_forgotten(event.node_id)

    def _check_room(self, event: JoinNode) -> None:
        """Raises Refused(FULL) where the nodes at home here, of all pipelines, are as many as may be."""
        there = sum(len(pipeline.home.newest) for pipeline in self._pipelines.values())
        if there >= self._config.max_nodes:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot join, {there} nodes of all "
                f"pipelines have at shard {self._shards.own}, which is the limit max_nodes of a process; let "
                "nodes that are gone leave",
            )

    def forget_joinings(self, pipeline: str) -> None:
        """A pipeline has gone to another group: where it comes back, attempts of a joining may have been answered there since."""
        for joining in [each for each in self._joinings if each[0] == pipeline]:
            del self._joinings[joining]

    def joined(self, pipeline: Pipeline, key: NodeKey) -> Joined:
        """What a node gets that joins, or asks whether it could, as far as it is durable."""
        node = pipeline.home.nodes.get(key.node_id) or HomeNode(key, "")
        fronts = tuple(
            pipeline.grant(node, front)
            for node_id, front in pipeline.shard.fronts
            if node_id == key.node_id
        )
        return Joined(
            key,
            pipeline.spec,
            node.last_batches(),
            node.previous_node_time,
            fronts,
            pipeline.generation,
            LOWEST_SLOT if pipeline.restart is None else pipeline.floor,
            tuple(node.holds.values()),
        )

    def close_key(
        self, pipeline: str, key: NodeKey, *, evicted: bool = False, retired: bool = False
    ) -> None:
        """Fixes the key's last number; whatever else it sends is refused."""
        node = self._pipelines[pipeline].home.nodes.get(key.node_id)
        last = node.accepted if node is not None and node.key == key else 0
        keeps_places = evicted and not retired and not self._pipelines[pipeline].spec.open
        closed = KeyClosed(pipeline, key, last, evicted, retired, keeps_places)
        self._journal.append_home(closed)

    def leave(self, event: LeaveNode) -> None:
        """Closes the key of a node that has no fronts left; raises Refused otherwise. One that asks again before that is
        durable is not told yet that it has left."""
        pipeline = self._homes.at_home(event.pipeline, event.key.node_id)
        if event.generation not in (None, pipeline.generation):
            raise Refused.of(self.restarted(pipeline, event.key))
        closing = self._journal.pending_of(KeyClosed, event.pipeline)
        if any(entry.key == event.key and not entry.evicted for entry in closing):
            self._confirmations.answer(event.request, None)
            return
        node = self.current(pipeline, event.key, event.generation)
        if node.fronts:
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r}: node {event.key} cannot leave, its fronts "
                f"{sorted(node.fronts)} have not; commit a tick by which they leave",
            )
        if node.held:
            names = sorted(node.held)[:_NAMES_SHOWN]
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {event.pipeline!r}: node {event.key} cannot leave, it has {len(node.held)} holds, "
                f"among them {names}, and nobody else would let go of them; commit a tick that does",
            )
        del pipeline.home.newest[event.key.node_id]
        self.close_key(event.pipeline, event.key)
        self._journal.answer_last(event.request)

    @staticmethod
    def _check_removed(pipeline: Pipeline, cells: Cells) -> None:
        """Raises Refused(INVALID) where some of the cells are in no segment that was removed."""
        spec = pipeline.spec
        for segment in {*cells.segments.tolist()}:
            if spec.segments[segment] not in spec.removed:
                raise Refused(
                    RefusalCode.INVALID,
                    f"pipeline {spec.name!r}: cells of segment number {segment} cannot be written off for no node: that is for "
                    f"segments that were removed, which are {spec.removed[:20]}; name the node that is gone",
                )

    def _check_settled(self, pipeline: str) -> None:
        """Raises Refused(NOT_READY) while shards hand cells over: an entry by the new table would find none where they are to be."""
        if not self._shards.membership.is_done:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {pipeline!r}: nothing can be written off at this moment: the shards have changed, and hand over what is open; "
                "ask again",
            )

    @staticmethod
    def _check_shown(pipeline: Pipeline, event: RetireNode) -> None:
        """Raises Refused(CONFLICT) where a node, or the pipeline, is not the one any more that an operator was shown: what comes
        late, or once more, must not close who has joined since, nor give up what a later generation has in equal cells."""
        name, node = pipeline.spec.name, pipeline.home.nodes.get(event.node_id)
        newest = pipeline.home.newest.get(event.node_id) or (None if node is None else node.key)
        if event.generation not in (None, pipeline.generation):
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r}: node {event.node_id!r} was to be retired as of generation {event.generation}, and it is in "
                f"generation {pipeline.generation}: nothing was done; look again with lowmark explain",
            )
        if newest is not None and event.incarnation not in (None, newest.incarnation):
            raise Refused(
                RefusalCode.CONFLICT,
                f"pipeline {name!r}: node {NodeKey(event.node_id, event.incarnation)} was to be retired, and {newest} has taken its "
                "place: nothing was done; look again with lowmark nodes list",
            )

    def retire(self, event: RetireNode) -> None:
        """Closes a node's key for an operator, and passes on what is to be written off because of it.
        Of a node that is gone already, which was evicted, say, its fronts have left by this."""
        pipeline = self._homes.at_home(event.pipeline, event.node_id)
        self._check_shown(pipeline, event)
        home = pipeline.home
        home.check_write_off(event.write_off)
        if len(event.write_off):
            self._check_settled(event.pipeline)
        if not event.node_id:
            self._check_removed(pipeline, event.write_off)
        key = home.newest.get(event.node_id)
        vacant = pipeline.shard.vacancies.knows(event.node_id)
        if event.node_id and key is None and event.node_id not in home.nodes and not vacant:
            raise Refused(
                RefusalCode.UNKNOWN_NODE,
                f"pipeline {event.pipeline!r}: node {event.node_id!r} cannot be retired: none of this "
                "id has joined, or it has left by itself; lowmark explain lists the nodes",
            )
        if key is not None:
            del home.newest[event.node_id]
            self.close_key(event.pipeline, key, evicted=True, retired=True)
        if len(event.write_off) or key is None:
            self._journal.append_home(
                WrittenOff(
                    event.pipeline,
                    event.node_id,
                    event.write_off,
                    event.at_ms,
                    pipeline.generation,
                )
            )
        self._confirmations.answer(event.request, None)

    def stage(self, event: StageContributions) -> None:
        """Stages what task attempts contributed, each once; raises Refused, changing nothing."""
        pipeline = self._homes.at_home(event.pipeline, event.node_id)
        if event.node_id not in pipeline.home.newest:
            self.check_ended(pipeline, event.node_id)
        waiting: dict[tuple[str, tuple[object, ...]], StagedContribution] = {
            (record.node_id, each.key): each
            for _, record, _ in self._journal.pending
            if isinstance(record, Staged)
            and record.pipeline == event.pipeline
            and record.generation == pipeline.generation
            for each in record.contributions
        }
        try:
            new = pipeline.home.check_staged(event.node_id, event.contributions, waiting)
        except Refused as refused:
            node = pipeline.home.nodes.get(event.node_id)
            if node is not None and refused.refusal.code is RefusalCode.FULL:
                node.refused = refused.refusal.message  # its batch fails by it, and commits no tick
            raise
        staged = Staged(event.pipeline, event.node_id, new, pipeline.generation)
        self._journal.append(staged, event.request)

    def current(self, pipeline: Pipeline, key: NodeKey, generation: int | None = None) -> HomeNode:
        """The node of a key that may commit; raises Refused if there is none or a newer one. generation: the pipeline's, where the
        key is known to be of that."""
        node = pipeline.home.nodes.get(key.node_id)
        newest = pipeline.home.newest.get(key.node_id)
        name = pipeline.spec.name
        if newest == key and node is not None and node.key == key:
            return node
        last = newest or (node.key if node is not None else None)
        given = self.next_incarnation - 1
        if last is not None and not pipeline.home.has_left(key.node_id):
            given = last.incarnation
        if given < key.incarnation:
            raise Refused(
                RefusalCode.LOST,
                f"pipeline {name!r}: node {key} has joined, and this tracker knows of no such joining: "
                "acknowledged records are gone from the store; restore a copy that has them",
            )
        if last is not None and last.incarnation > key.incarnation:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {key} is closed, {last} has taken its place; "
                "only one process may run under a node id",
            )
        if last == key:
            self.check_ended(pipeline, key.node_id)
        if pipeline.restart is not None and generation != pipeline.generation:
            raise Refused(RefusalCode.FENCED, self.restarted(pipeline, key).message)
        raise Refused(
            RefusalCode.UNKNOWN_NODE,
            f"pipeline {name!r}: node {key} has not joined, or has left; join again",
        )

    def check_ended(self, pipeline: Pipeline, node_id: str) -> None:
        """Raises Refused(FENCED) if the last key of an id, which is not the newest any more, was closed
        by others than the node: it was evicted or retired, durable or not."""
        node = pipeline.home.nodes.get(node_id)
        if node is None:
            return
        name, evicted, retired = pipeline.spec.name, node.evicted, node.retired
        for entry in self._journal.pending_entries():
            if isinstance(entry, KeyClosed) and (entry.pipeline, entry.key) == (name, node.key):
                evicted, retired = evicted or entry.evicted, retired or entry.retired
        if retired:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {node.key} was retired by an operator: its key is closed for "
                "good; if it is not gone after all, join again",
            )
        if evicted:
            raise Refused(
                RefusalCode.FENCED,
                f"pipeline {name!r}: node {node.key} was evicted after a silence that the "
                "pipeline does not allow its fronts; join again",
            )

    def restarted(self, pipeline: Pipeline, key: NodeKey) -> Refusal:
        """Why a key of an older generation is refused."""
        return Refusal(
            RefusalCode.FENCED,
            f"pipeline {pipeline.spec.name!r} was restarted: generation {pipeline.generation} begins at "
            f"slot {pipeline.floor}, and node {key} has not joined it; join again, and commit anew what "
            "was published or read from that slot on",
        )

    def fenced(self, pipeline: str, key: NodeKey) -> Refusal:
        """Why a stream of a key that has ended is refused."""
        return Refusal(
            RefusalCode.FENCED,
            f"pipeline {pipeline!r}: node {key.node_id!r} was evicted or retired, or has joined anew "
            f"as {key}",
        )
