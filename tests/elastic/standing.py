"""Cells that stay open for long, in a pipeline of their own: what an evacuation has to move."""

from __future__ import annotations

from pathlib import Path

from examples.history import Recorder
from tests.check.judging import Judged, judge
from tests.cluster.children import now_slot
from tests.cluster.steps import Item, Steps
from tests.elastic.fleet import Fleet
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import PipelineSpec

PIPELINE = "standing"
FRONT = "keeper"


class Standing:
    """Opens cells, and lets go of them in the end."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fleet, self._directory, self.parts = fleet, directory, directory / "parts"
        self.spec = PipelineSpec(PIPELINE, ("in",), fronts=(FRONT,), start_slot=now_slot())
        fleet.register(self.spec)
        self._steps = Steps(self.parts / "keeper.jsonl")
        self._node = NodeClient(fleet.target, PIPELINE, FRONT, kind="front")
        self._listener = fleet.listening(self.parts, PIPELINE)
        self._node.join(HANG_S)
        self._next = max(now_slot(), self._node.join_front(FRONT, "in", HANG_S).slot)
        self._open: list[Item] = []

    def open_cells(self, count: int) -> None:
        """In the next slots; returns when that is durable."""
        self._next = max(now_slot(), self._next)
        items = [("in", self._next + n, f"{self._next + n}") for n in range(count)]
        self._steps.commit(self._node, items, [], (FRONT, self._next)).result(HANG_S)
        self._next += count
        self._open += items

    def finish(self) -> None:
        """Lets go of all, leaves, and waits until that is heard."""
        self._steps.leave_front(self._node, FRONT)
        self._steps.commit(self._node, [], self._open).result(HANG_S)
        self._listener.ends_well()
        self._steps.close()

    def judge(self) -> Judged:
        recorder = Recorder(self.parts / "run.jsonl")
        recorder.header(self.spec, {FRONT: "in"})
        return judge(self._fleet.completed(recorder, self.spec))

    def close(self) -> None:
        self._node.close()
        self._steps.close()
