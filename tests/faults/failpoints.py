"""Kills a tracker process at each of the named places in the life of a tick, and has it come back."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.network import open_network
from tests.faults.nodes import PAUSE_S
from tests.faults.system import System
from tracker.service.failpoints import NAMES, VARIABLE

VICTIM = 1
"""The shard that dies; others see it go and come back."""
TIMES = 5
"""It dies the fifth time that it comes by: something has gone through by then."""
OFTEN = ("--set", "snapshot_after_records=150")


def died_at(system: System, name: str) -> None:
    """Lets the victim run until it has died there, and then come back and catch up."""
    victim = system.tracker.shards[VICTIM]
    times = 1 if name == "acquire-after" or name.startswith("snapshot") else TIMES
    victim.kill()
    doomed = system.tracker.replaced(victim, **{VARIABLE: f"{name}:{times}"})
    doomed.start()
    if name == "announce-after":
        # Subscribers that have found the other processes stay with them: a new one begins with this.
        system.subscriber(victim.address).start()
    status = doomed.end()
    assert status == -signal.SIGKILL, f"{name}: it ended with {status}: {doomed.errors()}"
    system.tracker.replaced(doomed).start()
    system.goes_on()


def run_failpoints(
    directory: Path,
    store: str,
    names: Iterable[str] = NAMES,
    shown: bool = False,
    pause_s: float = PAUSE_S,
) -> list[str]:
    """One system that is killed at each place in turn; returns what its history breaks."""
    network = open_network()
    system = System(
        directory, network, shards=2, standbys=0, store=store, hears_last_shard=True, options=OFTEN,
        pause_s=pause_s,
    )  # fmt: skip
    try:
        system.start()
        system.goes_on()
        for name in names:
            died_at(system, name)
            if shown:
                print(f"failpoint {name} ({store}): died there, came back, went on", flush=True)
        system.finish()
        return system.violations()
    finally:
        system.close()
        sys.stdout.flush()
