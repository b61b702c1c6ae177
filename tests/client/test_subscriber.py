"""Subscribers against real servers: first the value that is, then the tail; never back."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.client.support import (
    Listener,
    consume,
    create,
    done,
    heard_everywhere,
    joined_front,
    never_back,
    promise,
    reaches,
)
from tests.waits import HANG_S
from tracker.client import (
    AsyncSubscriber,
    ClosedError,
    NodeClient,
    RefusedError,
    Subscriber,
    Update,
    waiting,
)
from tracker.client import subscriber as subscriber_module
from tracker.client.embedded import EmbeddedTracker
from tracker.client.history import history
from tracker.client.updates import MinTimes
from tracker.client.waiting import Outcome, wait_complete
from tracker.core.model import RefusalCode
from tracker.core.model.slots import FOREVER


@pytest.fixture
def node(running: EmbeddedTracker) -> Iterator[NodeClient]:
    with NodeClient(running.target, "two", "n") as node:
        yield joined_front(node)


def moved_to(node: NodeClient, slot: int) -> None:
    """The front promises, and everybody who asks may know it."""
    done(node.commit(promise(slot)))
    heard_everywhere(node._connection.targets, "two", slot)


def test_a_late_subscriber_hears_what_is_and_then_what_comes(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    for slot in (10, 20, 30):
        moved_to(node, slot)
    listener = Listener(Subscriber(running.target, "two"))
    listener.until(reaches(30))
    assert {(update.segment, update.min_time) for update in listener.heard} == {
        ("first", 30),
        ("second", 30),
        (None, 30),
    }
    node.commit(promise(40))
    assert listener.until(reaches(40)).min_time == 40
    listener.close()
    assert never_back(listener.heard)


def test_ctrl_c_ends_a_reader_also_where_it_interrupts_no_wait(running: EmbeddedTracker) -> None:
    """As one that comes when the main thread has looked for signals and is about to wait: here another thread gets it."""
    # A command that ran in this process has left a handler of its own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Subscriber(running.target, "two") as subscriber, pytest.raises(KeyboardInterrupt):
            updates = subscriber.updates()
            for _ in range(3):
                next(updates)
            threading.Timer(
                0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            ).start()
            next(updates)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_update_reads_as_a_moment(running: EmbeddedTracker, node: NodeClient) -> None:
    moved_to(node, 150)
    listener = Listener(running.subscriber("two"))
    update = listener.until(reaches(150))
    assert update.time == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert not update.complete
    done(node.leave_front("front"))
    update = listener.until(reaches(FOREVER))
    assert update.complete and update.time is None


def test_min_time_is_asked_for_as_a_moment_too(running: EmbeddedTracker, node: NodeClient) -> None:
    moved_to(node, 150)
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert running.subscriber("two").min_moment("first") == at

    async def asked() -> datetime | None:
        async with AsyncSubscriber(running.target, "two") as subscriber:
            return await subscriber.min_moment()

    assert asyncio.run(asked()) == at
    before, beyond = history(running.target, "two", [at, at.replace(second=2)])
    assert (before.slot, before.reached) == (150, True)
    assert (beyond.slot, beyond.reached) == (250, False)
    assert running.admin().explain("two", at=at).at == 150
    done(node.leave_front("front"))
    assert running.subscriber("two").wait_until(FOREVER, timeout_s=HANG_S)
    assert running.subscriber("two").min_moment() is None


def test_a_subscriber_of_some_segments_hears_of_these_and_of_the_pipeline(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    done(node.commit(create(5, 1, segment=1)))
    done(node.commit(promise(20)))
    listener = Listener(running.subscriber("two", ["first"]))
    listener.until(reaches(20, "first"))
    listener.until(reaches(5))
    node.commit(consume(5, 1, segment=1))
    listener.until(reaches(20))
    assert {update.segment for update in listener.heard} == {"first", None}
    assert never_back(listener.heard)


def test_each_iteration_begins_with_what_is(running: EmbeddedTracker, node: NodeClient) -> None:
    moved_to(node, 10)
    subscriber = running.subscriber("two")
    for _ in range(2):
        first = {}
        for update in subscriber.updates():
            first[update.segment] = update.min_time
            if len(first) == 3:
                break
        assert first == {"first": 10, "second": 10, None: 10}


def sets_at_60(
    event: threading.Event | asyncio.Event,
    subscriber: Subscriber | AsyncSubscriber,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event is set when the subscriber has heard that min time is at 60, be it read or not."""
    hear = subscriber._heard.hear

    def hear_and_set(message: MinTimes) -> None:
        hear(message)
        if message.min_time >= 60:
            event.set()

    monkeypatch.setattr(subscriber._heard, "hear", hear_and_set)


