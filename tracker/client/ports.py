"""Ports of the loopback address for servers that are about to start.

Between the choice of a port and its server's `bind` somebody else may take it: another process that chooses at
the same time, or the kernel for an outgoing connection. So a port is chosen below those that the kernel gives
away, and is reserved for this process meanwhile, by a UDP socket of the same number: of that, too, there is one
on a machine, nothing else here uses it, and it is gone with the process.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from pathlib import Path

MAX_RESERVED = 128
"""Ports that a process has reserved at once; beyond these the one reserved first is let go of."""
LOWEST = 10_000
"""Below are ports of well-known services."""
_LOOPBACK = "127.0.0.1"
_FIRST_OUTGOING = 32_768  # where the machine does not say it
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MAX_TRIES = 10_000


class PortReservations:
    """Ports from `lowest` to below `end` that are reserved for this process. Thread-safe."""

    def __init__(self, lowest: int, end: int) -> None:
        self.lowest, self.end = lowest, end
        self._random = (
            random.SystemRandom()
        )  # processes that seed `random` alike must not choose alike
        self._reserved: deque[socket.socket] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are reserved."""
        return len(self._reserved)

    def free_ports(self, count: int) -> list[int]:
        """As the function below."""
        for _ in range(_MAX_TRIES):
            first = self._random.randrange(self.lowest, self.end - count + 1)
            ports = list(range(first, first + count))
            if self._reserve(ports):
                return ports
        raise OSError(
            f"no {count} consecutive ports of {_LOOPBACK} are free from {self.lowest} to {self.end - 1}"
        )

    def close(self) -> None:
        """Lets go of all."""
        self._keep([], 0)

    def _reserve(self, ports: list[int]) -> bool:
        """Reserves all of these, or none."""
        taken: list[socket.socket] = []
        try:
            for port in ports:
                taken.append(socket.socket(type=socket.SOCK_DGRAM))
                taken[-1].bind((_LOOPBACK, port))
                with socket.socket() as probe:
                    probe.bind((_LOOPBACK, port))
        except OSError:
            for each in taken:
                each.close()
            return False
        self._keep(taken, max(MAX_RESERVED, len(taken)))
        return True

    def _keep(self, taken: list[socket.socket], most: int) -> None:
        with self._lock:
            self._reserved.extend(taken)
            while len(self._reserved) > most:
                self._reserved.popleft().close()


def _first_outgoing() -> int:
    """The first port that the kernel gives to outgoing connections."""
    try:
        first = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OUTGOING
    return first if first > LOWEST + MAX_RESERVED else _FIRST_OUTGOING


RESERVED = PortReservations(LOWEST, _first_outgoing())
"""This process' own."""


def free_ports(count: int) -> list[int]:
    """Consecutive ports of 127.0.0.1 on which nobody listens, and that no other process gets here while this
    one keeps them: until it has got MAX_RESERVED others. Raises OSError if there are no such ports."""
    return RESERVED.free_ports(count)
