"""The begin of a shard that there has never been."""

from __future__ import annotations

import pytest

from tests.service.serving import config
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore, StoreUnavailable


class Full(MemoryStore):
    """Has no room for a snapshot."""

    def write_snapshot(self, epoch: int, position: int, snapshot: bytes, level: int = 1) -> None:
        raise StoreUnavailable("there is no room")


async def test_it_does_not_serve_before_its_store_knows_with_how_many_shards_it_began() -> None:
    """Else it could be started again, with what it has acknowledged, as one of another number of them."""
    server = TrackerServer(config(), Full())
    with pytest.raises(StoreUnavailable, match="there is no room"):
        await server.start()
