"""What probes are told of a process that serves, waits, takes over and is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster.children import discard
from tests.cluster.network import Place
from tests.cluster.tracker import Server
from tests.waits import HANG_S, until
from tracker.client import Admin, Subscriber
from tracker.client.ports import free_ports
from tracker.core.model import PipelineSpec
from tracker.service.rpc.probes import READY_SERVICE, SERVES_SERVICE
from tracker.service.rpc.redirect import LIVE_SERVICE

SERVICES = (LIVE_SERVICE, READY_SERVICE, SERVES_SERVICE)
SERVES, WAITS, ALONE = (True, True, True), (True, True, False), (True, False, False)


class Member:
    """One process of a tracker with one shard: number 0 has it at first, number 1 is a standby."""

    def __init__(self, number: int, addresses: list[str], health: str, directory: Path) -> None:
        self.health, self.address = health, addresses[number]
        self.process = Server(
            Place(f"member-{number}", self.address, self.address),
            (
                "--set", f"member={number}", "--peers", addresses[0], "--address", self.address,
                "--set", f"health_listen={health}", "--store", f"sqlite:{directory / 'store'}",
            ),
            directory,
        )  # fmt: skip

    def says(self) -> tuple[bool, ...]:
        """Of each service, whether it is served; nothing if nobody answers."""
        with grpc.insecure_channel(self.health) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]
            try:
                answers = [check(health_pb2.HealthCheckRequest(service=s)) for s in SERVICES]
            except grpc.RpcError:
                return ()
        return tuple(a.status == health_pb2.HealthCheckResponse.SERVING for a in answers)

    def comes_to_say(self, wanted: tuple[bool, ...]) -> None:
        until(
            lambda: self.says() == wanted,
            lambda: f"{self.says()}, not {wanted}: {self.process.errors()}",
        )


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    ports = [f"127.0.0.1:{port}" for port in free_ports(4)]
    both = tuple(Member(n, ports[:2], ports[2 + n], tmp_path) for n in range(2))
    yield both  # type: ignore[misc]
    discard(member.process for member in both)


def test_a_process_is_ready_that_serves_or_waits_while_all_is_served(
    members: tuple[Member, Member],
) -> None:
    owner, standby = members
    standby.process.start()
    standby.comes_to_say(ALONE)  # nobody serves: an upgrade must not go on
    owner.process.start()
    owner.comes_to_say(SERVES)
    standby.comes_to_say(WAITS)
    assert owner.process.stop() == 0
    standby.comes_to_say(SERVES)
    owner.process.start()
    owner.comes_to_say(WAITS)  # its shard is in good hands
    with Admin(owner.address, HANG_S) as admin:  # who waits names who serves
        admin.register(PipelineSpec("p", ("a",), fronts=("f",), start_slot=7))
    with Subscriber(owner.address, "p") as subscriber:
        assert subscriber.min_time() == 7
        assert next(iter(subscriber.updates())).min_time == 7
    assert standby.process.stop() == 0
    owner.comes_to_say(SERVES)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    ports = [f"127.0.0.1:{port}" for port in free_ports(1)]
    member = Member(0, ports, "nowhere.invalid:1", tmp_path)
    member.process.start()
    assert member.process.end() == 1
    assert (
        "the health service for probes cannot listen on nowhere.invalid:1"
        in member.process.errors()
    )
