"""When a snapshot is due: the log grows to a bound, and pipelines that are deleted go together."""

from __future__ import annotations

import pytest

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tests.service.serving import config, serving
from tests.waits import HANG_S, until_async
from tracker.service import engine, log_length
from tracker.service.log_length import (
    SMALL_SNAPSHOT_AFTER_RECORDS,
    SNAPSHOT_AFTER_BYTES,
    SNAPSHOT_AFTER_DELETION_S,
    SNAPSHOT_AFTER_RECORDS,
    LogLength,
)
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore, StoreUnavailable


@pytest.mark.parametrize(
    ("records", "size_bytes", "due"),
    [
        (SNAPSHOT_AFTER_RECORDS - 1, 1_000, False),
        (SNAPSHOT_AFTER_RECORDS, 1_000, True),
        (1, SNAPSHOT_AFTER_BYTES, True),
        (SMALL_SNAPSHOT_AFTER_RECORDS, 20_000, True),
        (SMALL_SNAPSHOT_AFTER_RECORDS, 19_999, False),
        (SMALL_SNAPSHOT_AFTER_RECORDS - 1, 20_000, False),
    ],
)
def test_a_log_is_no_longer_than_it_may_be_beside_its_snapshot(
    records: int, size_bytes: int, due: bool
) -> None:
    length = LogLength()
    length.wrote_snapshot(10_000)
    length.wrote(records, size_bytes)
    assert length.is_due(0.0) is due
    length.begin()
    assert not length.is_due(0.0)


def test_pipelines_that_are_deleted_one_after_the_other_go_with_one_snapshot() -> None:
    length = LogLength()
    length.want_snapshot(100.0)
    length.want_snapshot(110.0)
    assert not length.is_due(100.0 + SNAPSHOT_AFTER_DELETION_S - 1)
    assert length.is_due(100.0 + SNAPSHOT_AFTER_DELETION_S)
    length.begin()
    assert not length.is_due(1_000.0)


class FullOnce(MemoryStore):
    """Has no room for a snapshot, once it is told so, and then it has."""

    is_full, refused = False, 0

    def write_snapshot(self, epoch: int, position: int, snapshot: bytes, level: int = 1) -> None:
        if self.is_full:
            self.is_full, self.refused = False, self.refused + 1
            raise StoreUnavailable("no space left")
        super().write_snapshot(epoch, position, snapshot, level)


async def test_a_deleted_pipeline_goes_also_where_there_was_no_room_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else may ever be due in a process that rests."""
    for module in (engine, log_length):
        monkeypatch.setattr(module, "SNAPSHOT_AFTER_DELETION_S", 0.01)
    store = FullOnce()
    async with serving(config(), store) as served:
        stats, store.is_full = served.server.engine.stats, True
        before = stats.snapshots
        request = pipeline_pb.DeletePipelineRequest(pipeline="p", drop_open=True)
        await served.pipelines.DeletePipeline(request, timeout=HANG_S)
        await until_async(lambda: stats.snapshots > before)
        assert (store.refused, stats.store_failures["snapshot"]) == (1, 1)


@pytest.mark.parametrize("killed", [False, True])
async def test_a_process_that_rests_lets_go_of_a_deleted_pipeline(
    monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Also one that was killed before it had."""
    store, soon_s = MemoryStore(), 0.01
    for module in (engine, log_length):
        monkeypatch.setattr(module, "SNAPSHOT_AFTER_DELETION_S", 3600.0 if killed else soon_s)
    async with serving(config(), store) as served:
        request = pipeline_pb.DeletePipelineRequest(pipeline="p", drop_open=True)
        before = served.server.engine.stats.snapshots
        await served.pipelines.DeletePipeline(request, timeout=HANG_S)
        if not killed:
            await until_async(lambda: served.server.engine.stats.snapshots > before)
    if killed:
        for module in (engine, log_length):
            monkeypatch.setattr(module, "SNAPSHOT_AFTER_DELETION_S", soon_s)
        server = TrackerServer(config(), store)
        await server.start()
        await until_async(lambda: server.engine.stats.snapshots > 0)
        await server.stop()
