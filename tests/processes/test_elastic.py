"""Shards of a tracker that runs whose processes one process looks after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.children import free_ports
from tests.cluster.network import Place
from tests.cluster.tracker import Tracker, numbers
from tests.processes.elastic import MARGIN
from tracker.core.insight.describe import ShardRole

OWNER, SPARE = ShardRole.OWNER, ShardRole.SPARE


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Tracker]:
    """Two shards' processes that one process looks after."""
    tracker = Tracker(tmp_path, shards=0, options=MARGIN)
    first = f"127.0.0.1:{free_ports(2)}"
    tracker.shards.append(
        tracker.server(Place("parent", first, first), "--shards", "2", "--store", tracker.store)
    )
    tracker.shards[0].start()
    with closing(tracker):
        yield tracker


def test_a_parent_lets_a_process_go_whose_shard_has_left(parent: Tracker) -> None:
    parent.until(lambda routing: all(shard.state.connected for shard in routing.shards))
    (process,) = parent.shards
    assert numbers(parent.rescale(1, evacuate=True), OWNER) == [0]
    process.until_logs('"event": "shard_left"')
    # Started again with the same command, it starts what is left.
    assert process.stop() == 0, process.errors()
    process.start()
    parent.until(lambda routing: len(routing.shards) == 1)
    process.until_logs('"reason": "shard 1 has left')
    newcomer = parent.newcomer()
    parent.until(lambda routing: numbers(routing, SPARE) == [2])
    assert numbers(parent.rescale(2), OWNER) == [0, 2]
    newcomer.kill()
