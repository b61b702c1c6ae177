"""Who is to blame: from what every process reports of a pipeline to causes, the likeliest first.

A process says what holds a segment: an open slot, a promise, a shard that is behind (`Hold`). Who
stands behind that is known to others: a node's home knows whether the node is there, a store's process
whether its writes come through, and that a shard does not answer, only the one who asked. Here these
are put together. Causes that are certain come before those that are likely: whose the items of an
open slot are, no checksum tells, so nodes that consume from its segment are named by their silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tracker.core.cut.graph import SegmentGraph
from tracker.core.insight.explain import (
    Hold,
    HoldKind,
    MissingTicks,
    NodeExplanation,
    PipelineExplanation,
    SegmentExplanation,
)
from tracker.core.model import NodeKind, PipelineSpec
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.model.waits import WaitCause, WaitKind

SILENT_AFTER_MS = 5_000
"""Of a node that is connected: silent for longer than this, it is taken to be stuck."""
STORE_SLOW_MS = 1_000
"""A write that has lasted longer than this is a cause."""
MAX_CAUSES = 20
"""Of each segment."""


class CauseKind(Enum):
    """Who or what keeps min time. Those of people's graphs and processes, not of the protocol."""

    STORE_AWAY = "store_away"
    """The store of `shards` does not take their writes: nothing becomes durable."""
    SHARD_DOWN = "shard_down"
    """`shards` do not answer."""
    SHARD_CUT_OFF = "shard_cut_off"
    """`shards` answer, and do not hear the others, or are not heard by them."""
    SHARD_LAGS = "shard_lags"
    """`shards` are linked, and have not applied all that the others have; `missing` are the ticks."""
    FRONT_MISSING = "front_missing"
    """`front` is declared and has never joined."""
    FRONT_GONE = "front_gone"
    """The process of `front` has no stream of ticks: it has ended, or cannot reach its home."""
    FRONT_SILENT = "front_silent"
    """`front` is connected, and was not heard for long: it is paused or stuck."""
    FRONT_EVICTED = "front_evicted"
    """`front` was evicted, its segment has no other, and it has neither come back nor been retired:
    without one of both the pipeline is never complete."""
    FRONT_JOINING = "front_joining"
    """`front` joins or leaves, and `shards` have not reported it yet."""
    FRONT_WAITS = "front_waits"
    """`front` is there and goes on, and has promised no more."""
    BATCH_STAGED = "batch_staged"
    """`batch` of `query` has begun, its tasks have reported what they did, and it is not committed."""
    NODE_HOLDS = "node_holds"
    """The node holds time there, by the hold of the name `detail`, without an item in flight."""
    HOLDER_GONE = "holder_gone"
    """The same, and the node has no stream of ticks, or was evicted or retired: nobody lets go of it."""
    NODE_REFUSED = "node_refused"
    """The last tick of the node was refused, or it says that it is; `detail` says why."""
    NODE_WAITS = "node_waits"
    """The node says that it waits for something (`wait`, `detail`), in `batch` if it is a query's."""
    NODE_GONE = "node_gone"
    """A node that consumes there has no stream of ticks: it has ended, or cannot reach its home."""
    NODE_CLOSED = "node_closed"
    """A node that consumed there was evicted or retired (`detail`); what it left open is waited for."""
    NODE_SILENT = "node_silent"
    """A node that consumes there is connected, and has committed nothing for long."""
    NO_READER = "no_reader"
    """No node that is there has ever consumed from the segment."""
    AWAITS_REPLAY = "awaits_replay"
    """The pipeline was restarted, and the fronts or readers of before have not come back."""
    GOES_ROUND = "goes_round"
    """Items go round in a cycle of `segments`; the nodes there are at work."""
    AT_WORK = "at_work"
    """The nodes that consume there are at work."""
    KEPT_OPEN = "kept_open"
    """All is done, no front is left, and the pipeline is declared open: it waits for one."""


