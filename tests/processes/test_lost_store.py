"""A tracker of one process whose store is put back to an older state while it is down: whoever comes back and
knows more says so. What its own files tell: `tests/store/test_lost_records.py`, `tests/faults/stores.py`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fronts.files import FileFront
from fronts.ranges import RangeFront
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

    def come_back_with(self, kept: Path) -> None:
        """The process is killed, and begins again on a copy of the store."""
        self.process.kill()
        self.put(kept)
        self.process.start()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    with ExitStack() as stack:
        yield Alone(tmp_path, stack)


def commit(node: NodeClient, *slots: int) -> None:
    for slot in slots:
        node.commit(TickContent(created=Cells.of([(0, slot, slot, 1)])))
    node.flush(HANG_S)


class Rows:
    """A front of files, whose directory has what it was acknowledged beside it."""

    def __init__(self, alone: Alone, directory: Path) -> None:
        self.beside = directory / "out"
        self.front = FileFront(alone.target, PIPELINE, "f", "in", self.beside, format="json")

    def publish(self, number: int) -> None:
        self.front.write([{"row": number}])
        assert self.front.wait_durable(HANG_S)


class Offsets:
    """A front of ranges of offsets, whose journal has it beside it."""

    def __init__(self, alone: Alone, directory: Path) -> None:
        self.beside = directory / "log"
        self.beside.mkdir(exist_ok=True)
        self.front = RangeFront(alone.target, PIPELINE, "f", "in", self.beside / "journal")

    def publish(self, number: int) -> None:
        assert self.front.publish({"0": 10 * number, "1": number}, HANG_S) is not None
        assert self.front.wait_durable(HANG_S)


@pytest.mark.parametrize("kind", [Rows, Offsets])
def test_a_front_that_knows_more_than_an_older_store_says_so(
    alone: Alone, tmp_path: Path, kind: type[Rows] | type[Offsets]
) -> None:
    first = kind(alone, tmp_path)
    with first.front.start(HANG_S):
        first.publish(1)
        older = alone.keep_whole("older")
        first.publish(2)
    alone.process.kill()
    newer = alone.keep("newer")
    alone.put(older)
    alone.process.start()
    for _ in range(2):
        with pytest.raises(RefusedError, match="node 'f' was acknowledged ticks") as refused:
            kind(alone, tmp_path).front.start(HANG_S)
        assert refused.value.refusal.code is RefusalCode.LOST
        assert str(known_beside(first.beside, PIPELINE, "f")) in str(refused.value), (
            "what to do if it may be"
        )
    alone.come_back_with(newer)
    last = kind(alone, tmp_path)
    with last.front.start(HANG_S):
        last.publish(3)


def test_a_front_that_stayed_says_that_its_batches_are_gone(alone: Alone, tmp_path: Path) -> None:
    made = Rows(alone, tmp_path)
    with made.front.start(HANG_S):
        made.publish(1)
        older = alone.keep_whole("older")
        made.publish(2)
        alone.come_back_with(older)
        with pytest.raises(LowmarkError, match="tracker has lost what it acknowledged"):
            made.publish(3)


def test_a_front_whose_loss_is_accepted_commits_its_record_again(
    alone: Alone, tmp_path: Path
) -> None:
    """Its record has what the tracker has not, by which nothing is lost but what was in no record."""
    first = Offsets(alone, tmp_path)
    with first.front.start(HANG_S):
        first.publish(1)
        older = alone.keep_whole("older")
        first.publish(2)
    alone.come_back_with(older)
    known = known_beside(first.beside, PIPELINE, "f")
    Path(str(known)).unlink()
    again = Offsets(alone, tmp_path)
    with again.front.start(HANG_S):
        again.publish(3)
    with Admin(alone.target) as admin:
        cells = [c for part in admin.explain(PIPELINE, "in").parts for c in part.cells]
    assert len(cells) == 3, "each batch has a slot of its own"


def test_a_node_that_stayed_says_that_its_ticks_are_gone(alone: Alone) -> None:
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, 10)
    older = alone.keep_whole("older")
    commit(node, 11, 12)
    alone.come_back_with(older)
    with pytest.raises(LowmarkError, match="tracker has lost what it acknowledged"):
        node.commit(TickContent(created=Cells.of([(0, 13, 13, 1)]))).result(HANG_S)


def test_a_node_whose_joining_is_gone_is_told_so(alone: Alone) -> None:
    older = alone.keep_whole("older")
    node = alone.node("n")
    node.join(HANG_S)
    commit(node, 10)
    alone.come_back_with(older)
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
    alone.come_back_with(older)
    local.start()
    assert local.end() == 1
    assert "node 'host' was acknowledged ticks" in local.errors()
    Path(f"{tmp_path}/local-tracker.spool.known").unlink()  # the loss is accepted
    local.start()
    handle.step(one_cell(0, 12, 1), Cells.empty())
