"""What a tracker takes, beside what docs/sizing.md reckons for it.

Real fronts and nodes that commit what queries commit, in a process of their own, at a real tracker. The
page's tables are read here, and its formulas are written down once more in Python, which its calculator is
held against.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Budget, Figure
from fronts.front import Front, OpenBatch
from scripts.summary import ROOT
from tests.cluster.children import now_slot
from tests.cluster.tracker import Tracker
from tracker.client import NodeClient, Subscriber
from tracker.core.model import Cells, Edge, NodeKind, PipelineSpec, TickContent

PAGE = ROOT / "docs" / "sizing.md"
UNITS = {"": 1.0, "µs": 1e-6, "bytes": 1.0, "KB": 1e3, "MB": 1e6}
SEGMENTS = ("parse", "enrich", "store")
TIMEOUT_S = 60.0
WARM_UP_S = 2.0
LOAD = {
    "fronts": 20.0, "published": 1.0, "queries": 20.0, "interval": 1.0, "hosts": 0.0, "window": 5.0,
    "pipelines": 5.0, "segments": 15.0, "subscribers": 5.0, "heard": 80.0, "backlog": 0.0, "slack": 10.0,
}  # fmt: skip
"""What is started, by the page's words. Each pipeline has four fronts, so that its min time moves 80 times a second."""
DEPLOYMENT = "20 fronts and 20 queries, each with a batch a second, in 5 pipelines of 3 segments"


def on_the_page(heading: str, column: int) -> dict[str, str]:
    """A column of the table below a heading of the page, by the words in its first one."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): row[column].strip(" `|") for row in rows}


def measured() -> dict[str, float]:
    """What one takes, in seconds and bytes."""
    found = {}
    for name, text in on_the_page("What one takes", 2).items():
        number, _, unit = text.partition(" ")
        found[name] = float(number) * UNITS[unit]
    return found


def reckoned(have: Mapping[str, float], one: Mapping[str, float]) -> dict[str, float]:
    """What the page's formulas come to."""
    per_front = one["promises"] + 2 * have["published"]
    ticks = have["fronts"] * per_front
    ticks += have["queries"] / have["interval"]
    ticks += have["hosts"] * (1000 / have["window"])
    news = have["subscribers"] * have["heard"]
    share = ticks / one["rate"] + news * one["notification"]
    processes = max(1, math.ceil(2 * share))
    slots_of_backlog = have["backlog"] * 3600 * 1000 / have["slack"]
    nodes = have["fronts"] + have["queries"] + have["hosts"]
    memory = processes * one["process"] + nodes * one["node"]
    memory += have["pipelines"] * one["pipeline"] + have["segments"] * one["segment"]
    memory += have["segments"] * slots_of_backlog * one["cell"]
    return {
        "ticks": ticks, "share": share, "processes": processes, "memory": memory / 10**6,
        "disk": ticks * one["record"] / 10**3,
    }  # fmt: skip


def find(budget: Budget) -> Iterable[Figure]:
    expected = reckoned(LOAD, measured())
    rounds = [_measure(10.0) for _ in range(budget.pick(1, 3))]
    for name, title, unit in (
        ("ticks", "ticks a second", "/s"),
        ("memory", "resident memory", "MB"),
        ("processors", "processors", ""),
    ):
        told = f"; reckoned: {expected[name]:.4g}" if name in expected else ""
        yield Figure(
            f"{title} of {DEPLOYMENT}", tuple(found[name] for found in rounds), unit,
            f"one process, SQLite{told}",
        )  # fmt: skip


def _measure(seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory, ExitStack() as stack:
        tracker = stack.enter_context(Tracker(Path(directory)))
        ended = threading.Event()
        pipelines = [f"p{number}" for number in range(int(LOAD["pipelines"]))]
        for name in pipelines:
            _start(tracker, name, ended, stack)
        time.sleep(WARM_UP_S)
        before, began, used = _ticks(tracker, pipelines), time.monotonic(), tracker.processor_s()
        time.sleep(seconds)
        took = time.monotonic() - began
        used, ticks = tracker.processor_s() - used, _ticks(tracker, pipelines) - before
        pages = int(Path(f"/proc/{tracker.shards[0].pid}/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE") / 10**6
        ended.set()
    return {"ticks": ticks / took, "processors": used / took, "memory": memory}


def _start(tracker: Tracker, name: str, ended: threading.Event, stack: ExitStack) -> None:
    """A pipeline's fronts, the nodes of its queries, and whoever subscribes; they end before the tracker does."""
    count = int(LOAD["fronts"] / LOAD["pipelines"])
    edges = tuple(Edge(one, other) for one, other in itertools.pairwise(SEGMENTS))
    tracker.register(PipelineSpec(name, SEGMENTS, edges, front_count=count, start_slot=now_slot()))
    queries = []
    for number in range(count):
        query = stack.enter_context(
            NodeClient(tracker.target, name, f"query{number}", NodeKind.QUERY)
        )
        query.join(TIMEOUT_S)
        queries.append(query)
    for number, query in enumerate(queries):
        front = stack.enter_context(Front(tracker.target, name, f"front{number}", SEGMENTS[0]))
        _in_thread(lambda front=front, query=query: _run(front, query, ended), stack)  # type: ignore[misc]
    heard = stack.enter_context(Subscriber(tracker.target, name))
    _in_thread(lambda: sum(1 for _ in heard.updates()), stack)
    stack.callback(heard.close)
    stack.callback(ended.set)


def _run(front: Front, query: NodeClient, ended: threading.Event) -> None:
    """Publishes an item, and consumes it, once a second."""
    open_items: list[Cells] = []

    def send(batch: OpenBatch) -> None:
        items = zip(batch.slots.tolist(), batch.values.tolist(), strict=True)
        open_items.append(Cells.of([(0, slot, value, 1) for slot, value in items]))

    while not ended.wait(LOAD["interval"]):
        front.publish_now(1, send)
        query.commit(TickContent(consumed=open_items.pop(0)))


def _in_thread(work: Callable[[], object], stack: ExitStack) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    stack.callback(thread.join, TIMEOUT_S)


def _ticks(tracker: Tracker, pipelines: Iterable[str]) -> int:
    """Ticks that the nodes of all pipelines have committed."""
    with tracker.admin() as admin:
        return sum(node.known.node_time for name in pipelines for node in admin.nodes(name).nodes)
