"""What is bounded: records that wait for the store, frames that wait for another process, messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import types_pb2 as pb
from tests.service.serving import config, serving
from tests.waits import HANG_S, until_async
from tracker.core import log as m
from tracker.core.model import PipelineSpec, TickContent, Unit
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig
from tracker.service import engine
from tracker.store import MemoryStore
from tracker.wire.frames import frame_to_pb
from tracker.wire.grpc_options import MAX_MESSAGE_BYTES, MAX_TICK_BYTES

TICKS = 500
LIMIT = 40
LARGE_BYTES = 101_000


class GatedStore(MemoryStore):
    """Commits when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.sizes: list[int] = []
        """Of the group commits, in bytes."""

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = 1) -> None:
        assert self.open.wait(HANG_S)
        self.sizes.append(sum(len(record) for _, record in records))
        super().commit(epoch, records, level)


async def test_a_node_is_read_no_further_while_the_store_is_behind() -> None:
    store = GatedStore()
    bounded = config(process=ProcessConfig(max_backlog_records=LIMIT))
    async with serving(bounded, store) as served:
        process, ticks = served.server.engine.process, await served.ticks()
        store.open.clear()

        async def send() -> None:
            for number in range(1, TICKS + 1):
                await ticks.send(number)

        sending = asyncio.ensure_future(send())
        await until_async(lambda: process.position - process.committed >= LIMIT)
        # Other calls are answered meanwhile, and no tick is read but the one being fetched.
        for _ in range(50):
            await served.pipelines.ListShards(pipeline_pb.ListShardsRequest(), timeout=HANG_S)
            assert LIMIT <= process.position - process.committed <= LIMIT + 1
        store.open.set()
        await sending
        while (await ticks.answer()).committed.number < TICKS:
            pass


async def test_a_node_whose_ticks_are_large_is_read_no_further_than_so_many_bytes() -> None:
    """Of a tick of 32 MiB a thousandth of the records that may wait would be as much as a process may have."""
    store = GatedStore()
    bounded = config(process=ProcessConfig(max_backlog_bytes=LIMIT * LARGE_BYTES))
    async with serving(bounded, store) as served:
        process, ticks = served.server.engine.process, await served.ticks()
        store.open.clear()

        async def send() -> None:
            for number in range(1, 3 * LIMIT + 1):
                await ticks.send(number, large())

        sending = asyncio.ensure_future(send())
        await until_async(lambda: not process.takes_ticks)
        for _ in range(50):
            await served.pipelines.ListShards(pipeline_pb.ListShardsRequest(), timeout=HANG_S)
            assert LIMIT - 2 <= process.position - process.committed <= LIMIT + 1
        store.open.set()
        await sending
        while (await ticks.answer()).committed.number < 3 * LIMIT:
            pass


async def test_what_has_gathered_is_written_in_pieces_that_a_store_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Redis server ends a connection by which a gibibyte comes at once, and at each later attempt."""
    monkeypatch.setattr(engine, "MAX_BYTES_PER_COMMIT", 5 * LARGE_BYTES)
    store = GatedStore()
    async with serving(config(), store) as served:
        process, ticks = served.server.engine.process, await served.ticks()
        store.open.clear()
        for number in range(1, LIMIT + 1):
            await ticks.send(number, large())
        await until_async(lambda: process.position - process.committed >= LIMIT)
        store.sizes.clear()
        store.open.set()
        while (await ticks.answer()).committed.number < LIMIT:
            pass
    assert store.sizes and max(store.sizes) <= 5 * LARGE_BYTES


def large() -> pb.TickContent:
    """A tick of about so many bytes."""
    return pb.TickContent(units_created=[pb.Unit(segment=0, name="n" * 1_000, slot=1)] * 100)


async def test_a_tick_over_the_limit_is_refused_and_its_number_stays_free() -> None:
    async with serving(config()) as served:
        ticks = await served.ticks()
        for content in (pb.TickContent(leaves=["x" * MAX_TICK_BYTES]), pb.TickContent()):
            await ticks.send(1, content)
        refused = (await ticks.answer()).refused
        assert refused.refusal.code == "invalid"
        assert f"over the limit of {MAX_TICK_BYTES} bytes" in refused.refusal.message
        assert (await ticks.answer()).committed.number == 1


def test_entries_full_of_names_travel_in_frames_that_are_messages() -> None:
    """What has gathered for a shard that was away must not be one message that nobody takes."""
    routing = RoutingTable.uniform(2, 1)
    process = Process(routing.registrar("p"), routing, 1)
    other = 1 - process.shard
    node = next(f"n{n}" for n in range(99) if routing.home("p", f"n{n}") == process.shard)
    keeper = next(n for n in range(99) if routing.names_keeper("p", n) == other)
    spec = PipelineSpec("p", tuple(f"s{n}" for n in range(keeper + 1)), front_count=1)
    effects: list[m.Effect] = []

    def run(event: m.Event) -> None:
        effects.extend(process.handle(event, 1))
        while process.position > process.committed:
            effects.extend(process.handle(m.Committed(process.position), 1))

    run(m.RegisterPipeline("r", spec))
    run(m.JoinNode("j", "p", node, "x"))
    joined = next(e.result for e in effects if isinstance(e, m.Answer) and e.request == "j")
    assert isinstance(joined, m.Joined)
    run(m.AttachSession("s", "p", joined.key))
    names = tuple(Unit(keeper, "ä" * 1000 + str(n), 1) for n in range(4_000))  # 8 MB
    for number in range(1, 11):
        run(m.SubmitTick("s", number, TickContent(units_consumed=names)))
    effects.clear()
    run(m.PeerConnected(other))
    frames = [e.frame for e in effects if isinstance(e, m.Send)]
    sizes = [frame_to_pb(frame).ByteSize() for frame in frames]
    assert sum(sizes) > MAX_MESSAGE_BYTES > max(sizes) + MAX_TICK_BYTES / 2
    entries = [len(f.body.entries) for f in frames if isinstance(f.body, m.Entries)]
    assert sum(entries) == 12
