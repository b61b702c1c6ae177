"""A tracker inside of a program: its shards come and go as those of a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_shards_join_and_leave_while_ticks_flow(kind: str, tmp_path: Path) -> None:
    store = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'data'}"
    with tracker.embedded(store=store) as running:
        running.register(TWO_SEGMENTS)
        node, subscriber = joined_front(running.node("two", "n")), running.subscriber("two")
        grown = running.rescale(3)
        assert sorted(running.servers) == [shard.state.shard for shard in grown.shards] == [0, 1, 2]
        assert list(running.addresses) == [shard.address for shard in grown.shards]
        for slot in range(0, 2000, 64):  # of all shards
            done(node.commit(create(slot, slot + 1)))
        done(node.commit(promise(2000)))
        running.kill_shard(2)
        running.start_shard(2)
        running.rescale(1, evacuate=True)
        assert sorted(running.servers) == [0] and len(running.addresses) == 1
        # expires: what was handed over is open
        assert not subscriber.wait_until(2000, timeout_s=0.05)
        for slot in range(0, 2000, 64):
            done(node.commit(consume(slot, slot + 1)))
        assert subscriber.wait_until(2000, timeout_s=HANG_S)
