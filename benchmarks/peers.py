"""What one would use instead, on the same machine, for the same input.

*Acknowledging*: items come in slots of a thousand; each is created and consumed, in calls of so many
items as a batch of Arrow rows has. Lowmark takes them by arrays (`acks`) and commits ticks, durably; Redis
counts items up and down, one command an item, durably; a Storm-style acker gets one message an ack over
the same gRPC library, and keeps nothing; a Kafka consumer group reads the items themselves, one record each, and
commits its offset. Counted are items a second until all is known to be complete.

*Knowing that it is complete*: files appear in a directory, one every while; a Spark query reads them. Its
own `withWatermark`, of no delay, passes a row's time with the batch after the one that has read it, and
only if something later has come; Lowmark's min time passes its slot when the batch is committed. Counted is
the time from the file's appearing until then. Flink reads files of as many rows in the same way
(`benchmarks/flink.py`).

*Being right*: what Kafka's consumer lag takes to be complete, and is not (`benchmarks/kafka_lag.py`).

*bytewax*, if it can be installed here, ends epochs in its dataflow: counted are items a second that it
passes through one step while it ends an epoch every 10 ms, which says that far what has gone through it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import redis

from benchmarks import kafka_lag, looping
from benchmarks.acker import ACK, MESSAGE
from benchmarks.figures import Budget, Figure, Finding, Skipped
from benchmarks.flink import flink_delays
from benchmarks.pairs import ratios, take_turns
from benchmarks.processes import EchoServer
from benchmarks.watermark import delays
from local_tracker.worker.collector import Collector
from scripts.summary import BUILD
from tests.cluster.redis_server import RedisServer
from tests.cluster.tracker import Tracker
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.kafka import KafkaBroker
from tracker.client import NodeClient, Subscriber
from tracker.core.model import Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import root_values
from tracker.wire.grpc_options import CHANNEL_OPTIONS

PER_SLOT = 1000
TIMEOUT_S = 120.0
BYTEWAX = "bytewax==0.21.1"
THROUGH_BYTEWAX = "items a second through one step of bytewax, epochs of 10 ms"
_FLOW = """
import sys, time
from datetime import timedelta
import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main
items = int(sys.argv[1])
flow = Dataflow("bench")
stream = op.input("in", flow, TestingSource(range(items), batch_size=1000))
out = []
op.output("out", op.map("step", stream, lambda item: item), TestingSink(out))
began = time.perf_counter()
run_main(flow, epoch_interval=timedelta(milliseconds=10))
print(items / (time.perf_counter() - began))
"""


def find(budget: Budget) -> Iterable[Finding]:
    items, rounds = budget.pick(10_000, 50_000), budget.pick(2, 3)
    yield from _acknowledging(items, rounds)
    yield from delays(budget.pick(5, 20))
    yield from flink_delays(budget.pick(5, 20))
    yield from kafka_lag.figures(items, rounds)
    yield from _bytewax(items, rounds)


def _acknowledging(items: int, rounds: int) -> Iterator[Finding]:
    with (
        tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory,
        ExitStack() as stack,
    ):
        tracker = stack.enter_context(Tracker(Path(directory)))
        store = stack.enter_context(RedisServer(Path(directory) / "redis"))
        acker = stack.enter_context(EchoServer("benchmarks.acker"))
        values = root_values("front", 0, np.arange(items))
        turns = iter(range(10**6))
        ways: dict[str, Callable[[], float]] = {
            "Lowmark, durable": lambda: _lowmark(tracker, f"p{next(turns)}", values),
            "counters in Redis, durable": lambda: _redis(store, values),
            "a Storm-style acker, in memory": lambda: looping.run(_acker(acker.address, values)),
        }
        try:
            broker = stack.enter_context(KafkaBroker(Path(directory) / "kafka"))
            ways["offsets of a Kafka group"] = lambda: kafka_lag.seconds_by_offsets(
                broker, values, f"items{next(turns)}"
            )
        except Unavailable as error:
            yield Skipped("items acknowledged a second: offsets of a Kafka group", str(error))
        seconds = take_turns(ways, rounds)
    rates = {name: [items / each for each in found] for name, found in seconds.items()}
    ours = rates["Lowmark, durable"]
    for name, found in rates.items():
        yield Figure(f"items acknowledged a second: {name}", tuple(found), "/s", f"{items:,} items")
        if found is not ours:
            yield Figure(f"... Lowmark / {name}", ratios(ours, found), "", "rate to rate")


def _lowmark(tracker: Tracker, pipeline: str, values: np.ndarray[Any, Any]) -> float:
    """A front's node creates each slot's items, a worker's node consumes them."""
    tracker.register(PipelineSpec(pipeline, ("in",), front_count=1))
    slots = len(values) // PER_SLOT
    with (
        NodeClient(tracker.target, pipeline, "front", "front") as front,
        NodeClient(tracker.target, pipeline, "worker") as worker,
        Subscriber(tracker.target, pipeline) as subscriber,
    ):
        front.join(TIMEOUT_S)
        worker.join(TIMEOUT_S)
        front.join_front("front", "in", TIMEOUT_S)
        began = time.perf_counter()
        for slot in range(slots):
            own = values[slot * PER_SLOT : (slot + 1) * PER_SLOT]
            collector = Collector("bench", lambda _: 0)
            collector.create("in", np.full(len(own), slot), own)
            collector.consume("in", np.full(len(own), slot), own)
            created, consumed = collector.take()
            front.commit(TickContent(created=created, heartbeats=(Heartbeat("front", slot),)))
            worker.commit(TickContent(consumed=consumed))
        front.commit(TickContent(heartbeats=(Heartbeat("front", slots),)))
        if not subscriber.wait_until(slots, timeout_s=TIMEOUT_S):
            raise RuntimeError(f"slot {slots} was not complete within {TIMEOUT_S:g} s")
        return time.perf_counter() - began


