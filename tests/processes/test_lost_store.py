"""A tracker of one process whose store is put back to an older state while it is down: whoever comes back and
knows more says so. What its own files tell: `tests/store/test_lost_records.py`, `tests/faults/stores.py`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fronts.files import FileFront
from local_tracker.worker.handle import Handle
from tests.cluster.tracker import Tracker, local_tracker
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


def test_a_front_that_knows_more_than_an_older_store_says_so(alone: Alone, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def front() -> FileFront:
        return FileFront(alone.target, PIPELINE, "f", "in", out, format="json")

    with front() as first:
        first.write([{"row": 1}])
        assert first.wait_durable(HANG_S)
        older = alone.keep_whole("older")
        first.write([{"row": 2}])
        assert first.wait_durable(HANG_S)
    alone.process.kill()
    newer = alone.keep("newer")
    alone.put(older)
    alone.process.start()
    for _ in range(2):
        with pytest.raises(RefusedError, match="node 'f' was acknowledged ticks") as refused:
            front().start(HANG_S)
        assert refused.value.refusal.code is RefusalCode.LOST
        assert str(known_beside(out, PIPELINE, "f")) in str(refused.value), (
            "what to do if it may be"
        )
    alone.process.kill()
    alone.put(newer)
    alone.process.start()
    with front() as last:
        last.write([{"row": 3}])
        assert last.wait_durable(HANG_S)


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
