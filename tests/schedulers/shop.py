"""The pipeline that the schedulers follow: hours of orders, each complete when the last of its orders is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lowmark
from tests.schedulers.judged import Reported, read_history
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ORDERS_AN_HOUR = 3
NEVER_NS = 2**63 - 1
SPEC = PipelineSpec(
    "orders", ("load",), fronts=("shop",), slack_ns=10**9, start_slot=int(BEGIN.timestamp())
)


class Shop:
    """Completes one hour after the other. directory: has `report-hour`, which notes into `reports.txt`.

    tracked: whether orders go into ticks. Where they do not (`SABOTAGE=early`) min time passes them while they are
    open, and what an hour is taken to be complete by is NEVER_NS.
    """

    def __init__(
        self, tracker: EmbeddedTracker, node: NodeClient, directory: Path, *, tracked: bool
    ) -> None:
        self.target, self.directory = tracker.target, directory
        self._node, self._tracker, self._tracked = node, tracker, tracked
        self.history_file = directory / "reports.txt"
        self.completed: list[tuple[datetime, int]] = []
        """Each hour that is complete, and when that began to be so: unix nanoseconds."""

    @property
    def program(self) -> str:
        """The `report-hour` of the pages."""
        return f"#!/bin/sh\necho $(date +%s%N) \"$1\" >> '{self.history_file}'\n"

    def complete_hour(self) -> datetime:
        """An hour's orders come in, the next hour begins, and they are processed. Returns its start."""
        hour = BEGIN + timedelta(hours=len(self.completed))
        begin = int(hour.timestamp())
        orders = Cells.of(
            [(0, begin + 60 * n, 2 * begin + n + 1, 1) for n in range(ORDERS_AN_HOUR)]
        )
        next_hour = TickContent(heartbeats=(Heartbeat("shop", begin + 3_600),))
        if not self._tracked:
            self.completed.append((hour, NEVER_NS))
            self._commit(next_hour)
            return hour
        self._commit(TickContent(created=orders))
        self._commit(next_hour)
        self.completed.append((hour, time.time_ns()))
        self._commit(TickContent(consumed=orders))
        return hour

    @property
    def end(self) -> datetime:
        """The end of the last hour that is complete."""
        return BEGIN + timedelta(hours=len(self.completed))

    def await_complete(self, timeout_s: float) -> None:
        """Until the tracker has announced the hours that are complete."""
        assert self._tracker.subscriber("orders").wait_until(self.end, "load", timeout_s)

    def restart_tracker(self) -> None:
        """It dies, and another one goes on where it was."""
        self._tracker.kill_shard(0)
        self._tracker.start_shard(0)

    def _commit(self, content: TickContent) -> None:
        self._node.commit(content).result(HANG_S)

    @property
    def subscribers(self) -> int:
        """How many streams of min times the tracker has open."""
        return self._tracker.servers[0].parts.hub.subscribers("orders")

    @property
    def waiting(self) -> int:
        """How many calls wait for a min time."""
        return self._tracker.servers[0].parts.hub.waiting.count

    def history(self) -> list[Reported]:
        """The reports so far."""
        return read_history(self.history_file.read_text()) if self.history_file.exists() else []

    def expected(self, layout: str) -> dict[str, int]:
        """When each hour was complete, by its name."""
        return {hour.strftime(layout): at_ns for hour, at_ns in self.completed}


@contextmanager
def open_shop(directory: Path, *, tracked: bool = True) -> Iterator[Shop]:
    """A tracker in this process with the pipeline `orders`."""
    directory.mkdir(parents=True, exist_ok=True)
    with lowmark.embedded() as tracker:
        tracker.register(SPEC)
        with tracker.node("orders", "shop") as node:
            node.join(HANG_S)
            node.join_front("shop", "load", HANG_S)
            shop = Shop(tracker, node, directory, tracked=tracked)
            program = directory / "bin" / "report-hour"
            program.parent.mkdir(exist_ok=True)
            program.write_text(shop.program)
            program.chmod(0o755)
            yield shop
