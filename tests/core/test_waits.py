"""What a node says that it waits for: kept at its home while its session lasts, and decides nothing."""

from __future__ import annotations

import pytest

from tests.core.driver import MS, Cluster, HandNode, plain
from tests.core.test_explain import SPEC, begun, explained
from tracker.core.insight.explain import NodeExplanation
from tracker.core.log import DetachSession, Effect, ReportWaits, SessionRefused
from tracker.core.model import RefusalCode
from tracker.core.model.waits import MAX_WAIT_CHARACTERS, MAX_WAITS, WaitCause, WaitKind

A_WAIT = WaitCause(WaitKind.NOT_TOLD, "offsets 0..9 of topic orders", segment=0, batch=3)
ANOTHER = WaitCause(WaitKind.WRITER_BEHIND, "batch 2 of its writer")


def a_query() -> tuple[Cluster, HandNode]:
    cluster, *_ = begun(1)
    return cluster, cluster.node(SPEC, "etl", kind="query")


def say(query: HandNode, *waits: WaitCause, session: str = "") -> list[Effect]:
    return query.cluster.handle(query.home, ReportWaits(session or query.session, waits))


def told(query: HandNode) -> NodeExplanation:
    nodes = explained(query.cluster, query.home).nodes
    (found,) = [node for node in nodes if node.key.node_id == "etl"]
    return found


def test_what_was_said_last_counts_and_since_when_it_waits() -> None:
    cluster, query = a_query()
    assert not told(query).waits
    say(query, A_WAIT)
    cluster.now_ns += 5_000 * MS
    say(query, A_WAIT)  # twice
    say(query, ANOTHER)
    assert (told(query).waits, told(query).waits_ms) == ((ANOTHER,), 5_000)
    say(query)
    assert (told(query).waits, told(query).waits_ms) == ((), 0)


def test_it_ends_with_the_session_and_an_older_one_says_nothing() -> None:
    cluster, query = a_query()
    say(query, A_WAIT)
    older = query.session
    query.attach()
    assert not told(query).waits
    assert say(query, A_WAIT, session=older) == [] and not told(query).waits
    say(query, A_WAIT)
    cluster.handle(query.home, DetachSession(query.session))
    assert not told(query).waits
    assert say(query, A_WAIT, session="never attached") == []


def test_it_is_not_durable_and_decides_nothing() -> None:
    cluster, query = a_query()
    before = plain(cluster.processes[0].snapshot())
    assert say(query, A_WAIT) == []
    assert plain(cluster.processes[0].snapshot()) == before
    query.commit(consumed=[(0, 70, 5)])
    assert told(query).waits == (A_WAIT,), "a tick does not end it: it may be of another batch"


@pytest.mark.parametrize(
    ("waits", "named"),
    [
        ((A_WAIT,) * (MAX_WAITS + 1), f"the limit is {MAX_WAITS}"),
        ((WaitCause(WaitKind.OTHER, "x" * (MAX_WAIT_CHARACTERS + 1)),), "501 characters"),
        ((WaitCause(WaitKind.OTHER, ""),), "0 characters"),
        ((WaitCause(WaitKind.OTHER, "x", segment=2),), "segment number 2"),
        ((WaitCause(WaitKind.OTHER, "x", segment=-2),), "segment number -2"),
    ],
)
def test_what_is_more_than_may_be_said_ends_the_session(
    waits: tuple[WaitCause, ...], named: str
) -> None:
    _, query = a_query()
    say(query, ANOTHER)
    (refused,) = say(query, *waits)
    assert isinstance(refused, SessionRefused)
    assert refused.refusal.code is RefusalCode.INVALID and named in refused.refusal.message
    assert not told(query).waits and not told(query).connected
    query.attach()
    query.commit(consumed=[(0, 70, 5)])
