"""A tracker of one process whose store is damaged, replaced or put back to an older state under it, or while
it is down: nobody else could tell, so its own files do, or whoever comes back and knows more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fronts.files import FileFront
from fronts.ranges import RangeFront
from local_tracker.worker.handle import Handle
from tests.cluster.tracker import Tracker, local_tracker
from tests.files.s3 import s3_bucket
from tests.local_tracker.fakes import one_cell
from tests.processes.everything import PIPELINE
from tests.waits import HANG_S, until
from tracker.client import Admin, LowmarkError, NodeClient, RefusedError
from tracker.client.known import known_beside
from tracker.core.model import Cells, PipelineSpec, RefusalCode, TickContent


class Alone:
    """A tracker of one process, over SQLite."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        tracker = Tracker(directory)
        (self.process,), self.target = tracker.shards, tracker.target
        stack.callback(tracker.close)
        self.store = directory / "store"
        self.directory = directory
        self.stack = stack
        self.start()

    def start(self) -> None:
        self.process.start()
        with Admin(self.target) as admin:
            admin.register(PipelineSpec(PIPELINE, ("in",), (), open=True, start_slot=0))

    def node(self, name: str, known: str | Path | None = None) -> NodeClient:
        return self.stack.enter_context(NodeClient(self.target, PIPELINE, name, known=known))

    def keep(self, name: str) -> Path:
        """The store's files as they are now."""
        kept = self.directory / name
        shutil.copytree(self.store, kept)
        return kept

    def keep_whole(self, name: str) -> Path:
        """As `keep`, of a process that is ended for so long: it renews its lease all the time, and of a store
        in use no copy is whole."""
        self.process.kill()
        kept = self.keep(name)
        self.process.start()
        return kept

    def put(self, kept: Path) -> None:
        shutil.rmtree(self.store)
        shutil.copytree(kept, self.store)

    def refuses_to_start(self) -> str:
        self.process.start()
        assert self.process.end() == 1
        return self.process.errors_of_run()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    with ExitStack() as stack:
        yield Alone(tmp_path, stack)


def commit(node: NodeClient, *slots: int) -> None:
    for slot in slots:
        node.commit(TickContent(created=Cells.of([(0, slot, slot, 1)])))
    node.flush(HANG_S)


def test_a_damaged_store_is_refused_and_the_right_one_goes_on(alone: Alone) -> None:
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, *range(10, 40))
    alone.process.kill()
    right = alone.keep("right")
    wal = alone.store / "shard-0.db-wal"
    damaged = bytearray(wal.read_bytes())
    damaged[32 + 2 * 4120 + 300] ^= 4
    wal.write_bytes(damaged)
    assert "damaged at byte" in alone.refuses_to_start()
    assert wal.read_bytes() == bytes(damaged), "it is left as it is"
    alone.put(right)
    alone.process.start()
    commit(node, *range(40, 45))
    with Admin(alone.target) as admin:
        assert admin.pipeline(PIPELINE).state.segments[0].open_slots == 35


def test_what_is_written_to_a_store_that_was_replaced_is_not_durable(alone: Alone) -> None:
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, 10)
    older = alone.keep("older")
    commit(node, 11)
    os.rename(alone.store, alone.directory / "right")
    shutil.copytree(older, alone.store)
    tick = node.commit(TickContent(created=Cells.of([(0, 12, 12, 1)])))
    assert alone.process.end() == 1
    assert "was replaced by another file while it was in use" in alone.process.errors_of_run()
    assert not tick.done()
    shutil.rmtree(alone.store)
    os.rename(alone.directory / "right", alone.store)
    alone.process.start()
    tick.result(HANG_S)
    with Admin(alone.target) as admin:
        assert admin.pipeline(PIPELINE).state.segments[0].open_slots == 3


class Files:
    """A file front of a tracker; its record is a directory."""

    def __init__(self, target: str, directory: Path) -> None:
        self.front = FileFront(target, PIPELINE, "f", "in", directory, format="json")

    def publish(self, number: int) -> None:
        self.front.write([{"row": number}])


class Ranges:
    """A range front of a tracker; its record is a journal."""

    def __init__(self, target: str, directory: Path) -> None:
        self.front = RangeFront(target, PIPELINE, "f", "in", directory / "journal")

    def publish(self, number: int) -> None:
        self.front.publish({"partition": number})


