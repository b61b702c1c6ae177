"""Who may join under a node id that is in use (rule 9): the same query again, and no other."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.admission import nodes
from tracker.core.log import (
    DetachSession,
    HomeEntry,
    Joined,
    JoinNode,
    KeyOpened,
    RestartPipeline,
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


def test_an_attempt_to_join_that_comes_late_closes_no_key_of_the_same_joining() -> None:
    """The first attempt was not answered in time, the second one was, and its key is at work when the first one comes."""
    cluster = running()
    node = at_work(cluster, "one", joining="this")
    late = join(cluster, "one", joining="this")
    assert isinstance(late, Joined) and late.key == node.key
    node.commit(created=[(0, 5, 7)])
    assert _opened(cluster) == 1
    assert at_work(cluster, "one", joining="next").key.incarnation == 2


def test_an_attempt_to_join_that_comes_late_closes_no_key_of_a_later_joining() -> None:
    cluster = running()
    at_work(cluster, "one", joining="this")
    later = at_work(cluster, "one", joining="next")
    late = join(cluster, "one", joining="this")
    refused(late, RefusalCode.FENCED, f"{later.key} has taken its place")
    later.commit(created=[(0, 5, 7)])


def test_an_attempt_to_join_that_comes_when_its_node_has_left_opens_no_key() -> None:
    """Nobody would ever close it, and it would count against the limit."""
    cluster = running()
    for wait_ms in (0, 10_000):
        node = at_work(cluster, "one", joining=f"{wait_ms}")
        assert node.leave() is None
        cluster.pass_time(wait_ms)
        late = join(cluster, "one", joining=f"{wait_ms}")
        refused(late, RefusalCode.FENCED, f"{node.key} is closed, it has left")
    assert isinstance(join(cluster, "one", joining="next"), Joined)


def test_no_attempt_to_join_is_answered_before_its_key_is_durable() -> None:
    cluster = running()
    cluster.handle(0, JoinNode("x", "p", "n", "query", "one", joining="this"))
    cluster.handle(0, JoinNode("y", "p", "n", "query", "one", joining="this"))
    (soon,) = cluster.answers("y")
    refused(soon, RefusalCode.NOT_READY, "not durable yet")
    cluster.settle()
    again = join(cluster, "one", joining="this")
    assert cluster.answers("x") == [again]


def test_a_joining_that_is_asked_for_again_in_a_later_generation_gets_a_key_of_that() -> None:
    cluster = running()
    node = at_work(cluster, "one", joining="this")
    registrar = cluster.routing.registrar("p")
    cluster.ask(registrar, partial(RestartPipeline, at_ms=1), "p", 0, None)
    again = at_work(cluster, "one", joining="this")
    assert again.key != node.key
    later = at_work(cluster, "one", joining="next")
    refused(join(cluster, "one", joining="this"), RefusalCode.FENCED)
    later.commit(created=[(0, 5, 7)])


def test_joinings_are_known_by_names_of_a_bounded_length_and_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = running()
    refused(
        join(cluster, "one", joining="x" * 65), RefusalCode.INVALID, "at most 64 characters, got 65"
    )
    monkeypatch.setattr(nodes, "KEPT_JOININGS", 2)
    keys = [at_work(cluster, "one", joining=name).key for name in ("a", "b", "c", "a")]
    assert [key.incarnation for key in keys] == [1, 2, 3, 4], "the oldest one is forgotten"


def test_an_owner_of_any_length_is_not_taken() -> None:
    cluster = running()
    refused(join(cluster, "x" * 1025), RefusalCode.INVALID, "an owner at most 1024")


def _opened(cluster: Cluster) -> int:
    return sum(
        isinstance(record, HomeEntry) and isinstance(record.entry, KeyOpened)
        for shard in cluster.stored
        for _, record in [*cluster.stored[shard], *cluster.pending[shard]]
    )
