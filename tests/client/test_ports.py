"""Ports for servers that start in a moment are given to one process at a time, and never by the kernel."""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tracker.client.ports import LOWEST, MAX_RESERVED, RESERVED, PortReservations, free_ports

FIRST = random.SystemRandom().randrange(LOWEST, RESERVED.end - 60)
LAST = FIRST + 59
"""Others than those of a run of the same tests beside this one."""
TAKE_ALL = f"""
import sys
from tracker.client.ports import PortReservations
reservations, given = PortReservations({FIRST}, {LAST + 1}), []
try:
    while True:
        given += reservations.free_ports(1)
except OSError:
    print(*given, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def few() -> Iterator[PortReservations]:
    (port,) = free_ports(1)
    RESERVED.close()
    reservations = PortReservations(port, port + 1)
    yield reservations
    reservations.close()


def test_they_are_consecutive_and_free_and_given_once() -> None:
    given = free_ports(5) + free_ports(3)
    assert len(set(given)) == len(given)
    for ports in (given[:5], given[5:]):
        assert all(after == before + 1 for before, after in itertools.pairwise(ports))
    for port in given:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_none_is_one_that_the_kernel_gives_to_outgoing_connections() -> None:
    assert all(LOWEST <= port < RESERVED.end for port in free_ports(20))


def test_two_processes_that_choose_at_once_get_different_ones() -> None:
    """Both take all that they can get of a few ports, and keep them until their input ends."""
    command = [sys.executable, "-c", TAKE_ALL]
    choosing = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    given: list[str] = []
    try:
        for each in choosing:
            assert each.stdout is not None
            given += each.stdout.readline().split()
    finally:
        for each in choosing:
            each.communicate()
    assert len(given) > (LAST - FIRST) / 2
    assert len(set(given)) == len(given)


def test_a_port_on_which_somebody_listens_is_not_given(few: PortReservations) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", few.lowest))
        server.listen()
        with pytest.raises(
            OSError, match=f"no 1 consecutive ports .* from {few.lowest} to {few.lowest}"
        ):
            few.free_ports(1)
    assert few.free_ports(1) == [few.lowest]


def test_no_more_are_reserved_than_the_limit() -> None:
    for _ in range(2 * MAX_RESERVED):
        free_ports(1)
    assert len(RESERVED) == MAX_RESERVED
