"""The cut rule, where reports are late or lost (rules 5 and 6)."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from tests.core.driver import Cluster, HandNode
from tracker.core.cut.vectors import Vectors
from tracker.core.log import ShardReport
from tracker.core.model import PipelineSpec

SPEC = PipelineSpec("p", ("work",), fronts=("a",))
LISTENER, KEEPER, TAKER = 0, 1, 2
OWNER, HOME = 0, 1


def moving(home: int = KEEPER, keeper: int = KEEPER) -> tuple[Cluster, HandNode, int, int]:
    """Three shards and an item in a slot of the keeper, all nodes at home at one shard. Its child will go
    to a slot of TAKER. Returns the cluster, the worker, and the two slots."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    ids = cluster.ids_at(home)
    front, worker = cluster.front(SPEC, next(ids)), cluster.node(SPEC, next(ids))
    parent = next(cluster.slots_of(keeper, 10))
    child = next(cluster.slots_of(TAKER, parent))
    front.commit(created=[(0, parent, 0xA)])
    front.commit(heartbeats={"a": 50})
    assert cluster.agreed(SPEC) == (parent,)
    return cluster, worker, parent, child


def lose_reports(cluster: Cluster, source: int, target: int) -> int:
    """What is under way on a link, but its reports, arrives; returns how many reports were lost."""
    frames = cluster.links[source, target]
    kept = [frame for frame in frames if not isinstance(frame.body, ShardReport)]
    lost = len(frames) - len(kept)
    cluster.links[source, target] = deque(kept)
    cluster.deliver(source, target)
    return lost


def test_an_item_that_moves_between_shards_is_seen_at_one_of_them() -> None:
    """The listener hears that the parent is gone, and from the other shard only what was before."""
    cluster, worker, parent, child = moving()
    cluster.held = {(TAKER, LISTENER)}
    worker.begin(consumed=[(0, parent, 0xA)], created=[(0, child, 0xB)])
    cluster.settle()
    said = cluster.min_times(SPEC)
    assert said[KEEPER] == said[TAKER] == (child,)
    assert said[LISTENER] == (parent,), "the tick has touched it and is outside the listener's cut"
    cluster.held = set()
    cluster.settle()
    assert cluster.agreed(SPEC) == (child,)


def test_a_lost_last_report_is_missed_though_nothing_follows() -> None:
    cluster, worker, parent, child = moving()
    cluster.held = {(KEEPER, LISTENER)}
    worker.begin(consumed=[(0, parent, 0xA)], created=[(0, child, 0xB)])
    cluster.settle()
    assert lose_reports(cluster, KEEPER, LISTENER) > 0
    cluster.held = set()
    assert cluster.min_times(SPEC)[LISTENER] == (parent,)
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    cluster.settle()
    assert cluster.agreed(SPEC) == (child,)


# --- the cut itself -------------------------------------------------------------------------------

shards = st.integers(0, 3)
moves = st.one_of(
    st.tuples(st.just("take"), shards, st.lists(st.tuples(shards, st.integers(0, 6)), max_size=4)),
    st.tuples(st.sampled_from(("add", "remove")), shards),
    st.tuples(st.just("home"), st.integers(4, 5)),
)


@given(st.lists(moves, max_size=30))
def test_the_cut_is_the_least_of_all_vectors_and_never_falls(
    moves: list[tuple[object, ...]],
) -> None:
    vectors, known = Vectors((0, 1)), {0: dict[int, int](), 1: dict[int, int]()}
    due = {0: 0, 1: 0}
    for what, which, *applied in moves:
        assert isinstance(which, int)
        before = dict(due)
        if what == "take" and which in known:
            known[which].update(applied[0])  # type: ignore[call-overload]
        elif what == "add":
            known.setdefault(which, {})
            due.setdefault(which, 0)
            vectors.add_shard(which)
            continue
        elif what == "remove" and known.keys() - {which}:
            known.pop(which, None)
        elif what == "home":
            due.setdefault(which, 0)
            vectors.add_home(which)
            continue
        else:
            continue
        for home, cut in before.items():
            due[home] = max(cut, min(vector.get(home, 0) for vector in known.values()))
        if what == "take":
            assert vectors.take(which, applied[0]) == (due != before)  # type: ignore[arg-type]
        else:
            vectors.remove_shard(which)
        assert vectors.cut == due
        vectors.validate()
