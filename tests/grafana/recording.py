"""A run of a real tracker in which all that the dashboards show happens, scraped as Prometheus does."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from tests.client.support import consume, create, done, promise
from tests.cluster.children import now_slot
from tests.cluster.tracker import Tracker
from tests.service.scraping import Samples, samples_of, text_of, value
from tests.waits import HANG_S, until
from tracker.client import NodeClient, RefusedError, Subscriber
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.waits import WaitCause, WaitKind

OVER, RUNNING = "over", "running"
"""Names of the pipelines: one is complete, one runs."""
OPEN = 3
"""Items that are in flight whenever it is scraped."""
SCRAPES = 12
STEP_S = 0.3  # paces: the load
INTERVAL_S = 15
"""Between two scrapes, as Prometheus has them: the run is shorter."""


@dataclass
class Recording:
    """By series, its name and labels as Prometheus writes them, the value of each scrape; None where it had none."""

    series: dict[str, list[float | None]] = field(default_factory=dict)
    scrapes: int = 0

    def take(self, by_instance: dict[str, Samples]) -> None:
        """One scrape of all processes."""
        for instance, samples in by_instance.items():
            for (name, labels), found in samples.items():
                told = {**dict(labels), "instance": instance, "job": "lowmark", "namespace": "flow"}
                values = self.series.setdefault(_series(name, told), [])
                values += [None] * (self.scrapes - len(values)) + [found]
        self.scrapes += 1


def _series(name: str, labels: dict[str, str]) -> str:
    told = ", ".join(f'{label}="{text}"' for label, text in sorted(labels.items()))
    return f"{name}{{{told}}}"


def record(directory: Path, fault: str = "") -> Recording:
    """Runs it. fault: one of `tests.sabotage`."""
    recording = Recording()
    with (
        Tracker(
            directory, 2, options=("--set", "block_slots=2"), metrics=True, fault=fault
        ) as tracker,
        _at_work(tracker) as work,
    ):
        metrics = {server.name: server.metrics for server in tracker.servers}
        # Freshness is told once it was sampled for a while.
        level = "lowmark_freshness_level_seconds"
        labels = {
            "pipeline": RUNNING,
            "segment": "",
            "behind": "promise",
            "window": "5m",
            "percentile": "99",
        }

        def is_sampled() -> bool:
            work.step()
            return all(
                value(samples_of(text_of(at)), level, **labels) is not None
                for at in metrics.values()
            )

        def is_known() -> bool:
            """Whether the metrics of both have what is open now."""
            found = [samples_of(text_of(at)).items() for at in metrics.values()]
            level, of = "lowmark_segment_open_items", ("pipeline", RUNNING)
            told = (
                v for each in found for (name, labels), v in each if name == level and of in labels
            )
            return sum(told) == OPEN

        until(is_sampled)
        for _ in range(SCRAPES):
            work.step()
            until(is_known)
            recording.take({name: samples_of(text_of(at)) for name, at in metrics.items()})
            time.sleep(STEP_S)  # paces: the load
    return recording


class _Work:
    """A front whose items a worker consumes, but for the last few."""

    def __init__(self, front: NodeClient, worker: NodeClient) -> None:
        self._front, self._worker = front, worker
        self._open: deque[tuple[int, int]] = deque()
        self._items = 0

    def step(self) -> None:
        """Some items are created and consumed, and a tick and a call are refused."""
        slot = now_slot()
        for number in range(4):
            self._items += 1
            done(self._front.commit(create(slot + number, self._items)))
            self._open.append((slot + number, self._items))
            if len(self._open) > OPEN:
                done(self._worker.commit(consume(*self._open.popleft())))
        done(self._front.commit(promise(slot)))
        with suppress(RefusedError):
            done(self._worker.commit(create(0, 1)))  # below min time
        self._worker.report_waits([WaitCause(WaitKind.OTHER, "waits for the world")])


@contextmanager
def _at_work(tracker: Tracker) -> Iterator[_Work]:
    with ExitStack() as stack:
        edges = (Edge("first", "second"),)
        for name in (OVER, RUNNING):
            start = now_slot() - 100
            tracker.register(
                PipelineSpec(name, ("first", "second"), edges, fronts=("front",), start_slot=start)
            )
        nodes = {}
        for name in (OVER, RUNNING):
            node = nodes[name] = stack.enter_context(NodeClient(tracker.target, name, "shop"))
            node.join(HANG_S)
            node.join_front("front", "first", HANG_S)
        done(nodes[OVER].leave_front("front"))
        worker = stack.enter_context(NodeClient(tracker.target, RUNNING, "worker"))
        worker.join(HANG_S)
        subscriber = Subscriber(tracker.target, RUNNING)
        listening = Thread(target=lambda: [*subscriber.updates()], daemon=True)
        listening.start()
        stack.callback(listening.join, HANG_S)
        stack.callback(subscriber.close)
        with suppress(RefusedError), tracker.admin() as admin:
            admin.pipeline("none")
        yield _Work(nodes[RUNNING], worker)
