"""How much memory a process takes for large requests, while an honest client goes on:
`python -m tests.siege.swelling`."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from examples.children import free_ports
from tests.cluster.children import Running
from tests.cluster.tracker import Tracker
from tests.siege.besieging import WAIT_S, percentile, register_both, steps
from tests.siege.crowd import BUSY
from tests.siege.large import ATTACKS
from tracker.client import NodeClient, Subscriber

MAX_SWELLING_MIB = 1_024
"""Of one attack: what is in flight (128 MiB of one client) as bytes and as messages, and all that came at once
before it was refused."""


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


def attacked(directory: Path, kinds: tuple[str, ...] = tuple(ATTACKS)) -> dict[str, Swelling]:
    """What each attack made of one process, one after the other."""
    probes = f"127.0.0.1:{free_ports(1)}"
    tracker = Tracker(directory, options=("--log-level", "error", "--health-listen", probes))
    with ExitStack() as stack:
        stack.callback(tracker.close)
        tracker.start()
        register_both(tracker)
        node = stack.enter_context(NodeClient(tracker.target, BUSY, "front"))
        subscriber = stack.enter_context(Subscriber(tracker.target, BUSY))
        node.join(WAIT_S)
        node.join_front("front", "a", WAIT_S)
        found, slot = {}, 0
        for kind in kinds:
            target = probes if kind.startswith("health") else tracker.target
            pid = tracker.shards[0].pid
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


def swollen(found: dict[str, Swelling]) -> list[str]:
    """What did not hold."""
    return [
        f"{kind}: memory went from {each.before_mib} to {each.most_mib} MiB"
        for kind, each in found.items()
        if each.most_mib - each.before_mib > MAX_SWELLING_MIB
    ]


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        found = attacked(Path(directory))
    for kind, each in found.items():
        print(f"{kind}: {asdict(each)}")
    return len(swollen(found))


if __name__ == "__main__":
    sys.exit(main())
