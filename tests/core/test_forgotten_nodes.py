"""Who was evicted or retired long ago is forgotten with its batches (rules 2, 9), and is told so when it comes back all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.home import home
from tracker.core.home.home import HomeNode, HomePipeline
from tracker.core.log import Joined, JoinNode, RetireNode
from tracker.core.model import Batch, Cells, Edge, NodeKey, PipelineSpec, RefusalCode, SilentFront

SPEC = PipelineSpec(
    "p", ("in", "out"), (), fronts=(), open=True, silent_front=SilentFront.EVICT, evict_after_ms=1_000
)  # fmt: skip
STEP: dict[str, Any] = {"created": [(0, 500, 7)], "batch": Batch("a", 0, b"x")}


def forgotten(cluster: Cluster, spec: PipelineSpec) -> HandNode:
    """A front that was evicted, and forgotten since, of which an item is open."""
    front = cluster.front(spec, "front", promise=100)
    front.commit(**STEP)
    cluster.pass_time(3_000)
    assert cluster.pipeline(front.home).home.nodes["front"].evicted
    at_home = [n for n in map(str, range(30)) if cluster.routing.home("p", n) == front.home][:3]
    for gone in at_home:
        cluster.node(spec, gone)
        assert cluster.ask_home(gone, RetireNode, Cells.empty(), 1) is None
    assert "front" not in cluster.pipeline(front.home).home.nodes
    return front


@pytest.mark.parametrize("shards", [1, 2])
def test_who_comes_back_and_is_forgotten_is_told_so_and_commits_nothing_again(
    monkeypatch: pytest.MonkeyPatch, shards: int, snapshot: bool
) -> None:
    """The pipeline is open, and keeps no place: what the front commits again would cancel what is open."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = forgotten(cluster, SPEC)
    known: dict[str, Any] = {"known_incarnation": front.key.incarnation, "known_ticks": 3}
    cluster.restart_all(from_snapshots=snapshot)
    cluster.settle()
    for only_asks in (True, False):
        again = cluster.join("front", never_left=True, check_only=only_asks, **known)
        refused(again, RefusalCode.LOST, "is forgotten with its batches")
    if shards == 1:
        cluster.join_shard()
        cluster.rescale(2)
        again = cluster.join("front", never_left=True, **known)
        refused(again, RefusalCode.LOST, "is forgotten with its batches")
    # Who has left in order knows by itself what it has committed.
    assert isinstance(cluster.join("front", **known), Joined)
    assert isinstance(cluster.join("front", never_left=True, **known), Joined)


def test_who_is_remembered_or_has_never_joined_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 4)
    cluster = Cluster(1)
    cluster.register(SPEC)
    assert isinstance(cluster.join("new", never_left=True), Joined)
    front = cluster.front(SPEC, "front", promise=100)
    front.commit(**STEP)
    cluster.pass_time(3_000)
    again = cluster.join("front", never_left=True, known_incarnation=front.key.incarnation)
    assert again.last_batches == (STEP["batch"],)


def test_many_that_go_at_once_cost_no_more_than_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them may come back at any time."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 100)
    number, asked = 4_000, 0
    here = HomePipeline(replace(SPEC, open=False))

    def counts(node: HomeNode) -> bool:
        nonlocal asked
        asked += 1
        return int(node.key.node_id) % 2 == 1

    keys = [NodeKey(str(n), n + 1) for n in range(number)]
    for key in keys:
        here.take(HomeNode(key, "front"))
    for key in keys:
        assert here.gone(key, counts) is not None
        assert len(here.nodes) == len({*here.nodes}) >= 100
    left = [int(node_id) for node_id in here.nodes]
    assert [n for n in left if n % 2] == [*range(1, number, 2)]
    last = [n for n in left if not n % 2]
    assert last == [*range(last[0], number, 2)] and 100 <= len(last) <= 100 + 2 * len(left) // 64
    assert asked < 150 * number


def test_a_hold_that_is_open_though_its_cell_was_named_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, shards: int, snapshot: bool
) -> None:
    """An item came into the cell behind the operator's look, so that it stays; then that is consumed, and the hold is left. Nobody
    else could end it."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    spec = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("f",))
    cluster, place = Cluster(shards), (1, 5)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=3, f=0)
    front.commit(created=[(0, 3, 33), (0, 3, 34)], heartbeats={"f": 50})
    worker, other = cluster.node(spec, "worker"), cluster.node(spec, "other")
    worker.commit(consumed=[(0, 3, 33)], holds={"state": place})

    def cell() -> Cells:
        shard = cluster.pipeline(cluster.routing.owner(place[1])).shard
        return Cells.of([(*place, *shard.cells.value(*place))])

    shown = cell()
    other.commit(consumed=[(0, 3, 34)], created=[(*place, 99)])
    assert cluster.ask_home("worker", RetireNode, shown, 0) is None
    other.commit(consumed=[(*place, 99)])
    assert [*cell().rows()] == [*shown.rows()]
    ids = cluster.ids_at(cluster.routing.home("p", "worker"))
    for gone in (next(ids) for _ in range(6)):
        cluster.node(spec, gone)
        assert cluster.ask_home(gone, RetireNode, Cells.empty(), 1) is None
    cluster.restart_all(from_snapshots=snapshot)
    cluster.settle()
    assert cluster.agreed(spec)[1] == place[1]
    assert cluster.ask_home("worker", RetireNode, shown, 0) is None
    assert cluster.agreed(spec) == (50, 50)
    for gone in (next(ids) for _ in range(3)):
        cluster.node(spec, gone)
        assert cluster.ask_home(gone, RetireNode, Cells.empty(), 1) is None
    assert "worker" not in cluster.pipeline(cluster.routing.home("p", "worker")).home.nodes


def test_who_joins_while_others_are_closed_is_not_forgotten_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is closed just then makes its home forget the node, in front of its new key: its last batch would count twice."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    cluster = Cluster(1)
    cluster.register(SPEC)
    node = cluster.front(SPEC, "query", promise=100)
    node.commit(**STEP)
    others = [cluster.node(SPEC, f"other {n}").key.node_id for n in range(4)]
    for gone in ("query", *others[:1]):
        assert cluster.ask_home(gone, RetireNode, Cells.empty(), 1) is None
    for gone in others[1:]:
        cluster.handle(0, RetireNode(gone, "p", gone, Cells.empty(), 1))
    known: dict[str, Any] = {"known_incarnation": node.key.incarnation, "never_left": True}
    cluster.handle(0, JoinNode("again", "p", "query", "front", **known))
    refused(cluster.answers("again")[0], RefusalCode.NOT_READY, "others are closed just now")
    cluster.settle()
    refused(cluster.join("query", **known), RefusalCode.LOST, "is forgotten with its batches")