def test_who_reads_slowly_is_given_the_newest_and_not_all_in_between(
    running: EmbeddedTracker, node: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = running.subscriber("two")
    heard_last = threading.Event()
    sets_at_60(heard_last, subscriber, monkeypatch)
    updates = subscriber.updates()
    first = next(updates)
    for slot in range(11, 61):
        moved_to(node, slot)
    assert heard_last.wait(HANG_S), "it hears though nobody reads"
    rest = [next(updates) for _ in range(3)]
    assert {update.min_time for update in rest} == {60}
    assert {update.segment for update in rest} == {"first", "second", None}
    assert first.min_time < 11


def test_asking_takes_no_update_from_who_listens(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    """Each call asks the next process, and none is behind what another has said."""
    subscriber, told = running.subscriber("two"), list[int]()
    listener = Listener(subscriber)
    for slot in range(10, 60, 10):
        node.commit(promise(slot))
        assert subscriber.wait_until(slot, timeout_s=HANG_S)
        told += [subscriber.min_time(), subscriber.min_time("first")]
        assert told[-2] >= slot and told == sorted(told)
        listener.until(reaches(slot))
    assert never_back(listener.heard)


def test_a_subscriber_goes_on_when_its_process_is_killed(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    listener = Listener(running.subscriber("two"))
    slot = 0
    for shard in range(len(running.addresses)):
        slot += 10
        node.commit(promise(slot))
        listener.until(reaches(slot))
        running.kill_shard(shard)
        running.start_shard(shard)
    node.commit(promise(slot + 5))
    listener.until(reaches(slot + 5))
    assert never_back(listener.heard)


def test_waiting_ends_when_it_is_true_and_when_time_is_up(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    subscriber = running.subscriber("two")
    assert not subscriber.wait_until(10, timeout_s=0.05)  # expires: it is not so yet
    outcome: list[bool] = []
    waiting = threading.Thread(
        target=lambda: outcome.append(subscriber.wait_until(10, "second", timeout_s=HANG_S))
    )
    waiting.start()
    done(node.commit(create(9, 1)))
    done(node.commit(promise(10)))
    assert not subscriber.wait_until(10, "second", timeout_s=0.05)  # expires: it is not so yet
    assert outcome == []
    node.commit(consume(9, 1))
    waiting.join(HANG_S)
    assert outcome == [True]


def test_a_wait_of_no_time_says_whether_it_is_so_now(
    running: EmbeddedTracker, node: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who looks now and then does, each time anew; and who comes back behind a deadline."""
    for module in (subscriber_module, waiting):
        monkeypatch.setattr(module, "LOOK_TIMEOUT_S", HANG_S)
    moved_to(node, 10)
    moment = datetime.fromtimestamp(0.1, UTC)
    for until, is_so in ((10, True), (11, False), (moment, True)):
        with Subscriber(running.target, "two") as subscriber:
            assert subscriber.wait_until(until, "second", timeout_s=0) is is_so
    with (
        Subscriber(running.target, "two") as subscriber,
        pytest.raises(RefusedError, match="third"),
    ):
        subscriber.wait_until(1, "third", timeout_s=0)

    async def look(until: int) -> bool:
        async with AsyncSubscriber(running.target, "two") as subscriber:
            return await subscriber.wait_until(until, timeout_s=0)

    assert asyncio.run(look(10)) and not asyncio.run(look(11))
    waited = wait_complete(running.target, "two", 10, timeout_s=0)
    assert waited.outcome is Outcome.REACHED
    waited = wait_complete(running.target, "two", 11, timeout_s=0)
    assert waited.outcome is Outcome.TIMED_OUT


def test_waiting_for_a_moment_means_all_slots_that_begin_before_it(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    subscriber = running.subscriber("two")
    moved_to(node, 100)
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert subscriber.wait_until(second, timeout_s=HANG_S)
    assert not subscriber.wait_until(
        second.replace(microsecond=1), timeout_s=0.05
    )  # expires: it is not so yet
    assert subscriber.wait_until(second.replace(tzinfo=None), timeout_s=HANG_S)


def test_waiting_outlives_its_process(running: EmbeddedTracker, node: NodeClient) -> None:
    subscriber = running.subscriber("two")
    done(node.commit(promise(10)))
    for shard in range(len(running.addresses)):
        running.stop_shard(shard)
    assert not subscriber.wait_until(500, timeout_s=0.2)  # expires: it is not so yet
    for shard in range(len(running.addresses)):
        running.start_shard(shard)
    assert subscriber.wait_until(10, timeout_s=HANG_S)


def test_what_is_unknown_is_refused_by_name(running: EmbeddedTracker) -> None:
    nowhere = running.subscriber("nowhere")
    for ask in (
        lambda: next(nowhere.updates()),
        lambda: nowhere.min_time(None),
        lambda: nowhere.wait_until(1),
    ):
        with pytest.raises(RefusedError, match="'nowhere'") as error:
            ask()
        assert error.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    for ask in (
        lambda: next(running.subscriber("two", ["third"]).updates()),
        lambda: running.subscriber("two").min_time("third"),
        lambda: running.subscriber("two").wait_until(1, "third"),
    ):
        with pytest.raises(RefusedError, match="no segment 'third'"):
            ask()


def test_closing_ends_whoever_listens_or_waits(running: EmbeddedTracker) -> None:
    subscriber = Subscriber(running.target, "two")
    listener = Listener(subscriber)
    listener.until(reaches(0))
    failure: list[BaseException] = []

    def wait() -> None:
        try:
            subscriber.wait_until(10)
        except ClosedError as error:
            failure.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    listener.close()
    waiting.join(HANG_S)
    assert not waiting.is_alive() and len(failure) == 1


def test_an_asyncio_reader_that_is_slow_is_given_the_newest(
    running: EmbeddedTracker, node: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read() -> list[Update]:
        async with AsyncSubscriber(running.target, "two") as subscriber:
            heard_last = asyncio.Event()
            sets_at_60(heard_last, subscriber, monkeypatch)
            updates = subscriber.updates()
            await anext(updates)
            for slot in range(11, 61):
                await asyncio.to_thread(moved_to, node, slot)
            await asyncio.wait_for(heard_last.wait(), HANG_S)
            return [await anext(updates) for _ in range(3)]

    rest = asyncio.run(read())
    assert {update.min_time for update in rest} == {60}
    assert {update.segment for update in rest} == {"first", "second", None}


def test_the_asyncio_subscriber_hears_waits_and_ends(
    running: EmbeddedTracker, node: NodeClient
) -> None:
    async def listen() -> None:
        async with AsyncSubscriber(running.target, "two") as subscriber:
            heard = []
            updates = subscriber.updates()
            async for update in updates:
                heard.append(update)
                if reaches(0)(update):
                    break
            assert not await subscriber.wait_until(10, timeout_s=0.05)  # expires: it is not so yet
            await asyncio.to_thread(lambda: done(node.commit(promise(100))))
            assert await subscriber.wait_until(100, timeout_s=HANG_S)
            # Another process may be asked, which has to hear of it first.
            assert await subscriber.wait_until(100, "second", timeout_s=HANG_S)
            assert await subscriber.min_time("second") == 100
            second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
            assert await subscriber.wait_until(second, timeout_s=HANG_S)
            await asyncio.to_thread(running.kill_shard, 0)
            await asyncio.to_thread(running.start_shard, 0)
            await asyncio.to_thread(lambda: done(node.commit(promise(200))))
            async for update in subscriber.updates():
                if reaches(200)(update):
                    break
            await updates.aclose()  # type: ignore[attr-defined]
            assert {update.segment for update in heard} == {"first", "second", None}
            with pytest.raises(RefusedError, match="no segment 'third'"):
                await subscriber.min_time("third")
            listening = asyncio.ensure_future(drain(subscriber))
            await asyncio.sleep(0)
        await asyncio.wait_for(listening, HANG_S)

    async def drain(subscriber: AsyncSubscriber) -> None:
        async for _ in subscriber.updates():
            pass

    asyncio.run(listen())
