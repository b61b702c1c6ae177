"""The tracker's processes of a run, which come and go; none outlives it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.processes import processor_s
from examples.history import Recorder
from scripts.summary import ROOT
from tests.processes.running import WAIT_S, Running, ends_of_logs
from tracker.client import Admin, LowmarkError, RoutingInfo
from tracker.client.embedded import free_ports
from tracker.core.insight.describe import ShardRole

POLL_S = 0.02
RESCALE_S = 120.0
MARGIN_MS = 100
"""How far beyond the highest slot new shards begin to own: all here have one clock."""
MOVED = "lowmark_cells_moved_total"
PAGE_BYTES = resource.getpagesize()


class Fleet:
    """Processes by their addresses, in the order in which they came."""

    def __init__(self, directory: Path, shards: int, sabotage: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._sabotage = directory, sabotage
        self.store = directory / "store"
        self.processes: dict[str, Running] = {}
        self._metrics: dict[str, str] = {}
        self.gone: list[str] = []
        """Addresses of processes that have left, in the order in which they did."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(shards)]
        peers = ",".join(addresses)
        for shard, address in enumerate(addresses):
            self._serve(address, "--shard", str(shard), "--peers", peers)

    def _serve(self, address: str, *way: str) -> Running:
        name, metrics = address.rpartition(":")[2], f"127.0.0.1:{free_ports(1)[0]}"
        process = Running(
            "tests.elastic.serving", self._sabotage, "--", "serve", "--listen", address, *way,
            "--store", f"sqlite:{self.store / name}", "--log-level", "info",
            "--metrics-listen", metrics, "--rescale-margin-ms", str(MARGIN_MS),
            errors=self.directory / f"tracker-{name}.log",
        )  # fmt: skip
        self.processes[address], self._metrics[address] = process, metrics
        return process

    def start(self) -> None:
        for process in self.processes.values():
            process.start()
        self.wait_connected(len(self.processes))

    def join(self) -> str:
        """One more process, which joins; returns its address when the others count it."""
        before = {shard.state.shard for shard in self.routing().shards}
        address = f"127.0.0.1:{free_ports(1)[0]}"
        target = self.target
        self._serve(address, "--join", target).start()
        deadline = time.monotonic() + RESCALE_S
        while True:
            spares = self.routing().of(ShardRole.SPARE)
            if any(shard.state.shard not in before for shard in spares):
                return address
            assert time.monotonic() < deadline, f"{address} has not joined\n{self.errors()}"
            time.sleep(POLL_S)

    def rescale(self, shards: int, *, evacuate: bool = False, by_command: bool = False) -> int:
        """Returns when it is done, and those that were to go have ended by themselves: how many cells
        were moved. by_command: as an operator does it."""
        before = self.metrics(MOVED)[MOVED]
        if by_command:
            more = ["--evacuate"] if evacuate else []
            command("rescale", "--shards", str(shards), "--target", self.target, *more)
        else:
            with self.admin() as admin:
                admin.rescale(shards, evacuate=evacuate, timeout_s=RESCALE_S)
        staying = {shard.address for shard in self.routing().shards}
        gone = [address for address in self.addresses if address not in staying]
        self.gone += gone
        return int(self.metrics(MOVED)[MOVED] - before) + sum(map(self._gone, gone))

    def _gone(self, address: str) -> int:
        """How many cells a process that has left has handed over, as it says."""
        process = self.processes[address]
        assert process.end() == 0, f"{address}: {process.errors()}"
        lines = process.errors_of_run().splitlines()  # of gRPC's, too
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return sum(line["moved_cells"] for line in said if line["event"] == "handed_over")

    def routing(self) -> RoutingInfo:
        with self.admin() as admin:
            return admin.routing()

    @property
    def addresses(self) -> list[str]:
        """Of those that are there."""
        return [address for address in self.processes if address not in self.gone]

    @property
    def target(self) -> str:
        return ",".join(self.addresses)

    def admin(self) -> Admin:
        return Admin(self.target, WAIT_S)

    def wait_connected(self, shards: int, timeout_s: float = RESCALE_S) -> None:
        """Until every process that is there sees so many shards, and all of them connected."""
        deadline = time.monotonic() + timeout_s
        for address in self.addresses:
            with Admin(address, WAIT_S) as admin:
                while True:
                    try:
                        states = [shard.state for shard in admin.shards()]
                        if len(states) == shards and all(state.connected for state in states):
                            break
                    except LowmarkError:
                        states = []
                    if time.monotonic() > deadline:
                        raise AssertionError(f"{address} sees {states}\n{self.errors()}")
                    time.sleep(POLL_S)

    # --- looking ----------------------------------------------------------------------------------

    def metrics(self, *names: str) -> dict[str, float]:
        """Sums of metrics over the processes that are there, and all labels."""
        sums = dict.fromkeys(names, 0.0)
        for address in self.addresses:
            with urllib.request.urlopen(
                f"http://{self._metrics[address]}/metrics", timeout=WAIT_S
            ) as page:
                text = page.read().decode()
            for line in text.splitlines():
                name = line.partition("{")[0].partition(" ")[0]
                if name in sums:
                    sums[name] += float(line.rpartition(" ")[2])
        return sums

    def processor_s(self) -> float:
        """Processor time of those that are there, together, so far."""
        return sum(processor_s(self.processes[address].pid) for address in self.addresses)

    def memory_bytes(self) -> dict[str, int]:
        """What each process has in memory, by address."""
        found = {}
        for address in self.addresses:
            pages = Path(f"/proc/{self.processes[address].pid}/statm").read_text().split()[1]
            found[address] = int(pages) * PAGE_BYTES
        return found

    def record_final(self, recorder: Recorder, pipeline: str) -> None:
        """What each process says of a pipeline at the end."""
        for address in self.addresses:
            with Admin(address, WAIT_S) as admin:
                recorder.final(address, admin.pipeline(pipeline).state)

    def errors(self) -> str:
        return ends_of_logs(self.directory, "tracker-*.log")

    # --- ending -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends what still runs, however the run went."""
        for process in self.processes.values():
            process.discard()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def command(*arguments: str) -> None:
    """Runs `lowmark ...`. Raises AssertionError if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tracker.cli", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=RESCALE_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
