"""A process of a set whose shard has left waits to be ended, and its store says so (docs/elasticity.md)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from tests.waits import until_async
from tracker.client.ports import free_ports
from tracker.service.config import ServerConfig
from tracker.service.http.metrics import ServiceMetrics
from tracker.service.rpc.probes import Probes
from tracker.service.run import AuxiliaryEndpoints, _stay
from tracker.store import GONE, open_leases, open_store

SHARD = 2


def owner(url: str) -> str:
    """Of the shard, as its store says."""
    with closing(open_leases(url)) as leases:
        lease = leases.read(SHARD)
    return "" if lease is None else lease.owner


@pytest.mark.parametrize("by_another", [False, True])
async def test_whoever_has_noted_it_and_was_killed_marks_the_store(
    tmp_path: Path, by_another: bool
) -> None:
    """Else a process that gets the store later, as the set is larger again, would be that shard, leave once more and wait to be
    ended. A store that another one has taken meanwhile is left alone."""
    here = f"127.0.0.1:{free_ports(1)[0]}"
    note, url = tmp_path / "left", f"sqlite:{tmp_path}"
    note.write_text(f"shard {SHARD}\n")
    with closing(open_store(url, SHARD)) as store:
        store.acquire("elsewhere:1" if by_another else here, lease_ms=60_000)  # as it was killed
    config = ServerConfig(0, (), url, join=("h:1",), address=here, left_file=str(note))
    stop = asyncio.Event()
    staying = asyncio.ensure_future(
        _stay(config, stop, AuxiliaryEndpoints(Probes(""), ServiceMetrics(0)))
    )
    if by_another:
        await asyncio.sleep(0.5)  # expires: nothing happens
    else:
        await until_async(lambda: owner(url) == GONE)
    stop.set()
    assert await staying == 0
    assert owner(url) == ("elsewhere:1" if by_another else GONE)
