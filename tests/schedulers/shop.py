"""The pipeline that the schedulers follow: hours of orders, each complete when the last of its orders is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lowmark
from tests.schedulers.judged import Reported, read_history
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ORDERS_AN_HOUR = 3
WAIT_S = 60.0
SPEC = PipelineSpec(
    "orders", ("load",), fronts=("shop",), slack_ns=10**9, start_slot=int(BEGIN.timestamp())
)


class Shop:
    """Completes one hour after the other. directory: has `report-hour`, which notes into `reports.txt`."""

    def __init__(self, tracker: EmbeddedTracker, node: NodeClient, directory: Path) -> None:
        self.target, self.directory = tracker.target, directory
        self._node, self._tracker = node, tracker
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
        self._commit(TickContent(created=orders))
        self._commit(TickContent(heartbeats=(Heartbeat("shop", begin + 3_600),)))
        self.completed.append((hour, time.time_ns()))
        self._commit(TickContent(consumed=orders))
        return hour

    def await_complete(self, timeout_s: float) -> None:
        """Until the tracker has announced the hours that are complete."""
        end = BEGIN + timedelta(hours=len(self.completed))
        assert self._tracker.subscriber("orders").wait_until(end, "load", timeout_s)

    def _commit(self, content: TickContent) -> None:
        self._node.commit(content).result(WAIT_S)

    def history(self) -> list[Reported]:
        """The reports so far."""
        return read_history(self.history_file.read_text()) if self.history_file.exists() else []

    def expected(self, layout: str) -> dict[str, int]:
        """When each hour was complete, by its name."""
        return {hour.strftime(layout): at_ns for hour, at_ns in self.completed}


@contextmanager
def open_shop(directory: Path) -> Iterator[Shop]:
    """A tracker in this process with the pipeline `orders`."""
    directory.mkdir(parents=True, exist_ok=True)
    with lowmark.embedded() as tracker:
        tracker.register(SPEC)
        with tracker.node("orders", "shop") as node:
            node.join(WAIT_S)
            node.join_front("shop", "load", WAIT_S)
            shop = Shop(tracker, node, directory)
            program = directory / "bin" / "report-hour"
            program.parent.mkdir(exist_ok=True)
            program.write_text(shop.program)
            program.chmod(0o755)
            yield shop
