"""A relay passes on what a tracker announces: all of it, nothing else, and to whoever may hear it."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from lowmark import history
from tests.client.support import (
    TWO_SEGMENTS,
    create,
    delete,
    done,
    joined_front,
    promise,
    use_again,
)
from tests.cluster.children import Running
from tests.cluster.network import NOBODY, fresh_address
from tests.cluster.relaying import relay
from tests.cluster.tracker import Tracker
from tests.security.serving import Served, serving, wait_for
from tests.service.scraping import promtool_finds, samples_of, text_of, text_when, value
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.client import Admin, NodeClient, RefusedError, SecureTarget, Subscriber
from tracker.client.connection import AsyncConnection
from tracker.client.refusals import refusal_of
from tracker.client.updates import subscribe_request
from tracker.core.model import Edge, RefusalCode, Refused
from tracker.errors import LowmarkError
from tracker.metrics.latencies import Latencies
from tracker.metrics.names import PROCESS
from tracker.service.relaying import Relay, RelayServicer
from tracker.service.rpc.limits import Quotas
from tracker.service.rpc.progress import PROGRESS, Hub


@pytest.fixture
def relayed(running: EmbeddedTracker, tmp_path: Path) -> Iterator[str]:
    with relay(running.target, tmp_path) as address:
        yield address


def test_what_is_announced_is_heard_asked_for_and_waited_for(
    running: EmbeddedTracker, relayed: str
) -> None:
    front = joined_front(running.node("two", "f", "front"))
    with Subscriber(relayed, "two") as hears, Subscriber(relayed, "two") as asks:
        updates = hears.updates()
        for slot in (7, 9):
            done(front.commit(promise(slot)))
            assert asks.wait_until(slot, "second", HANG_S)
            while (update := next(updates)).segment is not None or update.min_time < slot:
                assert update.min_time <= slot
            assert asks.min_times() == {"first": slot, "second": slot, None: slot}
        found = history(relayed, "two", [7, 9])
        assert len(found) == 2 and found == history(running.target, "two", [7, 9])


def test_what_is_open_holds_here_too(running: EmbeddedTracker, relayed: str) -> None:
    front = joined_front(running.node("two", "f", "front"))
    done(front.commit(create(5, 1)))
    done(front.commit(promise(20)))
    with Subscriber(relayed, "two") as subscriber:
        assert subscriber.wait_until(5, timeout_s=HANG_S)
        assert not subscriber.wait_until(6, timeout_s=0.2)  # expires: it is open


def test_the_tracker_has_one_subscriber_however_many_listen_here(tmp_path: Path) -> None:
    with Tracker(tmp_path / "tracker", metrics=True) as processes:
        processes.register(TWO_SEGMENTS)
        with relay(processes.target, tmp_path) as address, ExitStack() as stack:
            for _ in range(20):
                subscriber = stack.enter_context(Subscriber(address, "two"))
                next(subscriber.updates())
            samples = samples_of(text_of(processes.shards[0].metrics))
            assert value(samples, "lowmark_subscribers", pipeline="two") == 1


ANNOUNCED = {
    "lowmark_pipeline_complete", "lowmark_pipeline_generation", "lowmark_segment_min_time_timestamp_seconds",
}  # fmt: skip
TOLD = {
    *ANNOUNCED, "lowmark_segment_unchanged_seconds", "lowmark_subscriber_streams", "lowmark_subscribers",
    "lowmark_subscriber_queue_updates", "lowmark_subscriber_queue_age_seconds", "lowmark_notification_duration_seconds",
    "lowmark_waiting_calls", "lowmark_calls_refused_total", "lowmark_metrics_omitted", "lowmark_process_info",
}  # fmt: skip
"""What a relay tells: nothing of what only shards and homes know, and no 0 for a shard that nobody serves."""


def test_it_tells_the_metrics_that_the_tracker_has_for_the_same(tmp_path: Path) -> None:
    metrics, first = fresh_address(), {"pipeline": "two", "segment": "first"}
    with (
        Tracker(tmp_path / "tracker", metrics=True) as processes,
        relay(processes.target, tmp_path, "--metrics-listen", metrics) as address,
        NodeClient(processes.target, "two", "f", "front") as front,
        ExitStack() as stack,
    ):
        processes.register(TWO_SEGMENTS)
        with pytest.raises(RefusedError), Subscriber(address, "one") as unknown:
            unknown.min_time()
        joined_front(front)
        updates = [stack.enter_context(Subscriber(address, "two")).updates() for _ in range(3)]
        for each in updates:
            next(each)
        begun = samples_of(text_of(metrics))
        assert value(begun, "lowmark_segment_unchanged_seconds", **first) is None, (
            "it may stand for longer than it is heard of here"
        )
        done(front.commit(promise(10)))
        for each in updates:
            assert any(update.segment is None and update.min_time == 10 for update in each)
        text = text_when(
            metrics, lambda s: (value(s, "lowmark_notification_duration_seconds_count") or 0) >= 3
        )
        behind = samples_of(text_of(processes.shards[0].metrics))
    assert promtool_finds(text) == ""
    here = samples_of(text)
    names = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in here}
    assert names - {metric.name for metric in PROCESS} == TOLD
    for name, labels in here:
        if name in ANNOUNCED:
            assert here[name, labels] == behind[name, labels]
    assert value(here, "lowmark_subscribers", pipeline="two") == 3
    assert value(here, "lowmark_subscriber_streams") == 3
    moved_s = value(here, "lowmark_segment_unchanged_seconds", **first)
    assert moved_s is not None and moved_s >= 0


def test_segments_that_come_and_go_are_heard(running: EmbeddedTracker, relayed: str) -> None:
    joined_front(running.node("two", "f", "front"))
    with Subscriber(relayed, "two") as subscriber, running.admin() as admin:
        updates = subscriber.updates()
        next(updates)
        more = replace(
            TWO_SEGMENTS, segments=("first", "second", "third"), edges=(*TWO_SEGMENTS.edges, Edge("second", "third"))
        )  # fmt: skip
        admin.apply(more)
        assert any(update.segment == "third" for update in updates)
        admin.apply(TWO_SEGMENTS)
        assert any(update.segment == "third" and update.removed for update in updates)


def test_a_pipeline_that_is_unknown_or_deleted_is_refused_as_by_the_tracker(
    running: EmbeddedTracker, relayed: str
) -> None:
    with Subscriber(relayed, "one") as subscriber, pytest.raises(RefusedError) as unknown:
        subscriber.min_time()
    assert unknown.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    with Subscriber(relayed, "two") as subscriber:
        updates = subscriber.updates()
        next(updates)
        delete(running)
        with pytest.raises(RefusedError) as deleted:
            list(updates)
    assert deleted.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE


def test_one_of_the_same_name_begins_anew_here_too(running: EmbeddedTracker, relayed: str) -> None:
    front = joined_front(running.node("two", "f", "front"))
    done(front.commit(promise(50)))
    with Subscriber(relayed, "two") as subscriber:
        assert subscriber.wait_until(50, timeout_s=HANG_S)
        use_again(running)
    with Subscriber(relayed, "two") as another:
        assert another.min_time() == 0


class Told:
    """A tracker each of whose streams says one min time, and ends; the last one stays."""

    def __init__(self, *min_times: int) -> None:
        self._left = list(min_times)

    async def Subscribe(
        self, requests: Any, context: Any
    ) -> AsyncIterator[progress_pb.SubscribeResponse]:
        yield progress_pb.SubscribeResponse(pipeline="two", min_time=self._left.pop(0))
        if not self._left:
            await asyncio.Event().wait()


def test_nothing_of_one_stream_counts_for_the_next() -> None:
    """Between the two the pipeline may have been deleted, and its name used again."""

    async def run() -> None:
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            Told(50, 0).Subscribe,
            progress_pb.SubscribeRequest.FromString,
            progress_pb.SubscribeResponse.SerializeToString,
        )
        server.add_registered_method_handlers(PROGRESS, {"Subscribe": handler})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection = AsyncConnection(f"127.0.0.1:{port}")
        relay = Relay(connection, Hub())
        heard: list[int] = []
        async with asyncio.timeout(HANG_S):
            while 0 not in heard:
                try:
                    await relay.look("two")
                    heard.append(relay.pipeline_min_time("two"))
                except Refused as refused:  # the stream has ended meanwhile
                    assert refused.refusal.code is RefusalCode.NOT_READY
                await asyncio.sleep(0)
        await relay.stop()
        await connection.close()
        await server.stop(None)

    asyncio.run(run())


class Listener:
    """The context of a call that listens."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, message: bytes) -> None:
        self.told.append(message)


