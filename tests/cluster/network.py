"""The network between the processes of a run, which can be cut off one by one.

Where the machine allows it each process has a network namespace of its own, joined to a bridge: a cut
takes its cable out. Elsewhere each has a relay before it, which swallows what comes and goes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Protocol

from tests.cluster.relay import Relay
from tests.waits import HANG_S, until
from tracker.client.ports import free_ports

PORT = 7070
NOBODY = "127.0.0.1:1"
"""Where nobody listens: a port that is free now may be another process's when a test connects to it."""
_MARK = "LOWMARK_FAULTS_IN_NAMESPACE"


@dataclass(frozen=True)
class Place:
    """Where a process runs. listen: what it binds; address: where others reach it; command: what its
    own begins with."""

    name: str
    listen: str
    address: str
    command: tuple[str, ...] = ()


class Network(Protocol):
    """Places by name."""

    kind: str

    def place(self, name: str) -> Place: ...
    def cut(self, name: str) -> None: ...
    def join(self, name: str) -> None: ...
    def close(self) -> None: ...


class Loopback:
    """Places on this machine, with nothing between them that could be cut."""

    kind = "loopback"

    def place(self, name: str) -> Place:
        address = fresh_address()
        return Place(name, address, address)

    def cut(self, name: str) -> None:
        raise NotImplementedError(f"{name} cannot be cut off on loopback")

    join = cut

    def close(self) -> None:
        """Nothing to close."""


def fresh_address() -> str:
    """A port of loopback for a server that is started now, and perhaps once more."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def open_network() -> Network:
    """Namespaces, if this process is in one of its own; else relays."""
    return Namespaces() if os.environ.get(_MARK) else Relays()


def move_into_namespace(module: str, arguments: list[str]) -> None:
    """Starts this program anew in a network namespace, where that is allowed; else returns."""
    if os.environ.get(_MARK) or not _allowed():
        return
    os.environ[_MARK] = "1"
    command = [sys.executable, "-m", module, *arguments]
    os.execvp("unshare", ["unshare", "--net", *command])


def _allowed() -> bool:
    script = "ip link add trial type bridge && unshare --net true && nsenter --version >/dev/null"
    try:
        tried = subprocess.run(
            ["unshare", "--net", "sh", "-c", script],
            capture_output=True,
            check=False,
            timeout=HANG_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=HANG_S)


@dataclass
class Namespaces:
    """One namespace a place, on one bridge."""

    kind: str = "namespaces"
    _holders: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("addr", "add", "10.77.0.1/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")

    def place(self, name: str) -> Place:
        number = len(self._holders) + 2
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[name] = holder
        self._wait_for_namespace(holder.pid)
        inside = ("nsenter", "--target", str(holder.pid), "--net", "--")
        cable, address = self._cable(name), f"10.77.0.{number}"
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _ip("link", "set", cable, "master", "bridge", "up")
        for arguments in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            subprocess.run([*inside, "ip", *arguments], check=True, timeout=HANG_S)
        return Place(name, f"{address}:{PORT}", f"{address}:{PORT}", inside)

    def _wait_for_namespace(self, pid: int) -> None:
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, "no namespace comes")

    def _cable(self, name: str) -> str:
        return f"c-{list(self._holders).index(name)}"

    def cut(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "down")

    def join(self, name: str) -> None:
        _ip("link", "set", self._cable(name), "up")

    def close(self) -> None:
        for name, holder in self._holders.items():
            _ip("link", "delete", self._cable(name))  # the kernel takes its time to do it by itself
            holder.kill()
            holder.wait()
        _ip("link", "delete", "bridge")


class Relays:
    """One relay a place: what others send there goes through it."""

    kind = "relays"

    def __init__(self) -> None:
        self._relays: dict[str, Relay] = {}

    def place(self, name: str) -> Place:
        listen = fresh_address()
        self._relays[name] = Relay(listen)
        return Place(name, listen, self._relays[name].address)

    def cut(self, name: str) -> None:
        self._relays[name].hold("up", "down")

    def join(self, name: str) -> None:
        self._relays[name].lose()

    def close(self) -> None:
        for relay in self._relays.values():
            relay.close()
