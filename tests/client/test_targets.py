"""Which process of a tracker is asked next."""

from __future__ import annotations

import asyncio

import pytest

import tracker
from tests.waits import until
from tracker.client import AsyncSubscriber, Subscriber, targets
from tracker.client.connection import MAX_OLDER_CHANNELS
from tracker.client.targets import MAX_LEARNED, Targets
from tracker.core.model import PipelineSpec


def some(asked: Targets, count: int) -> list[str]:
    return [asked.next() for _ in range(count)]


def test_those_that_were_named_are_asked_by_turns() -> None:
    asked = Targets(["a:1", "b:1"])
    asked.learn(["c:1"])
    for _ in range(3):
        assert asked.next() in ("a:1", "b:1")
        asked.answered()


def test_one_that_another_has_named_is_asked_next_and_once() -> None:
    asked = Targets(["a:1"])
    asked.suggest("b:1")
    assert some(asked, 2) == ["b:1", "a:1"]
    asked.suggest("")
    assert asked.next() != ""


def test_others_are_asked_in_between_when_none_of_those_that_were_named_answers() -> None:
    asked = Targets(["a:1", "b:1"])
    asked.learn(["c:1", "d:1", "a:1"])
    assert some(asked, 8) == ["a:1", "b:1", "c:1", "a:1", "d:1", "b:1", "c:1", "a:1"]
    asked.answered()
    assert some(asked, 2) == ["b:1", "a:1"]


def test_what_is_heard_last_counts_and_is_bounded() -> None:
    asked = Targets(["a:1"])
    asked.learn([f"host-{number}:1" for number in range(2 * MAX_LEARNED)])
    heard = {address for address in some(asked, 4 * MAX_LEARNED) if address != "a:1"}
    assert heard == {f"host-{number}:1" for number in range(MAX_LEARNED, 2 * MAX_LEARNED)}
    asked.learn(["new:1"], all_there_are=True)
    assert {*some(asked, 6)} == {"a:1", "new:1"}


def test_a_subscriber_that_was_given_one_process_finds_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "LEARN_AFTER_S", 0.0)
    with tracker.embedded(shards=2) as running:
        running.register(PipelineSpec("p", ("in",), fronts=("f",)))
        second = running.addresses[1]
        with Subscriber(second, "p") as subscriber:
            before = subscriber.min_time()
            until(lambda: subscriber._connection._others._learned)
            running.kill_shard(1)
            assert subscriber.min_time() == before

        async def alone() -> None:
            async with AsyncSubscriber(running.addresses[0], "p") as subscriber:
                await subscriber.min_time()
                assert subscriber._connection.learning is not None
                await subscriber._connection.learning
                assert subscriber._connection._others._learned == [second]

        asyncio.run(alone())


def test_a_client_lets_go_of_processes_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives for long meets many addresses: owners move, and so do pods."""
    for name in ("LEARN_AFTER_S", "LEARN_INTERVAL_S"):
        monkeypatch.setattr(targets, name, 0.0)
    with tracker.embedded() as running:
        running.register(PipelineSpec("p", ("in",), fronts=("f",)))
        with Subscriber(running.target, "p") as subscriber:
            connection = subscriber._connection
            for port in range(1, 3 * MAX_OLDER_CHANNELS):
                connection.channel(f"127.0.0.1:{port}")
                subscriber.min_time()
                until(lambda: connection._channels.keys() <= {running.target})
            subscriber.min_time()
            assert len(connection._gone) <= MAX_OLDER_CHANNELS + 1
