"""A tracker with something to see, and its dashboard, for tests and pictures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import tracker
from tests.client.support import done
from tests.cluster.children import now_slot
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.dashboard import Dashboard

SEGMENTS = ("parse", "enrich", "sessions", "totals", "alerts")
EDGES = (
    Edge("parse", "enrich"), Edge("enrich", "sessions"), Edge("sessions", "totals"),
    Edge("enrich", "alerts"),
)  # fmt: skip
FRONTS = ("web", "mobile")
REGISTERED_AT_ONCE = 16
_WAYS = {
    "parse": ["parse"],
    "enrich": ["parse", "enrich"],
    "sessions": ["parse", "enrich", "sessions"],
    "totals": ["parse", "enrich", "sessions", "totals"],
    "alerts": ["parse", "enrich", "alerts"],
}
"""By segment the way that an item takes to it."""


class Showing:
    """A dashboard in a loop of its own."""

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.dashboard = Dashboard("127.0.0.1:0", target)
        self._do(self.dashboard.start())
        self.url = f"http://{self.dashboard.address}"

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_S)  # type: ignore[arg-type]

    def close(self) -> None:
        self._do(self.dashboard.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()


def register_many(running: EmbeddedTracker, count: int) -> None:
    """Registers p000, p001, ...: two segments each, one after the other."""
    specs = [
        PipelineSpec(
            f"p{number:03}", ("first", "second"), (Edge("first", "second"),), fronts=("front",)
        )
        for number in range(count)
    ]
    with Admin(running.target) as admin, ThreadPoolExecutor(REGISTERED_AT_ONCE) as registering:
        list(registering.map(admin.register, specs))


@dataclass
class Scene:
    """Pipeline `clicks`: two fronts, five segments, a node that reads each."""

    tracker: EmbeddedTracker
    showing: Showing
    fronts: dict[str, NodeClient]
    readers: dict[str, NodeClient]
    start: int

    @property
    def url(self) -> str:
        return self.showing.url

    def promise(self, slots_ago: int = 0) -> None:
        """Every front promises as far as the clock, but for so many slots."""
        slot = now_slot() - slots_ago
        for name, front in self.fronts.items():
            done(front.commit(TickContent(heartbeats=(Heartbeat(name, slot),))))

    def items(self, segment: str, slots: list[int]) -> None:
        """An item at each of the slots (from the scene's start), created by the front, passed on up to
        the segment by the nodes before it, and left open there."""
        way = _WAYS[segment]
        cells = [self._cells(SEGMENTS.index(name), slots) for name in way]
        done(self.fronts["web"].commit(TickContent(created=cells[0])))
        for place, name in enumerate(way[:-1]):
            content = TickContent(consumed=cells[place], created=cells[place + 1])
            done(self.readers[name].commit(content))

    def pass_on(self, segment: str, to: str, slots: list[int]) -> None:
        """The node of a segment takes its items out, and creates those of the next."""
        consumed, created = (self._cells(SEGMENTS.index(s), slots) for s in (segment, to))
        done(self.readers[segment].commit(TickContent(consumed=consumed, created=created)))

    def consume(self, segment: str, slots: list[int]) -> None:
        number = SEGMENTS.index(segment)
        done(self.readers[segment].commit(TickContent(consumed=self._cells(number, slots))))

    def _cells(self, segment: int, slots: list[int]) -> Cells:
        rows = [(segment, self.start + slot, 10_000 * segment + slot + 1, 1) for slot in slots]
        return Cells.of(rows)


@contextmanager
def scene(*, name: str = "clicks", shards: int = 2) -> Iterator[Scene]:
    start = now_slot() - 6_000
    spec = PipelineSpec(name, SEGMENTS, EDGES, fronts=FRONTS, start_slot=start)
    with tracker.embedded(shards=shards) as running:
        running.register(spec)
        fronts, readers = {}, {}
        for front in FRONTS:
            node = running.node(name, front, "front")
            node.join(HANG_S)
            node.join_front(front, "parse", HANG_S)
            fronts[front] = node
        for segment in SEGMENTS:
            kind = "local-tracker" if segment == "alerts" else "query"
            readers[segment] = running.node(name, f"{segment}-query", kind)
            readers[segment].join(HANG_S)
        showing = Showing(running.target)
        try:
            yield Scene(running, showing, fronts, readers, start)
        finally:
            showing.close()