def test_who_comes_while_it_lets_go_of_a_pipeline_does_not_wait_for_ever() -> None:
    """Nobody had listened for some time, and now one does whom nothing more would be told."""

    async def run() -> None:
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            Told(5).Subscribe,
            progress_pb.SubscribeRequest.FromString,
            progress_pb.SubscribeResponse.SerializeToString,
        )
        server.add_registered_method_handlers(PROGRESS, {"Subscribe": handler})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connection, hub = AsyncConnection(f"127.0.0.1:{port}"), Hub()
        relay = Relay(connection, hub)
        servicer = RelayServicer(relay, connection, Latencies(), hub, Quotas())
        await relay.look("two")

        comes = asyncio.Event()

        async def asks() -> AsyncIterator[progress_pb.SubscribeRequest]:
            await comes.wait()
            yield subscribe_request("two", (), {})
            await asyncio.Event().wait()

        context: Any = Listener()
        listening = asyncio.ensure_future(servicer.Subscribe(asks(), context))
        await asyncio.sleep(0)  # it begins
        await asyncio.sleep(0)  # and reads
        comes.set()
        for _ in range(2):
            relay.let_go()
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(listening, HANG_S)
        assert refused.value.refusal.code is RefusalCode.NOT_READY
        await relay.stop()
        await connection.close()
        await server.stop(None)

    asyncio.run(run())


