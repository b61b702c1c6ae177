"""What a process of a run writes down: lines of a history (see `examples.history`), kept until it ends.

The processes that write are never killed, so nothing is flushed while the run is measured.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from examples.history import Recorder
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, Heartbeat, HoldMove, TickContent
from tracker.core.model.ack_values import unit_value

Item = tuple[str, int, str]
"""Segment, slot, name."""


class Unhurried(Recorder):
    """Writes its lines in blocks."""

    def write(self, kind: str, at_ns: int | None = None, **fields: Any) -> None:
        line = {"kind": kind, "at_ns": time.monotonic_ns() if at_ns is None else at_ns, **fields}
        text = json.dumps(line, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)


class Steps:
    """Commits steps, and writes down what they did: the items at the moment before the step is handed
    over, the tick when it is durable."""

    def __init__(self, path: Path, recorder: type[Recorder] = Unhurried) -> None:
        """recorder: what a process writes with that may be ended before its time."""
        self._recorder = recorder(path)
        self.failures: list[str] = []
        self._untold = 0
        """Ticks that are handed over, and not written down yet."""
        self._told = threading.Condition()

    def commit(
        self,
        node: NodeClient,
        created: list[Item],
        consumed: list[Item],
        promise: tuple[str, int] | None = None,
        *,
        holds: Sequence[HoldMove] = (),
        absorbed: list[Item] | None = None,
        emitted: list[Item] | None = None,
    ) -> Future[int]:
        """absorbed: what is only in the node's state from now on, under a hold, as items of the segment in which it is to come out;
        emitted: such as have, and are consumed there. Raises what `NodeClient.commit` does."""
        at_ns = time.monotonic_ns()
        for segment, slot, name in created:
            self._recorder.created(segment, slot, name, at_ns)
        for segment, slot, name in absorbed or ():
            self._recorder.write("absorbed", at_ns, segment=segment, slot=slot, item=name)
        for segment, _, name in consumed:
            self._recorder.consumed(segment, name, at_ns)
        for segment, _, name in emitted or ():
            self._recorder.write("emitted", at_ns, segment=segment, item=name)
        content = TickContent(
            created=cells(node, created),
            consumed=cells(node, consumed),
            heartbeats=(Heartbeat(*promise),) if promise else (),
            holds=tuple(holds),
        )
        return self._handed(node, content, at_ns)

    def leave_front(self, node: NodeClient, front: str) -> None:
        """Returns when it has left."""
        at_ns = time.monotonic_ns()
        self._handed(node, TickContent(leaves=(front,)), at_ns).result(HANG_S)

    def _handed(self, node: NodeClient, content: TickContent, at_ns: int) -> Future[int]:
        key, segments = str(node.joined.key), list(node.spec.segments)

        def done(future: Future[int]) -> None:
            error = future.exception()
            if error is not None:
                self.failures.append(f"{key}: {error}")
            else:
                # The thread that resolves it is the one that goes from home to home.
                home = node._home  # noqa: SLF001
                self._recorder.tick(key, future.result(), at_ns, content, segments, home=home)
            with self._told:
                self._untold -= 1
                self._told.notify_all()

        (leaving,) = content.leaves or ("",)
        future = node.leave_front(leaving) if leaving else node.commit(content, HANG_S)
        with self._told:
            self._untold += 1
        future.add_done_callback(done)
        return future

    def close(self) -> None:
        """When all is written down: a tick's result can be had a little before that."""
        with self._told:
            if not self._told.wait_for(lambda: self._untold == 0, HANG_S):
                self.failures.append(f"{self._untold} ticks were neither durable nor refused")
        self._recorder.close()


def cells(node: NodeClient, items: list[Item]) -> Cells:
    return Cells.of(
        [(node.segment(segment), slot, unit_value(name), 1) for segment, slot, name in items]
    )
