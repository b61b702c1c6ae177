"""What one shard tells at once is written with what comes next, or a little later by itself, when somebody asks for
its history, and when the process stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tests.service.serving import Serving, Ticks, config, serving, status_of
from tests.waits import HANG_S, until_async
from tracker.service import engine as engine_module
from tracker.store import MemoryStore, StoreUnavailable

NEVER_S = 3600.0
MINUTE = 6_000
"""The history remembers when whole minutes were reached."""


async def begun(served: Serving) -> Ticks:
    """A front that has been granted what it waits for."""
    ticks = await served.ticks()
    await ticks.send(1, pb.TickContent(joins=[pb.FrontJoin(front="f", segment=0)]))
    while not (await ticks.answer()).HasField("grant"):
        pass
    return ticks


async def promise(served: Serving, ticks: Ticks, number: int, slot: int) -> None:
    """Min time reaches a slot by a tick, and whoever listens has heard so."""
    await ticks.send(number, pb.TickContent(heartbeats=[pb.Heartbeat(front="f", slot=slot)]))
    waits = progress_pb.WaitUntilRequest(pipeline="p", slot=slot)
    assert (await served.progress.WaitUntil(waits, timeout=HANG_S)).min_time == slot


async def test_it_is_told_before_it_is_written_and_its_history_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "WRITE_LATE_S", NEVER_S)
    async with serving(config()) as served:
        process = served.server.engine.process
        await promise(served, await begun(served), 2, MINUTE)
        assert process.has_told_ahead("p") and process.committed < process.position
        asked = progress_pb.GetHistoryRequest(pipeline="p", slots=[MINUTE])
        answer = await served.progress.GetHistory(asked, timeout=HANG_S)
        assert answer.reached[0].reached and answer.reached[0].HasField("at_ms")
        assert process.committed == process.position


async def test_a_process_that_rests_writes_it_a_little_later() -> None:
    async with serving(config()) as served:
        process = served.server.engine.process
        await promise(served, await begun(served), 2, 50)
        await until_async(lambda: process.committed == process.position)
        assert not process.has_told_ahead("p")


async def test_it_goes_with_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WRITE_LATE_S", NEVER_S)
    async with serving(config()) as served:
        process, ticks = served.server.engine.process, await begun(served)
        await promise(served, ticks, 2, 50)
        told_at = process.position
        await promise(served, ticks, 3, 60)
        assert process.committed >= told_at


async def test_a_process_that_stops_has_written_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WRITE_LATE_S", NEVER_S)
    store = MemoryStore()
    async with serving(config(), store) as served:
        process = served.server.engine.process
        await promise(served, await begun(served), 2, 50)
        assert process.committed < process.position
        await served.stop()
        assert process.committed == process.position


class AwayStore(MemoryStore):
    """Does not answer when it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away, self.asked = threading.Event(), threading.Event()

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = 1) -> None:
        if self.is_away.is_set():
            self.asked.set()
            raise StoreUnavailable("away")
        super().commit(epoch, records, level)


async def test_who_asks_for_a_history_that_is_not_written_hears_that_the_process_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is away: what was told stays unwritten, and whoever asks waits for it when the process is told to stop."""
    monkeypatch.setattr(engine_module, "WRITE_LATE_S", NEVER_S)
    monkeypatch.setattr(engine_module, "FLUSH_AT_STOP_S", 0.2)
    store = AwayStore()
    async with serving(config(grace_s=0.2), store) as served:
        await promise(served, await begun(served), 2, MINUTE)
        store.is_away.set()
        asks = served.progress.GetHistory(
            progress_pb.GetHistoryRequest(pipeline="p", slots=[MINUTE]), timeout=HANG_S
        )
        await asyncio.to_thread(store.asked.wait, HANG_S)
        await served.stop()
        code, details = await status_of(asks)
        assert code is grpc.StatusCode.UNAVAILABLE and "stops" in details
