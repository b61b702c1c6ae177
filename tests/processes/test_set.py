"""Processes of a set, as a StatefulSet is one: it grows at its end, shrinks from its end, and what is
started again there is another shard."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.children import free_ports
from tests.client.support import TWO_SEGMENTS, create, done, joined_front, promise
from tests.cluster.children import discard
from tests.cluster.network import Place
from tests.cluster.tracker import Server, lowmark
from tests.processes.elastic import MARGIN
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient, RoutingInfo, Subscriber
from tracker.core.insight.describe import ShardRole

FIRST, MOST = 2, 4


class Set:
    """Member N listens at address N, and has a store that outlives it, and a directory that does not
    outlive its pod."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port = free_ports(MOST)
        self.addresses = [f"127.0.0.1:{port + number}" for number in range(MOST)]
        self.running: dict[int, Server] = {}

    def target(self, size: int) -> str:
        return ",".join(self.addresses[:size])

    def start(self, number: int, size: int) -> Server:
        """A new pod: what it noted of the one before is gone."""
        self.left_file(number).unlink(missing_ok=True)
        address = self.addresses[number]
        process = Server(
            Place(f"member-{number}", address, address),
            (
                "--set", f"member={number}", "--peers", self.target(FIRST), "--set", f"members={self.target(size)}",
                "--set", f"left_file={self.left_file(number)}", "--address", address,
                "--store", f"sqlite:{self.directory / f'store-{number}'}", *MARGIN,
            ),
            self.directory,
        )  # fmt: skip
        self.running[number] = process
        process.start()
        return process

    def left_file(self, number: int) -> Path:
        return self.directory / f"left-{number}"

    def fit(
        self, size: int, when: str, *, timeout_s: float = HANG_S
    ) -> subprocess.CompletedProcess[str]:
        return lowmark(
            "shards", "--members", self.target(size), "--when", when, "--timeout", f"{timeout_s}s",
            environment={"LOWMARK_TARGET": self.target(1)},
        )  # fmt: skip

    def owners(self) -> list[tuple[int, int]]:
        """(shard, member), by shard, of those that own slots."""
        owners = self.routing().of(ShardRole.OWNER)
        return [(shard.state.shard, self.addresses.index(shard.address)) for shard in owners]

    def routing(self) -> RoutingInfo:
        with Admin(self.target(1), HANG_S) as admin:
            return admin.routing()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Set]:
    made = Set(tmp_path)
    for number in range(FIRST):
        made.start(number, FIRST)
    try:
        yield made
    finally:
        discard(made.running.values())


def fits(said: subprocess.CompletedProcess[str]) -> None:
    assert said.returncode == 0, said


def test_a_set_grows_and_shrinks_at_its_end(members: Set) -> None:
    with (
        Admin(members.target(1), HANG_S) as admin,
        NodeClient(members.target(1), "two", "F") as node,
        Subscriber(members.target(1), "two") as subscriber,
    ):
        admin.register(TWO_SEGMENTS)
        joined_front(node)
        done(node.commit(create(100, 7)))
        fits(members.fit(FIRST, "after"))

        # The last one begins first, and is the last shard all the same.
        members.start(3, 4)
        members.running[3].until_logs("not there yet")
        members.start(2, 4)
        fits(members.fit(4, "after"))
        assert members.owners() == [(0, 0), (1, 1), (2, 2), (3, 3)]
        fits(members.fit(4, "after"))

        # To one: the others hand over, and wait to be ended, also when they are started again.
        fits(members.fit(1, "before"))
        assert members.owners() == [(0, 0)]
        for number in (1, 2, 3):
            process = members.running[number]
            until(members.left_file(number).exists, "it has noted nothing")
            process.kill()
            process.start()
            process.until_logs('"stays"')
        assert len(members.routing().shards) == 1, "nobody has joined again"
        fits(members.fit(1, "before"))
        for number in (1, 2, 3):
            assert members.running[number].stop() == 0

        # To two again: a new pod with the old store, whose first shard has left.
        members.start(1, 2)
        fits(members.fit(2, "after"))
        assert members.owners() == [(0, 0), (4, 1)]

        # A member that never got slots goes, too.
        members.start(2, 3)
        until(lambda: members.routing().of(ShardRole.SPARE), "it does not join")
        fits(members.fit(2, "before"))
        assert members.owners() == [(0, 0), (4, 1)]

        done(node.commit(promise(400)))
        assert subscriber.wait_until(100, "first", HANG_S), "what was open is still open, and known"
        assert not subscriber.wait_until(101, "first", 0.5)  # expires: it is open


def test_a_set_that_is_not_that_of_the_shards_is_refused(members: Set) -> None:
    until(lambda: all(shard.state.connected for shard in members.routing().shards))
    turned = ",".join(reversed(members.addresses[:FIRST]))
    fewer = lowmark(
        "shards", "--members", members.addresses[1], "--when", "before",
        environment={"LOWMARK_TARGET": turned},
    )  # fmt: skip
    assert fewer.returncode == 1 and "the shards of other processes would go" in fewer.stderr
    late = members.fit(3, "after", timeout_s=0.5)  # expires: no third is started
    assert late.returncode == 4 and "not all of the set have joined" in late.stderr
    above = members.fit(1, "after")
    assert above.returncode == 1 and "--when before" in above.stderr
    assert members.owners() == [(0, 0), (1, 1)]