def test_other_calls_are_sent_to_the_tracker(running: EmbeddedTracker, relayed: str) -> None:
    with Admin(relayed, HANG_S) as admin:
        assert [info.spec.name for info in admin.pipelines()] == ["two"]
    with NodeClient(relayed, "two", "f", "front") as front:
        joined_front(front)


def test_other_calls_get_on_where_the_first_process_of_the_tracker_is_away(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    with (
        relay(f"{NOBODY},{running.target}", tmp_path) as address,
        Admin(address, HANG_S) as admin,
    ):
        assert [info.spec.name for info in admin.pipelines()] == ["two"]


def test_it_goes_on_when_the_process_behind_it_is_killed(tmp_path: Path) -> None:
    with Tracker(tmp_path / "tracker", standbys=1) as processes:
        processes.register(TWO_SEGMENTS)
        with (
            relay(processes.target, tmp_path) as address,
            NodeClient(processes.target, "two", "f", "front") as front,
            Subscriber(address, "two") as subscriber,
        ):
            joined_front(front)
            updates = (update for update in subscriber.updates() if update.segment is None)
            heard = [next(updates).min_time]
            for slot in (10, 20):
                done(front.commit(promise(slot)))
                while heard[-1] < slot:
                    heard.append(next(updates).min_time)
                if slot == 10:
                    processes.shards[0].kill()
            assert heard == sorted(heard)


def test_while_no_tracker_answers_who_asks_hears_so(tmp_path: Path) -> None:
    with relay(NOBODY, tmp_path) as address, grpc.insecure_channel(address) as channel:
        stub: Any = progress_grpc.ProgressServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetMinTime(progress_pb.GetMinTimeRequest(pipeline="two"), timeout=HANG_S)
    refusal = refusal_of(refused.value)
    assert refusal is not None and refusal.refusal.code is RefusalCode.NOT_READY
    assert "behind this relay has not said anything" in refusal.refusal.message


def test_tokens_have_the_same_rights_here(tmp_path: Path) -> None:
    served = Served(tmp_path)
    every = served.token("every", _any=["register", "commit", "subscribe"])
    hears = served.token("hears", two=["subscribe"])
    other = served.token("other", another=["subscribe"])
    tokens = ("--tokens", str(served.tokens_file))
    cert = ("--tls-cert", served.certificate.cert, "--tls-key", served.certificate.key)
    files = {"LOWMARK_TLS_CA": served.authority.cert, "LOWMARK_TOKEN_FILE": every}
    with serving(served, *tokens):
        target = served.target(None, every)
        wait_for(target)
        with Admin(target, HANG_S) as admin:
            admin.register(TWO_SEGMENTS)
        with relay(served.addresses[0], tmp_path, *cert, *tokens, **files) as address:

            def asked(token: str) -> int:
                here = SecureTarget((address,), served.target(None, token).credentials)
                with Subscriber(here, "two") as subscriber:
                    return subscriber.min_time()

            assert asked(hears) == 0
            with pytest.raises(LowmarkError, match="may not"):
                asked(other)


@pytest.mark.parametrize("more", [["--shard", "0", "--peers", "127.0.0.1:1"], ["--shards", "2"]])
def test_a_relay_has_no_shard(more: list[str], tmp_path: Path) -> None:
    process = Running(
        "tests.cluster.serving", "", "--", "serve", "--set", "relay=127.0.0.1:1", *more, errors=tmp_path / "log"
    )  # fmt: skip
    with process:
        until(process.has_ended, process.errors)
    assert "relay is for one process without a shard" in process.errors()


def test_the_page_and_the_api_are_shown_at_a_relay_too(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    page = fresh_address()
    with (
        relay(running.target, tmp_path, "--dashboard-listen", page),
        urllib.request.urlopen(f"http://{page}/api/v1/pipelines/two", timeout=HANG_S) as answer,
    ):
        assert json.load(answer)["pipeline"] == "two"
