"""In ordinary operation nothing is logged that alarms anybody, and trouble is: what is above info wants somebody."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.children import free_ports
from fronts.files import FileFront
from fronts.front import Front
from tests.cluster.network import Place
from tests.cluster.tracker import Server, Tracker, numbers
from tests.processes.elastic import MARGIN
from tests.waits import HANG_S
from tracker.client import NodeClient, Subscriber
from tracker.core.insight.describe import ShardRole
from tracker.core.model import Cells, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name

PIPELINE = "orders"
QUIET = ("debug", "info")


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[Tracker]:
    """Of two shards, as `lowmark serve --shards 2` starts it."""
    tracker = Tracker(tmp_path, shards=0, options=MARGIN)
    first = f"127.0.0.1:{free_ports(2)}"
    tracker.shards.append(
        tracker.server(Place("parent", first, first), "--shards", "2", "--store", tracker.store)
    )
    with closing(tracker):
        tracker.shards[0].start()
        tracker.until(lambda now: all(shard.state.connected for shard in now.shards))
        tracker.register(PipelineSpec(PIPELINE, ("ship",), fronts=("shop",)))
        yield tracker


def alarms(servers: list[Server], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines above info, those that are no events (of gRPC, say), and what clients have logged."""
    lines = [line for server in servers for line in server.errors_of_run().splitlines()]
    loud = [
        line for line in lines if not line.startswith("{") or json.loads(line)["level"] not in QUIET
    ]
    return [*loud, *(f"{each.name}: {each.getMessage()}" for each in caplog.records)]


class Shop:
    """A front of files, and a worker that ships what it publishes."""

    def __init__(self, target: str, directory: Path) -> None:
        self._front = FileFront(target, PIPELINE, "shop", "ship", directory, format="json")
        self._worker = NodeClient(target, PIPELINE, "worker")
        self._progress = Subscriber(target, PIPELINE)
        self._worker.join()
        self._front.start()

    def ship_one(self) -> None:
        """An order comes in, is shipped, and min time passes it."""
        file = self._front.write([{"order": 1}])
        assert file is not None
        item = (0, file.slot, unit_value(unit_name(str(file.path))), 1)
        self._worker.commit(TickContent(consumed=Cells.of([item]))).result(HANG_S)
        assert self._progress.wait_until(file.slot + 1, timeout_s=HANG_S)

    def close(self) -> None:
        for each in (self._front, self._worker, self._progress):
            each.close()


def test_a_pipeline_shards_that_join_and_go_and_a_clean_end_alarm_nobody(
    tracker: Tracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lowmark")
    with closing(Shop(tracker.target, tmp_path / "data")) as shop:
        shop.ship_one()
        newcomers = [tracker.newcomer(), tracker.newcomer()]  # each hears of the other meanwhile
        tracker.until(lambda now: numbers(now, ShardRole.SPARE) == [2, 3])
        tracker.rescale(4)
        shop.ship_one()
        tracker.rescale(2, evacuate=True)
        for newcomer in newcomers:
            newcomer.ends_well()
        shop.ship_one()
    (parent,) = tracker.shards
    assert parent.stop() == 0
    assert alarms([parent, *newcomers], caplog) == []


def test_a_shard_that_dies_is_an_alarm(tracker: Tracker, caplog: pytest.LogCaptureFixture) -> None:
    (parent,) = tracker.shards
    assert alarms([parent], caplog) == []
    started = [event["pid"] for event in parent.events() if event["event"] == "shard_started"]
    os.kill(started[1], signal.SIGKILL)
    parent.until_logs('"event": "shard_restarts"')
    assert any("shard_restarts" in line for line in alarms([parent], caplog))


def test_a_front_that_ends_before_all_is_durable_is_an_alarm(
    tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lowmark")
    front = Front(tracker.target, PIPELINE, "shop", "ship").start()
    (parent,) = tracker.shards
    assert parent.stop() == 0
    front.publish_now(1, lambda _: None)
    front.close(timeout_s=0.0)
    assert any("not durable" in line for line in alarms([], caplog))
