"""The nodes of a pipeline, listed: how each stands with its home, and which of them are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tracker.core.insight.describe import FrontDescription, PipelineDescription
from tracker.core.insight.diagnosis import SILENT_AFTER_MS
from tracker.core.insight.explain import NodeExplanation, PipelineExplanation
from tracker.core.model import NodeKey, PipelineSpec
from tracker.core.model.slots import FOREVER, LOWEST_SLOT


class NodeState(StrEnum):
    """How a node stands with its home."""

    GONE = "gone"
    """It has no stream of ticks: it has ended, or cannot reach its home. It goes on if it comes back."""
    EVICTED = "evicted"
    """It was closed after a silence. It may join again."""
    SILENT = "silent"
    """It has a stream, and no tick has come for SILENT_AFTER_MS or more: it is paused or stuck, or has nothing to do."""
    LIVE = "live"
    """It has a stream, and commits."""
    RETIRED = "retired"
    """An operator has closed it for good."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node. home: the shard that it commits to; known: what its home knows of it; promise: the least slot that its
    fronts promise, None where it has none, or none has promised."""

    home: int
    known: NodeExplanation
    promise: int | None

    @property
    def node_id(self) -> str:
        return self.known.key.node_id

    @property
    def state(self) -> NodeState:
        if self.known.gone:
            return NodeState(self.known.gone)
        if not self.known.connected:
            return NodeState.GONE
        return NodeState.SILENT if self.known.silent_ms >= SILENT_AFTER_MS else NodeState.LIVE

    @property
    def slot(self) -> int | None:
        """Where it keeps min time by itself: the least of what it promises and of what it holds. None if nowhere."""
        slots = [held.slot for held in self.known.holds]
        return min([*slots, *([] if self.promise is None else [self.promise])], default=None)


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of a pipeline: the gone ones first, and the longest silent of each state. omitted: how many there are
    that are not closed and not listed, since a shard lists MAX_EXPLAINED_NODES of its own, the longest silent;
    silent_shards: those whose nodes are not listed, by number with what went wrong; generation: of the pipeline."""

    spec: PipelineSpec
    nodes: tuple[NodeInfo, ...]
    omitted: int
    silent_shards: dict[int, str]
    generation: int = 0

    def newest_key(self, node_id: str) -> NodeKey | None:
        """The newest key of a node that is listed; None if it is not."""
        keys = (node.known.key for node in self.nodes if node.node_id == node_id)
        return max(keys, key=lambda key: key.incarnation, default=None)

    def gone(self, silent_for_ms: int, kind: str = "") -> tuple[NodeInfo, ...]:
        """Those that are gone or evicted, and have committed nothing for so many milliseconds; of a kind alone, if one is
        given. Since when a node has no stream nobody knows: one that had nothing to do is silent for longer."""
        return tuple(
            node
            for node in self.nodes
            if node.state in (NodeState.GONE, NodeState.EVICTED)
            and node.known.silent_ms >= silent_for_ms
            and kind in ("", node.known.kind)
        )


def listed(
    spec: PipelineSpec,
    state: PipelineDescription,
    parts: Iterable[PipelineExplanation],
    silent_shards: dict[int, str],
) -> NodeList:
    """The nodes out of what shards explain of a pipeline, and its state, which has all keys and promises."""
    promises = _promises(state.fronts)
    nodes = [
        NodeInfo(part.shard, known, promises.get(known.key.node_id))
        for part in parts
        for known in part.nodes
    ]
    order = list(NodeState)
    nodes.sort(key=lambda node: (order.index(node.state), -node.known.silent_ms))
    shown = {node.node_id for node in nodes}
    omitted = sum(node.key.node_id not in shown for node in state.nodes)
    return NodeList(spec, tuple(nodes), omitted, silent_shards, state.generation)


def _promises(fronts: Iterable[FrontDescription]) -> dict[str, int]:
    """By id of a node the least that its fronts promise."""
    least: dict[str, int] = {}
    for front in fronts:
        if front.settled and LOWEST_SLOT < front.heartbeat < FOREVER:
            known = least.get(front.node_id, front.heartbeat)
            least[front.node_id] = min(known, front.heartbeat)
    return least
