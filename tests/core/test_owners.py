"""Who may join under a node id that is in use (rule 9): the same query again, and no other."""

from __future__ import annotations

from typing import Any

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.log import (
    DetachSession,
    HomeEntry,
    Joined,
    JoinNode,
    KeyOpened,
    SessionRefused,
)
from tracker.core.model import Batch, NodeKey, PipelineSpec, Refusal, RefusalCode

SPEC = PipelineSpec("p", ("a", "b"), (), open=True, start_slot=0)


def running(shards: int = 1) -> Cluster:
    cluster = Cluster(shards)
    cluster.register(SPEC)
    return cluster


def join(cluster: Cluster, owner: str, **more: Any) -> object:
    return cluster.join("n", "query", owner=owner, **more)


def at_work(cluster: Cluster, owner: str, **more: Any) -> HandNode:
    """A node whose session lives."""
    return cluster.node(SPEC, "n", "query", owner=owner, **more)


def assert_refused(answer: object) -> None:
    refused(answer, RefusalCode.CONFLICT, "'one'", "'other'", "take_over=True")


def test_another_query_does_not_end_one_that_runs() -> None:
    cluster = running()
    node = at_work(cluster, "one")
    assert_refused(join(cluster, "other"))
    node.commit(created=[(0, 5, 7)])
    assert not [e for e in cluster.effects if isinstance(e, SessionRefused)]


def test_another_query_takes_over_where_it_says_so() -> None:
    cluster = running()
    node = at_work(cluster, "one")
    node.commit(batch=Batch("one", 3, b"f"))
    later = at_work(cluster, "other", take_over=True)
    assert later.joined.last_batches == (Batch("one", 3, b"f"),)
    refused(node.ended, RefusalCode.FENCED)
    again = join(cluster, "one")
    assert isinstance(again, Refusal) and "'other'" in again.message


def test_the_same_query_and_who_does_not_say_what_it_runs_for_join_as_ever() -> None:
    cluster = running()
    at_work(cluster, "one")
    at_work(cluster, "one")
    at_work(cluster, "")
    at_work(cluster, "other")


def test_a_query_whose_session_is_over_is_in_nobodys_way() -> None:
    cluster = running()
    node = at_work(cluster, "one")
    cluster.handle(node.home, DetachSession(node.session))
    at_work(cluster, "other")


def test_asking_whether_one_may_join_changes_nothing() -> None:
    cluster = running()
    assert join(cluster, "one", check_only=True) == Joined(
        NodeKey("n", 0), SPEC, (), 0, (), 0, -(2**63)
    )
    node = at_work(cluster, "one")
    node.commit(batch=Batch("one", 3, b"f"))
    opened = _opened(cluster)
    asked = join(cluster, "one", check_only=True)
    assert isinstance(asked, Joined) and asked.key == node.joined.key
    assert asked.last_batches == (Batch("one", 3, b"f"),)
    assert_refused(join(cluster, "other", check_only=True))
    taken = join(cluster, "other", take_over=True, check_only=True)
    assert isinstance(taken, Joined) and taken.key == node.joined.key
    assert _opened(cluster) == opened
    node.commit(created=[(0, 5, 7)])


def test_two_that_join_at_once_are_told_keys_of_their_own() -> None:
    cluster = running()
    cluster.handle(0, JoinNode("x", "p", "n", "query", "one"))
    cluster.handle(0, JoinNode("y", "p", "n", "query", "one"))
    cluster.settle()
    given = cluster.answers("x") + cluster.answers("y")
    assert [told.key.incarnation for told in given] == [1, 2]


def test_an_owner_of_any_length_is_not_taken() -> None:
    cluster = running()
    refused(join(cluster, "x" * 1025), RefusalCode.INVALID, "an owner at most 1024")


def _opened(cluster: Cluster) -> int:
    return sum(
        isinstance(record, HomeEntry) and isinstance(record.entry, KeyOpened)
        for shard in cluster.stored
        for _, record in [*cluster.stored[shard], *cluster.pending[shard]]
    )
