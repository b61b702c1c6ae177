"""kill -9 of a shard with a standby: how long until announcements go on.

Two fronts, each at home at another shard, promise slot after slot; a subscriber of the shard that lives
hears min time move. Then a shard is killed. Counted is the time from the kill until min time passes a
slot that was promised after it, for which every shard is needed, the standby in the place of the one
that is gone.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure, are_told
from benchmarks.latency import Heard
from benchmarks.limits import time_for
from benchmarks.pairs import FEWEST_ROUNDS, take_turns
from tests.cluster.redis_server import RedisServer
from tests.cluster.tracker import Tracker
from tracker.client import NodeClient
from tracker.core.model import Heartbeat, PipelineSpec, TickContent
from tracker.core.model.routing import RoutingTable

TIMEOUT_S = 60.0
ROUNDS_S = 150.0
"""How long rounds that cannot tell may go on."""
PROMISE_EVERY_S = 0.01
BEFORE_S = 1.5


def find(budget: Budget) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        folders = (Path(directory) / f"{turn}" for turn in itertools.count())
        pauses = take_turns(
            {
                store: (lambda store=store: _pause_s(next(folders), store))  # type: ignore[misc]
                for store in ("sqlite", "redis")
            },
            FEWEST_ROUNDS,
            lambda found: are_told(_figures(found)),
            looks=budget.looks,
            has_time=time_for(ROUNDS_S),
        )
    return _figures(pauses)


def _figures(pauses: dict[str, list[float]]) -> list[Figure]:
    return [
        Figure(
            f"kill -9 of a shard with a standby until announcements go on, {store}",
            tuple(found),
            "s",
            "2 shards and a standby, leases as they come",
            BARS["failover"],
        )
        for store, found in pauses.items()
    ]


def _pause_s(directory: Path, store: str) -> float:
    with ExitStack() as stack:
        if store == "redis":
            store = stack.enter_context(RedisServer(directory / "redis")).url
        tracker = stack.enter_context(Tracker(directory, 2, 1, store=store))
        routing = RoutingTable.uniform(2)
        tracker.register(PipelineSpec("p", ("in",), front_count=2))
        fronts = [
            stack.enter_context(Front(tracker.target, _named(routing, shard))) for shard in range(2)
        ]
        heard = stack.enter_context(Heard([tracker.shards[1].address], "p", 1))
        heard.reached(min(front.promised for front in fronts) + 1)
        time.sleep(BEFORE_S)
        tracker.shards[0].kill()
        killed = time.perf_counter()
        slot = max(front.promised for front in fronts) + 1
        return heard.reached(slot) - killed


def _named(routing: RoutingTable, shard: int) -> str:
    """A node id that is at home there."""
    number = 0
    while routing.home("p", f"front{number}") != shard:
        number += 1
    return f"front{number}"


class Front:
    """Promises a slot every 10 ms, in a thread of its own, whatever is durable yet."""

    def __init__(self, target: str, node_id: str) -> None:
        self.promised = 0
        self._node = NodeClient(target, "p", node_id, "front")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._promise, daemon=True)

    def __enter__(self) -> Front:
        self._node.join(TIMEOUT_S)
        self._thread.start()
        return self

    def _promise(self) -> None:
        self._node.join_front("front", "in", TIMEOUT_S)
        while not self._ended.wait(PROMISE_EVERY_S):
            self.promised += 1
            self._node.commit(TickContent(heartbeats=(Heartbeat("front", self.promised),)))

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        self._node.close()
