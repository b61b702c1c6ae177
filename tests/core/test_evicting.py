"""Silence counts only over time in which a process could hear, and being alive is said apart (rule 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import MS, Cluster, HandNode
from tracker.core.messages import (
    Append,
    AttachSession,
    DetachSession,
    HomeEntry,
    JoinNode,
    KeyClosed,
    NodeAlive,
    PeerDisconnected,
    Wake,
)
from tracker.core.model import Edge, PipelineSpec, SilentFront
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec(
    "p", ("work", "next"), (Edge("work", "next", 4),), fronts=("a",),
    silent_front=SilentFront.EVICT, evict_after_ms=1_000,
)  # fmt: skip
SHARDS = [1, 2, 3]


def begun(shards: int, config: ProcessConfig | None = None) -> tuple[Cluster, HandNode]:
    """A front that has promised 50, in a pipeline that evicts it after a second."""
    cluster = Cluster(shards, config=config)
    cluster.register(SPEC)
    front = cluster.node(SPEC, "first")
    front.join_front("a")
    front.commit(heartbeats={"a": 50})
    cluster.settle()
    return cluster, front


def evictions(cluster: Cluster) -> int:
    """How many keys were closed after a silence."""
    appended = [e.record for e in cluster.effects if isinstance(e, Append)]
    entries = [r.entry for r in appended if isinstance(r, HomeEntry)]
    return sum(isinstance(entry, KeyClosed) and entry.evicted for entry in entries)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_front_that_is_silent_while_it_can_be_heard_is_evicted(shards: int) -> None:
    cluster, _ = begun(shards)
    cluster.pass_time(900)
    assert not evictions(cluster)
    cluster.pass_time(700)
    assert evictions(cluster) == 1


@pytest.mark.parametrize("pause_ms", [2_000, 60_000])
def test_a_pause_of_the_process_is_no_silence_though_it_wakes_before_it_reads(
    pause_ms: int,
) -> None:
    """What the front had sent meanwhile is queued, and is handled behind the wake."""
    cluster, front = begun(1)
    cluster.pass_time(900)
    cluster.pause(pause_ms)
    cluster.handle(0, Wake())
    front.commit(heartbeats={"a": 60})
    cluster.pass_time(900)
    assert not evictions(cluster)
    assert cluster.agreed(SPEC) == (60, 64)


def test_a_pause_that_is_shorter_than_can_be_seen_evicts_nobody_either() -> None:
    """A front that may be silent for less than a check takes: it is suspected first, and heard then."""
    cluster = Cluster(1)
    spec = replace(SPEC, evict_after_ms=100)
    cluster.register(spec)
    front = cluster.node(spec, "first")
    front.join_front("a")
    for slot in range(50, 60):
        front.commit(heartbeats={"a": slot})
        cluster.pause(cluster.config.evict_check_ms)
    assert not evictions(cluster)
    cluster.pass_time(3 * cluster.config.evict_check_ms)
    assert evictions(cluster) == 1


def test_a_front_that_was_heard_before_a_pause_ended_is_silent_from_then_on() -> None:
    """A pause lets nobody off: whoever does not go on behind it is evicted."""
    cluster, _ = begun(1)
    cluster.pause(60_000)
    cluster.pass_time(900)
    assert not evictions(cluster)
    cluster.pass_time(700)
    assert evictions(cluster) == 1


def test_while_a_process_reads_no_ticks_nobody_is_silent() -> None:
    """Its shell has stopped reading, since another shard confirms nothing."""
    config = ProcessConfig(max_unconfirmed_entries=3)
    cluster, front = begun(2, config)
    home, other = front.home, 1 - front.home
    cluster.held |= {(home, other), (other, home)}
    worker = cluster.node(SPEC, next(n for n in (f"n{i}" for i in range(99))
                                     if cluster.routing.home("p", n) == home))  # fmt: skip
    for _ in range(5):
        worker.commit()
    assert cluster.processes[home].congested
    cluster.pass_time(10_000)
    assert not evictions(cluster)
    cluster.held.clear()
    cluster.settle()
    assert not cluster.processes[home].congested
    cluster.pass_time(900)
    assert not evictions(cluster), "its silence begins when it can be heard again"
    cluster.pass_time(700)
    assert evictions(cluster) >= 1


def test_while_the_store_is_behind_nobody_is_silent() -> None:
    """Nobody can join, and no tick is read once too much waits to be durable."""
    cluster, front = begun(1)
    front.begin()
    for _ in range(30):
        cluster.now_ns += cluster.config.evict_check_ms * MS
        cluster.handle(0, Wake())
    assert not evictions(cluster)
    cluster.settle()
    cluster.pass_time(900)
    assert not evictions(cluster)


def test_a_front_that_waits_for_its_grant_is_not_silent() -> None:
    """A shard is away, for longer than the front may be silent: it can do nothing but wait."""
    cluster = Cluster(2)
    spec = replace(SPEC, fronts=(), front_count=1)
    cluster.register(spec)
    front = cluster.node(spec, "first")
    home, other = front.home, 1 - front.home
    cluster.held |= {(home, other), (other, home)}
    cluster.handle(home, PeerDisconnected(other))
    front.begin(joins={"a": 0})
    cluster.pass_time(10_000)
    assert not evictions(cluster)
    cluster.held.clear()
    cluster.restart(other)
    cluster.settle()
    cluster.pass_time(900)
    assert not evictions(cluster), "its silence begins with its grant"


def test_a_node_that_lost_its_stream_may_find_the_process_again() -> None:
    """A process that was paused has been given up by its nodes, which try to reach it again."""
    cluster, front = begun(1)
    cluster.pause(12_000)
    cluster.handle(0, DetachSession(front.session))
    cluster.pass_time(cluster.config.reconnect_ms)
    assert not evictions(cluster)
    front.attach()
    cluster.pass_time(900)
    assert not evictions(cluster)
    cluster.handle(0, DetachSession(front.session))
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1, "it is silent, and was not kept from being heard"


@pytest.mark.parametrize("shards", SHARDS)
def test_a_front_that_lives_and_promises_nothing_holds_min_time(shards: int) -> None:
    """It publishes for long. Being alive is no promise, and no promise is due for being alive."""
    cluster, front = begun(shards)
    for _ in range(20):
        cluster.pass_time(500)
        cluster.handle(front.home, NodeAlive(front.session))
    assert not evictions(cluster)
    assert cluster.agreed(SPEC) == (50, 54)
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1


def test_being_alive_is_heard_of_the_stream_that_there_is_alone() -> None:
    """Twice, from the past, of nobody: it changes nothing that anyone could see."""
    cluster, front = begun(1)
    older = front.session
    front.attach()
    before = len(cluster.effects)
    for session in (front.session, front.session, older, "nobody"):
        cluster.handle(0, NodeAlive(session))
    assert not [e for e in cluster.effects[before:] if isinstance(e, Append)]
    for _ in range(4):
        cluster.pass_time(500)
        cluster.handle(0, NodeAlive(older))
    assert evictions(cluster) == 1, "an older stream keeps nobody alive"
    cluster.handle(0, NodeAlive(front.session))
    assert cluster.ask(0, JoinNode, "p", "first", "front").fronts == ()


def test_attaching_is_a_sign_of_life() -> None:
    cluster, front = begun(1)
    for number in range(4):
        cluster.pass_time(800)
        cluster.handle(0, AttachSession(f"again-{number}", "p", front.key))
    assert not evictions(cluster)
