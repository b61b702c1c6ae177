"""How much memory a process takes for large requests, while an honest client goes on:
`python -m tests.siege.swelling`."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.children import free_ports
from tests.cluster.children import Running
from tests.cluster.tracker import Tracker, local_tracker
from tests.siege.besieging import percentile, register_both, steps
from tests.siege.crowd import BUSY
from tests.siege.large import ATTACKS, ENDS
from tests.siege.sly import SLY
from tests.waits import HANG_S, until
from tracker.client import NodeClient, Subscriber

MAX_SWELLING_MIB = 1_024
"""Of one attack: what is in flight (128 MiB of one client) as bytes and as messages, and all that came at once
before it was refused."""

MAX_P99_MS = 5_000
"""Of the steps of an honest client while others attack: far more than any takes, on a machine with much else to do."""


@dataclass(frozen=True)
class Swelling:
    """Of one attack: resident memory in MiB before, at its most, and after; steps of an honest client
    meanwhile, in milliseconds; and the attackers' calls by status."""

    before_mib: float
    most_mib: float
    after_mib: float
    honest_p50_ms: float
    honest_p99_ms: float
    answers: dict[str, int]


def attacked(
    directory: Path, kinds: tuple[str, ...] = (*ATTACKS, *SLY), fault: str = ""
) -> dict[str, Swelling]:
    """What each attack made of one process, one after the other."""
    first = free_ports(4)
    probes, page, told, workers = (f"127.0.0.1:{first + place}" for place in range(4))
    doors = (
        "--set",
        f"health_listen={probes}",
        "--dashboard-listen",
        page,
        "--metrics-listen",
        told,
    )
    tracker = Tracker(directory, options=("--set", "log_level=error", *doors), fault=fault)
    with ExitStack() as stack:
        stack.callback(tracker.close)
        tracker.start()
        register_both(tracker)
        node = stack.enter_context(NodeClient(tracker.target, BUSY, "front"))
        subscriber = stack.enter_context(Subscriber(tracker.target, BUSY))
        node.join(HANG_S)
        node.join_front("front", "a", HANG_S)
        local = local_tracker(
            tracker.target, BUSY, directory, "--socket", f"tcp:{workers}", mode="transactional"
        )
        stack.callback(local.discard)
        local.start()
        until(lambda: listens(workers))
        found, slot = {}, 0
        places = {"tracker": tracker.target, "dashboard": page, "metrics": told, "local": workers}
        for kind in kinds:
            door = SLY[kind][1] if kind in SLY else "tracker"
            target = probes if kind.startswith("health") else places[door]
            pid = local.pid if door == "local" else tracker.shards[0].pid
            times = steps(node, subscriber, slot, 5)
            slot += len(times)
            before = memory_mib(pid, "VmRSS")
            forget_peak(pid)
            crowd = Running("tests.siege.large", kind, target, errors=directory / "large.log")
            said: list[str] = []
            reading = threading.Thread(target=heard, args=(crowd, said))
            try:
                crowd.start()
                reading.start()
                times = []
                while reading.is_alive():
                    times += steps(node, subscriber, slot + len(times), 5)
                slot += len(times)
                reading.join()
                crowd.end()
            finally:
                crowd.discard()
            most = memory_mib(pid, "VmHWM")
            found[kind] = Swelling(
                before, most, memory_mib(pid, "VmRSS"), round(percentile(times, 50), 1),
                round(percentile(times, 99), 1), json.loads(said[0]),
            )  # fmt: skip
    return found


def listens(address: str) -> bool:
    """Whether somebody takes connections there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port))):
            return True
    except OSError:
        return False


def heard(crowd: Running, said: list[str]) -> None:
    """Adds what the attackers say of their calls, when all are over."""
    said.append(crowd.until_line(0))


def memory_mib(pid: int, what: str) -> float:
    """A process's resident memory: VmRSS now, VmHWM at its most since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise AssertionError(f"/proc/{pid}/status has no {what}")


def forget_peak(pid: int) -> None:
    """The most memory that a process has had is what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def ends(kind: str) -> set[str]:
    """All that may come of an attack."""
    return SLY[kind][2] if kind in SLY else ENDS[kind]


def swollen(found: dict[str, Swelling]) -> list[str]:
    """What did not hold."""
    ended = [
        f"{kind}: {sorted(each.answers.keys() - ends(kind))}: {each.answers}"
        for kind, each in found.items()
        if not each.answers.keys() <= ends(kind)
    ]
    late = [
        f"{kind}: the 99th percentile of an honest client's steps was {each.honest_p99_ms} ms"
        for kind, each in found.items()
        if each.honest_p99_ms > MAX_P99_MS
    ]
    return (
        ended
        + late
        + [
            f"{kind}: memory went from {each.before_mib} to {each.most_mib} MiB"
            for kind, each in found.items()
            if each.most_mib - each.before_mib > MAX_SWELLING_MIB
        ]
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        found = attacked(Path(directory))
    for kind, each in found.items():
        print(f"{kind}: {asdict(each)}")
    return len(swollen(found))


if __name__ == "__main__":
    sys.exit(main())
