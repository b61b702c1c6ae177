"""What a local tracker tells Prometheus, in both modes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.children import free_ports
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import HandedOver
from tests.local_tracker.fakes import one_cell
from tests.local_tracker.test_agent import agent, contribution
from tests.service.scraping import Samples, promtool_finds, samples_of, text_when, value
from tests.waits import HANG_S
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.core.model import Cells, Edge, PipelineSpec
from tracker.errors import HandOverError
from tracker.metrics.names import HISTOGRAM, LOCAL_TRACKER, PROCESS


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with embedded() as tracker:
        tracker.register(PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), front_count=1))
        yield tracker


def told(address: str, name: str, **labels: str) -> Samples:
    """The samples, once this one is above zero."""
    text = text_when(address, lambda samples: value(samples, name, **labels))
    assert promtool_finds(text) == ""
    return samples_of(text)


def test_all_metrics_of_both_modes_are_told(running: EmbeddedTracker, tmp_path: Path) -> None:
    port = free_ports(2)
    places = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    eager, staging = f"unix:{tmp_path}/eager", f"unix:{tmp_path}/staging"
    with (
        agent(running.target, eager, "eager", "--metrics-listen", places[0]),
        agent(running.target, staging, "transactional", "--metrics-listen", places[1]),
    ):
        handle = Handle(eager, "p", HANG_S)
        two = Cells.concatenate([one_cell(0, 5, 1), one_cell(0, 5, 2)])
        handle.step(two, Cells.empty())
        with pytest.raises(HandOverError):
            handle.step(one_cell(0, -5, 1), Cells.empty())
        flushing = told(places[0], "lowmark_local_tracker_refused_total", reason="below_min_time")
        handle.close()
        running.node("p", "q-node", "query").join()
        query = Handle(staging, "p", HANG_S)
        query.stage("q-node", [HandedOver("1", contribution(1))])
        passing_on = told(places[1], "lowmark_local_tracker_contributions_total")
        query.close()
    assert value(flushing, "lowmark_local_tracker_steps_total") == 1
    assert value(flushing, "lowmark_local_tracker_cells_flushed_total") == 1
    assert value(flushing, "lowmark_local_tracker_merge_ratio") == 2.0
    assert value(flushing, "lowmark_local_tracker_flushes_total", outcome="refused") == 1
    assert value(passing_on, "lowmark_local_tracker_contributions_total") == 1
    seen = {name for name, _ in flushing} | {name for name, _ in passing_on}
    for metric in (*LOCAL_TRACKER, *PROCESS):
        name = f"{metric.name}_count" if metric.kind == HISTOGRAM else metric.name
        assert name in seen, f"{name} is listed and was not told"