AT_EASE = {
    CauseKind.FRONT_WAITS, CauseKind.AT_WORK, CauseKind.KEPT_OPEN, CauseKind.NODE_HOLDS,
}  # fmt: skip
"""Nothing is wrong: min time moves on when they do."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause; which fields count is stated at its kind. segment and slot: where it holds; silent_ms:
    for how long the node or the store was not heard, or the node waits; -1 where that does not count."""

    kind: CauseKind
    segment: int = -1
    slot: int = LOWEST_SLOT
    shards: tuple[int, ...] = ()
    node_id: str = ""
    node_kind: str = ""
    front: str = ""
    query: str = ""
    batch: int = -1
    silent_ms: int = -1
    detail: str = ""
    wait: WaitKind | None = None
    segments: tuple[int, ...] = ()
    missing: tuple[MissingTicks, ...] = ()

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should look after it."""
        return self.kind not in AT_EASE


@dataclass(frozen=True, slots=True)
class SegmentCauses:
    """A segment, as the process sees it that has announced most, and why it stands, the likeliest first."""

    segment: SegmentExplanation
    causes: tuple[Cause, ...]


def diagnose(
    spec: PipelineSpec,
    parts: Sequence[PipelineExplanation],
    silent_shards: Iterable[int],
    silent_after_ms: int = SILENT_AFTER_MS,
) -> tuple[SegmentCauses, ...]:
    """By segment, why its min time stands. parts: what the processes that answered report of it;
    silent_shards: those that did not; silent_after_ms: how long a node may say nothing before that is
    taken for a cause."""
    case = _Case(spec, parts, sorted(silent_shards), silent_after_ms)
    return tuple(
        SegmentCauses(segment, case.causes(segment)) for segment in furthest(spec, case.ranked)
    )


def furthest(spec: PipelineSpec, parts: Iterable[PipelineExplanation]) -> list[SegmentExplanation]:
    """Each segment as the process explains it that has announced most; of several the first."""
    best: dict[str, SegmentExplanation] = {}
    for part in parts:
        for segment in part.segments:
            known = best.get(segment.segment)
            if known is None or segment.min_time > known.min_time:
                best[segment.segment] = segment
    return [best[name] for name in spec.segments if name in best]


class _Case:
    """All that is known of one pipeline."""

    def __init__(
        self,
        spec: PipelineSpec,
        parts: Sequence[PipelineExplanation],
        silent: list[int],
        silent_after_ms: int,
    ) -> None:
        self.spec, self.silent, self.silent_after_ms = spec, silent, silent_after_ms
        self.graph = SegmentGraph(spec)
        self.nodes: dict[str, NodeExplanation] = {}
        for part in parts:
            for node in part.nodes:
                self._add(node)
        self.missing = [missing for part in parts for missing in part.missing]
        self.cells = {part.shard: part.cells for part in parts}
        self.generation = max((part.generation for part in parts), default=0)
        self.unlinked = _unlinked(parts, silent)
        # Of processes that have announced the same, one that hears the others and is not behind knows best.
        behind = _entries_behind(parts)
        self.ranked = sorted(
            parts,
            key=lambda part: (part.shard in self.unlinked, behind.get(part.shard, 0), part.shard),
        )
        self._store = tuple(self._store_causes(parts))

    def _add(self, node: NodeExplanation) -> None:
        known = self.nodes.get(node.key.node_id)
        if known is None or node.key.incarnation > known.key.incarnation:
            self.nodes[node.key.node_id] = node

    # --- putting it together ----------------------------------------------------------------------

    def causes(self, segment: SegmentExplanation) -> tuple[Cause, ...]:
        """The likeliest first, each once."""
        if not segment.holds:
            return ()
        certain: list[Cause] = [*self._store]
        likely: list[Cause] = []
        for hold in segment.holds:
            for cause in self._of(hold, segment.standing_ms):
                (likely if _is_likely(cause) else certain).append(cause)
        # Without all shards nothing moves; and what a silent one knows of its nodes is hidden.
        for kind, away in (
            (CauseKind.SHARD_DOWN, self.silent),
            (CauseKind.SHARD_CUT_OFF, sorted(self.unlinked)),
        ):
            if away and not any(cause.kind is kind for cause in certain):
                certain.append(Cause(kind, shards=tuple(away)))
        certain.sort(key=lambda cause: cause.kind in AT_EASE)
        likely.sort(key=lambda cause: cause.kind in AT_EASE)
        return tuple(dict.fromkeys([*certain, *likely]))[:MAX_CAUSES]

    def _store_causes(self, parts: Iterable[PipelineExplanation]) -> Iterator[Cause]:
        away = [p for p in parts if p.store.waiting_ms >= STORE_SLOW_MS or p.store.error]
        if away:
            yield Cause(
                CauseKind.STORE_AWAY,
                shards=tuple(sorted(part.shard for part in away)),
                silent_ms=max(part.store.waiting_ms for part in away),
                detail=next((part.store.error for part in away if part.store.error), ""),
            )

    def _of(self, hold: Hold, standing_ms: int) -> Iterator[Cause]:
        match hold.kind:
            case HoldKind.OPEN if hold.shard in self.silent or hold.shard in self.unlinked:
                yield self._of_shard(hold)
            case HoldKind.OPEN:
                yield from self._of_open(hold, standing_ms)
            case HoldKind.PROMISE if hold.shard >= 0:
                yield self._of_shard(hold)
            case HoldKind.PROMISE:
                yield self._of_front(hold)
            case HoldKind.BEHIND | HoldKind.UNHEARD:
                yield self._of_shard(hold)
            case HoldKind.JOINING:
                shard = self._of_shard(hold)
                if shard.kind is CauseKind.SHARD_LAGS:
                    shard = Cause(
                        CauseKind.FRONT_JOINING, hold.segment, shards=(hold.shard,),
                        node_id=hold.node_id, front=hold.front,
                    )  # fmt: skip
                yield shard
            case HoldKind.NOT_BEGUN:
                kind = CauseKind.AWAITS_REPLAY if self.generation else CauseKind.FRONT_MISSING
                yield Cause(kind, front=hold.front)
            case HoldKind.VACANT:
                yield Cause(
                    CauseKind.FRONT_EVICTED, hold.segment, hold.slot, node_id=hold.node_id,
                    front=hold.front,
                )  # fmt: skip
            case HoldKind.KEPT_OPEN:
                gone = [n for n in self.nodes.values() if n.gone and n.kind == NodeKind.FRONT]
                detail = ", ".join(f"{node.key.node_id} was {node.gone}" for node in gone)
                yield Cause(CauseKind.KEPT_OPEN, detail=detail)

    def _of_shard(self, hold: Hold) -> Cause:
        """What is wrong with the shard that a hold names."""
        shard = hold.shard
        if shard in self.silent:
            return Cause(CauseKind.SHARD_DOWN, hold.segment, hold.slot, tuple(self.silent))
        if shard in self.unlinked or hold.kind is HoldKind.UNHEARD:
            shards = tuple(sorted(self.unlinked)) or (shard,)
            return Cause(CauseKind.SHARD_CUT_OFF, hold.segment, hold.slot, shards)
        missing = tuple(missing for missing in self.missing if missing.shard == shard)
        return Cause(
            CauseKind.SHARD_LAGS, hold.segment, hold.slot, (shard,), missing=missing,
            node_id=hold.node_id, front=hold.front,
        )  # fmt: skip

    def _of_front(self, hold: Hold) -> Cause:
        node = self.nodes.get(hold.node_id)
        if node is None and self.silent:  # its home is away
            return Cause(CauseKind.SHARD_DOWN, hold.segment, hold.slot, tuple(self.silent))
        kind, detail = CauseKind.FRONT_WAITS, ""
        if node is None or not node.connected:
            kind = CauseKind.FRONT_GONE
        elif node.refused:
            kind, detail = CauseKind.NODE_REFUSED, node.refused
        elif node.waits:
            return _of_wait(hold, node, node.waits[0], hold.front)
        elif node.silent_ms >= self.silent_after_ms:
            kind = CauseKind.FRONT_SILENT
        return Cause(
            kind, hold.segment, hold.slot, node_id=hold.node_id, front=hold.front, detail=detail,
            node_kind=node.kind if node else "", silent_ms=node.silent_ms if node else -1,
        )  # fmt: skip

    # --- open items -------------------------------------------------------------------------------

    def _of_open(self, hold: Hold, standing_ms: int) -> Iterator[Cause]:
        """Who has, or should take, the open items of a segment at a slot."""
        staged = list(self._staged(hold))
        if staged:
            yield from staged
            return
        held = list(self._held(hold))
        yield from held
        if held and self._is_all(hold, len(held)):
            return
        waiting = [
            (node, wait)
            for node in self.nodes.values()
            for wait in node.waits
            if wait.segment == hold.segment or (wait.segment < 0 and hold.segment in node.consumes)
        ]
        for node, wait in waiting:
            yield _of_wait(hold, node, wait)
        known = {node.key for node, _ in waiting}
        readers = [
            node
            for node in self.nodes.values()
            if hold.segment in node.consumes and node.key not in known
        ]
        if not readers:
            if not waiting:
                yield from self._refused(hold)
                yield self._unread(hold)
            return
        kinds = {node.key: self._kind(node) for node in readers}
        at_work = [node for node in readers if kinds[node.key] is CauseKind.AT_WORK]
        if at_work and standing_ms < self.silent_after_ms:
            # Somebody is there and goes on: others are to blame only if it stands all the same.
            yield from self._working(hold, at_work)
            return
        for node in sorted(readers, key=lambda node: (node.connected, -node.silent_ms)):
            if kinds[node.key] is not CauseKind.AT_WORK:
                detail = node.gone or node.refused
                yield _of_node(kinds[node.key], hold, node, detail)
        yield from self._working(hold, at_work)

    def _held(self, hold: Hold) -> Iterator[Cause]:
        """Nodes that hold just this."""
        for node in self.nodes.values():
            for held in node.holds:
                if (held.segment, held.slot) == (hold.segment, hold.slot):
                    gone = node.gone or not node.connected
                    kind = CauseKind.HOLDER_GONE if gone else CauseKind.NODE_HOLDS
                    yield _of_node(kind, hold, node, held.name)

    def _is_all(self, hold: Hold, holds: int) -> bool:
        """Whether what is open in a cell is these holds, by the advisory number of its items."""
        at = (hold.segment, hold.slot)
        counts = [c.items for c in self.cells.get(hold.shard, ()) if (c.segment, c.slot) == at]
        return bool(counts) and counts[0] <= holds

    def _refused(self, hold: Hold) -> Iterator[Cause]:
        """Nodes that are refused: any of them may be the one that would take what nobody takes, or that
        has no room because of it."""
        for node in self.nodes.values():
            if node.connected and node.refused:
                yield _of_node(CauseKind.NODE_REFUSED, hold, node, node.refused)

    def _kind(self, node: NodeExplanation) -> CauseKind:
        if node.gone:
            return CauseKind.NODE_CLOSED
        if not node.connected:
            return CauseKind.NODE_GONE
        if node.refused:
            return CauseKind.NODE_REFUSED
        if node.silent_ms >= self.silent_after_ms:
            return CauseKind.NODE_SILENT
        return CauseKind.AT_WORK

    def _staged(self, hold: Hold) -> Iterator[Cause]:
        """Batches that are staged and hold just this: their tasks have named it."""
        for node in self.nodes.values():
            for batch in node.staged:
                if (hold.segment, hold.slot) in batch.consumes:
                    detail = "" if node.connected else "its node is not connected"
                    yield _of_node(
                        CauseKind.BATCH_STAGED, hold, node, detail, batch.query, batch.batch
                    )

    def _working(self, hold: Hold, nodes: Iterable[NodeExplanation]) -> Iterator[Cause]:
        cycle = self._cycle(hold.segment)
        for node in nodes:
            if cycle and any(segment in cycle for segment in node.creates):
                yield _of_node(CauseKind.GOES_ROUND, hold, node, segments=cycle)
            else:
                yield _of_node(CauseKind.AT_WORK, hold, node)

    def _unread(self, hold: Hold) -> Cause:
        """Nobody that is known has ever consumed from there."""
        if self.silent:  # whoever does may be at home there
            return Cause(CauseKind.SHARD_DOWN, hold.segment, hold.slot, tuple(self.silent))
        idle = [
            node.key.node_id
            for node in self.nodes.values()
            if not (
                node.consumes
                or node.creates
                or node.fronts
                or node.gone
                or node.kind == NodeKind.FRONT
            )
        ]
        detail = f"joined, and has consumed nothing: {', '.join(sorted(idle)[:5])}" if idle else ""
        kind = CauseKind.AWAITS_REPLAY if self.generation else CauseKind.NO_READER
        return Cause(kind, hold.segment, hold.slot, detail=detail)

    def _cycle(self, segment: int) -> tuple[int, ...]:
        """The segments that items of one can go to and come back from; empty if there is no way."""
        names = self.spec.segments
        onward = {*self.graph.reached_from(segment)}
        back = [other for other, _ in self.graph.ways_into(segment) if other in onward]
        own = any(edge.source == edge.target == names[segment] for edge in self.spec.edges)
        return tuple(back) if len(back) > 1 or own else ()


def _of_node(
    kind: CauseKind,
    hold: Hold,
    node: NodeExplanation,
    detail: str = "",
    query: str = "",
    batch: int = -1,
    segments: tuple[int, ...] = (),
) -> Cause:
    return Cause(
        kind, hold.segment, hold.slot, node_id=node.key.node_id, node_kind=node.kind,
        silent_ms=node.silent_ms, detail=detail, query=query, batch=batch, segments=segments,
    )  # fmt: skip


def _of_wait(hold: Hold, node: NodeExplanation, wait: WaitCause, front: str = "") -> Cause:
    """What a node says of itself."""
    refused = wait.kind is WaitKind.REFUSED
    return Cause(
        CauseKind.NODE_REFUSED if refused else CauseKind.NODE_WAITS, hold.segment, hold.slot,
        node_id=node.key.node_id, node_kind=node.kind, front=front, batch=wait.batch,
        silent_ms=node.waits_ms, detail=wait.text, wait=wait.kind,
    )  # fmt: skip


_LIKELY = {
    CauseKind.NODE_GONE, CauseKind.NODE_CLOSED, CauseKind.NODE_SILENT, CauseKind.NO_READER,
    CauseKind.AT_WORK, CauseKind.GOES_ROUND,
}  # fmt: skip


def _is_likely(cause: Cause) -> bool:
    """Whether it is a conclusion: others may have the items, a shard that does not answer say."""
    return cause.kind in _LIKELY


def _unlinked(parts: Sequence[PipelineExplanation], silent: Sequence[int]) -> set[int]:
    """The shards that answer, and miss most links to others that answer."""
    answered = {part.shard for part in parts}
    broken: dict[int, int] = {}
    for part in parts:
        for shard in part.shards:
            if not shard.connected and shard.shard in answered and shard.shard != part.shard:
                for end in (part.shard, shard.shard):
                    broken[end] = broken.get(end, 0) + 1
    most = max(broken.values(), default=0)
    return {shard for shard, links in broken.items() if links == most}


def _entries_behind(parts: Iterable[PipelineExplanation]) -> dict[int, int]:
    """By shard, how many entries it lacks of the home log of which it lacks most."""
    behind: dict[int, int] = {}
    for part in parts:
        for shard in part.shards:
            behind[shard.shard] = max(shard.entries_behind, behind.get(shard.shard, 0))
    return behind