@pytest.mark.parametrize("kind", [Files, Ranges])
def test_a_front_that_knows_more_than_an_older_store_says_so(
    alone: Alone, tmp_path: Path, kind: type[Files | Ranges]
) -> None:
    out = tmp_path / "out"
    first = kind(alone.target, out)
    with first.front:
        first.publish(1)
        assert first.front.wait_durable(HANG_S)
        older = alone.keep_whole("older")
        first.publish(2)
        assert first.front.wait_durable(HANG_S)
    alone.process.kill()
    newer = alone.keep("newer")
    alone.put(older)
    alone.process.start()
    for _ in range(2):
        with pytest.raises(RefusedError, match="node 'f' was acknowledged ticks") as refused:
            kind(alone.target, out).front.start(HANG_S)
        assert refused.value.refusal.code is RefusalCode.LOST
        assert str(known_beside(out, PIPELINE, "f")) in str(refused.value), (
            "what to do if it may be"
        )
    alone.process.kill()
    alone.put(newer)
    alone.process.start()
    last = kind(alone.target, out)
    with last.front:
        last.publish(3)
        assert last.front.wait_durable(HANG_S)


def test_a_node_whose_record_is_in_an_object_store_says_so_too(alone: Alone) -> None:
    """As of a query whose checkpoint is there."""
    with s3_bucket() as bucket:
        known = known_beside(f"{bucket}/checkpoint", PIPELINE, "n")
        node = alone.node("n", known)
        node.join(HANG_S)
        commit(node, 10)
        older = alone.keep_whole("older")
        commit(node, 11, 12)
        node.close()
        alone.process.kill()
        alone.put(older)
        alone.process.start()
        with pytest.raises(RefusedError, match="node 'n' was acknowledged ticks") as refused:
            alone.node("n", known).join(HANG_S)
        assert refused.value.refusal.code is RefusalCode.LOST
        assert f"remove {known}" in str(refused.value), "what to do if it may be"


def test_a_node_that_stayed_says_that_its_ticks_are_gone(alone: Alone) -> None:
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, 10)
    older = alone.keep_whole("older")
    commit(node, 11, 12)
    alone.process.kill()
    alone.put(older)
    alone.process.start()
    with pytest.raises(LowmarkError, match="tracker has lost what it acknowledged"):
        node.commit(TickContent(created=Cells.of([(0, 13, 13, 1)]))).result(HANG_S)


def test_a_node_whose_joining_is_gone_is_told_so(alone: Alone) -> None:
    older = alone.keep_whole("older")
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, 10)
    alone.process.kill()
    alone.put(older)
    alone.process.start()
    with pytest.raises(LowmarkError, match="this tracker knows of no such joining"):
        node.commit(TickContent(created=Cells.of([(0, 13, 13, 1)]))).result(HANG_S)


def test_an_eager_local_tracker_whose_flushes_are_gone_does_not_start(
    alone: Alone, tmp_path: Path
) -> None:
    local = local_tracker(alone.target, PIPELINE, tmp_path)
    alone.stack.callback(local.discard)
    local.start()
    until((tmp_path / "local-tracker").exists)
    handle = Handle(f"unix:{tmp_path}/local-tracker", PIPELINE, HANG_S)
    alone.stack.callback(handle.close)
    handle.step(one_cell(0, 10, 1), Cells.empty())
    older = alone.keep_whole("older")
    handle.step(one_cell(0, 11, 1), Cells.empty())
    local.kill()
    alone.process.kill()
    alone.put(older)
    alone.process.start()
    local.start()
    assert local.end() == 1
    assert "node 'host' was acknowledged ticks" in local.errors()
    Path(f"{tmp_path}/local-tracker.spool.known").unlink()  # the loss is accepted
    local.start()
    handle.step(one_cell(0, 12, 1), Cells.empty())


def test_a_store_of_a_tracker_begun_anew_by_mistake_is_noticed(
    alone: Alone, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    node = alone.node("n", known)
    node.join(HANG_S)
    commit(node, 10, 11)
    node.close()
    alone.process.kill()
    shutil.rmtree(alone.store)
    alone.start()
    with pytest.raises(RefusedError, match="no incarnation above 0 of any node"):
        alone.node("n", known).join(HANG_S)
