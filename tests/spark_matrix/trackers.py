"""The tracker that the rows run against: processes of their own, which rows may kill."""

from __future__ import annotations

import queue
import time
from pathlib import Path

from examples.children import Child, Said, free_ports
from tracker.client import Admin, LowmarkError

SHARDS = 2
BLOCK_SLOTS = 4
"""Neighbouring slots of one shard: few, so that every row's slots lie on both."""
START_TIMEOUT_S = 60.0
_POLL_S = 0.1


class TrackerProcesses:
    """A tracker of two processes on loopback, with a store on disk."""

    def __init__(self, directory: Path, sabotage: str | None = None) -> None:
        """sabotage: the fault that is planted into the first process, if any."""
        directory.mkdir(parents=True)
        port = free_ports(SHARDS)
        self.addresses = [f"127.0.0.1:{port + shard}" for shard in range(SHARDS)]
        self.target = ",".join(self.addresses)
        self._directory, self._sabotage = directory, sabotage
        self._said: queue.Queue[Said] = queue.Queue()
        self._children: dict[int, Child] = {}
        self._starts = 0
        for shard in range(SHARDS):
            self.start(shard)
        self._wait()

    def start(self, shard: int) -> None:
        """Starts a process that is not running."""
        assert shard not in self._children
        faulty = self._sabotage is not None and shard == 0
        module = ["tests.sabotage", str(self._sabotage), "--"] if faulty else ["tracker.cli"]
        arguments = [
            "serve", "--shard", str(shard), "--peers", self.target,
            "--store", f"sqlite:{self._directory}/store", "--block-slots", str(BLOCK_SLOTS),
        ]  # fmt: skip
        self._starts += 1
        name = f"tracker-{shard}-{self._starts}"
        self._children[shard] = Child(name, [*module, *arguments], self._directory, self._said)

    def kill(self, shard: int) -> None:
        """Ends a process by SIGKILL."""
        child = self._children.pop(shard)
        child.process.kill()
        child.stop(terminate=False)

    def stop(self) -> None:
        for child in self._children.values():
            child.stop()
        self._children.clear()

    def _wait(self) -> None:
        """Until every process answers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for address in self.addresses:
            while True:
                try:
                    with Admin(address, timeout_s=1.0) as admin:
                        admin.pipelines()
                    break
                except LowmarkError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_S)