def _redis(store: RedisServer, values: np.ndarray[Any, Any]) -> float:
    """A counter a slot, up and down by a command an item, sent a thousand at a time."""
    with redis.Redis.from_url(store.url) as client:
        client.delete("open")
        began = time.perf_counter()
        for slot in range(len(values) // PER_SLOT):
            for step in (1, -1):
                pipe = client.pipeline(transaction=False)
                for _ in range(PER_SLOT):
                    pipe.hincrby("open", str(slot), step)
                counted = pipe.execute()
            assert counted[-1] == 0
        return time.perf_counter() - began


async def _acker(address: str, values: np.ndarray[Any, Any]) -> float:
    """Two messages an item: created, consumed."""
    async with grpc.aio.insecure_channel(address, CHANNEL_OPTIONS) as channel:
        call: Any = channel.stream_stream(ACK)()
        began = time.perf_counter()
        for slot in range(len(values) // PER_SLOT):
            own = values[slot * PER_SLOT : (slot + 1) * PER_SLOT].tolist()
            for value in own + own:
                await call.write(MESSAGE.pack(slot, value))
            zero = -1
            while zero != slot:
                zero = int.from_bytes(await call.read(), "little", signed=True)
        return time.perf_counter() - began


def _bytewax(items: int, rounds: int) -> Iterator[Finding]:
    directory = BUILD / "peers"
    if not (directory / "bytewax").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(directory)]
        uv = ["uv", "pip", "install", "-q", "--python", sys.executable, "--target", str(directory)]
        for install in (command, uv):
            try:
                if subprocess.run([*install, BYTEWAX], check=False, timeout=300).returncode == 0:
                    break
            except (FileNotFoundError, subprocess.TimeoutExpired):
                continue
        else:
            yield Skipped(THROUGH_BYTEWAX, f"{BYTEWAX} cannot be installed here")
            return
    rates = []
    for _ in range(rounds):
        ended = subprocess.run(
            [sys.executable, "-c", _FLOW, str(items)],
            env={"PYTHONPATH": str(directory)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ended.returncode != 0:
            why = ended.stderr.strip().splitlines()[-1:]
            yield Skipped(THROUGH_BYTEWAX, f"{BYTEWAX} does not run here: {' '.join(why)}")
            return
        rates.append(float(ended.stdout))
    yield Figure(
        THROUGH_BYTEWAX,
        tuple(rates), "/s", f"{BYTEWAX}, nothing durable",
    )  # fmt: skip
