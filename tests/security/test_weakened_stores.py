"""A Redis that is told to promise less while a tracker runs on it: said, and nothing acknowledged meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.client.support import TWO_SEGMENTS, create, done, joined_front
from tests.cluster.tracker import Tracker
from tests.service.scraping import text_when, value
from tests.waits import until
from tracker.client import NodeClient

WEAKENED = "lowmark_store_weakened"


def test_a_tick_waits_until_its_store_promises_again_what_it_must(tmp_path: Path) -> None:
    with Tracker(tmp_path, store="redis", metrics=True) as tracker:
        assert tracker.redis is not None
        (shard,) = tracker.shards
        tracker.register(TWO_SEGMENTS)
        with NodeClient(tracker.target, "two", "F") as node, tracker.redis.client() as client:
            joined_front(node)
            done(node.commit(create(1, 1)))
            client.config_set("appendfsync", "no")
            text_when(shard.metrics, lambda samples: value(samples, WEAKENED) == 1)
            waits = node.commit(create(2, 2))
            until(lambda: "appendfsync is no, not always. Nothing is ack" in shard.errors())
            assert not waits.done()
            client.config_set("appendfsync", "always")
            done(waits)
            text_when(shard.metrics, lambda samples: value(samples, WEAKENED) == 0)
        said = shard.errors()
        assert said.count('"event": "store_weakened"') == 1 and '"store_as_asked"' in said
