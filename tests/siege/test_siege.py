"""A small siege: those who misbehave are closed, refused or kept waiting, and others are served."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc

from tests.siege.besieging import Siege, failures
from tests.siege.crowd import TRICKLING, Crowd
from tests.siege.swelling import Swelling, attacked, swollen
from tests.waits import HANG_S
from tracker.wire.grpc_options import MAX_IDLE_MS, SERVER_OPTIONS


def test_others_are_served_while_a_crowd_misbehaves(tmp_path: Path) -> None:
    found = Siege(tmp_path).run(subscribers=300, deaf=10, slow=30, rounds=10, patient=False)
    assert failures(found, subscribers=300, slow_closed=0) == []
    assert found.tally.bad_ticks > found.tally.refusals > 0


def test_connections_that_come_to_no_call_are_closed() -> None:
    """With the times of a process, but shorter: who says nothing, and who never ends a call's headers."""
    shorter = {"grpc.server_handshake_timeout_ms": 500, "grpc.max_connection_idle_ms": 1_000}
    assert dict(SERVER_OPTIONS)["grpc.max_connection_idle_ms"] == MAX_IDLE_MS
    assert shorter.keys() <= dict(SERVER_OPTIONS).keys()

    async def besiege() -> None:
        server = grpc.aio.server(options=[*(dict(SERVER_OPTIONS) | shorter).items()])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        crowd = Crowd(f"127.0.0.1:{port}")
        try:
            slow = (crowd.slow(kind) for kind in range(TRICKLING + 1))
            await asyncio.wait_for(asyncio.gather(*slow), HANG_S)
        finally:
            await server.stop(None)

    asyncio.run(besiege())


def test_small_attacks_close_no_door(tmp_path: Path) -> None:
    assert swollen(attacked(tmp_path, ("orders", "foreign-page", "foreign-metrics"))) == []


def test_each_bound_can_fail() -> None:
    """`make siege SABOTAGE=lifted` shows it with a process, and takes 1.7 GB."""
    held = Swelling(80.0, 90.0, 85.0, 2.0, 20.0, {"UNIMPLEMENTED": 24})
    assert swollen({"health-packed": held}) == []
    for broken in (
        replace(held, most_mib=1_700.0), replace(held, honest_p99_ms=9_000.0),
        replace(held, answers={"NOT_FOUND": 24}),
    ):  # fmt: skip
        assert len(swollen({"health-packed": broken})) == 1
