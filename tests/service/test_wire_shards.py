"""All that homes log and stores keep while shards come and go survives the wire and the store."""

from __future__ import annotations

from dataclasses import replace

from tests.core.driver import Cluster, plain
from tests.core.test_rescaling import CONFIG, SPEC, Load
from tracker.core.log import HomeEntry
from tracker.core.log.steps import ROUTING_ENTRIES
from tracker.core.model import Batch, Unit
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)


def test_steps_and_snapshots_survive_the_store() -> None:
    cluster = Cluster(2, config=replace(CONFIG, max_bytes_per_move=1))
    load = Load(cluster)
    cluster.register(replace(SPEC, name="q"))
    node = next(n for n in map(str, range(99)) if cluster.routing.home("p", n) == 1)
    cluster.node(SPEC, node).commit(batch=Batch("q", 1, b"x"))
    segment = next(s for s in range(2) if cluster.routing.names_keeper("p", s) == 1)
    load.front.commit(
        created=[(0, 5, 77), (0, 6, 78)], units_created=[Unit(segment, "file", 5)]
    )  # of shard 1 and of shard 0, whichever is which
    cluster.begin_to_join()  # nobody comes
    cluster.pass_time(CONFIG.join_timeout_ms + 1)
    cluster.pass_time(CONFIG.join_timeout_ms + 1)
    cluster.join_shard(peer=1)
    snapshots = [process.snapshot() for process in cluster.processes.values()]
    cluster.rescale(1, evacuate=True)
    snapshots += [process.snapshot() for process in cluster.processes.values()]
    for snapshot in snapshots:
        assert plain(snapshot_from_bytes(snapshot_to_bytes(snapshot))) == plain(snapshot)
    kinds = set()
    for records in cluster.stored.values():
        for _, record in records:
            assert plain(record_from_bytes(record_to_bytes(record))) == plain(record)
            if isinstance(record, HomeEntry):
                kinds.add(type(record.entry))
    assert kinds >= set(ROUTING_ENTRIES)
