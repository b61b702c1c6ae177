"""Processes that a benchmark measures: real trackers, and the bare gRPC server beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import redis

from scripts.summary import ROOT
from tracker.client import Admin, LowmarkError
from tracker.client.embedded import free_ports
from tracker.core.model import PipelineSpec

START_S = 60.0
STOP_S = 30.0
_PAUSE_S = 0.02


def start_module(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts `python -m ...`, with what it writes in a log."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, stdout=output, stderr=output
        )


class Tracker:
    """A tracker of its own processes, as `lowmark serve` runs them, until it is closed."""

    def __init__(self, directory: Path, store: str, shards: int = 1, standbys: int = 0) -> None:
        """store: "sqlite" for files in `directory`, else as `lowmark serve --store` takes it."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._store = f"sqlite:{directory}" if store == "sqlite" else store
        ports = free_ports(shards + standbys)
        self.addresses = tuple(f"127.0.0.1:{port}" for port in ports[:shards])
        self.standbys = tuple(f"127.0.0.1:{port}" for port in ports[shards:])
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for shard in range(shards):
                self._serve(f"shard{shard}", "--shard", str(shard))
            for address in self.standbys:
                self._serve(f"standby{address[10:]}", "--standby", "--listen", address)
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise

    def _serve(self, name: str, *options: str) -> None:
        arguments = ["tracker.cli", "serve", "--peers", ",".join(self.addresses)]
        arguments += ["--store", self._store, "--log-level", "warning", *options]
        self.processes.append(start_module(arguments, self.directory / f"{name}.log"))

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_S
        for address in self.addresses:
            with Admin(address) as admin:
                while True:
                    try:
                        if all(shard.state.connected for shard in admin.shards()):
                            break
                    except LowmarkError:
                        pass
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"{address} does not answer: {self._logs()}")
                    time.sleep(_PAUSE_S)

    def _logs(self) -> str:
        return "\n".join(log.read_text()[-1000:] for log in sorted(self.directory.glob("*.log")))

    @property
    def target(self) -> str:
        return ",".join(self.addresses)

    def register(self, spec: PipelineSpec) -> None:
        with Admin(self.target) as admin:
            admin.register(spec)

    def processor_s(self) -> float:
        """Processor time of all its processes so far, in seconds."""
        return sum(processor_s(process.pid) for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()


class EchoServer:
    """A bare gRPC server in a process of its own: a module that prints its port."""

    def __init__(self, module: str = "benchmarks.echo") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.address = f"127.0.0.1:{int(self.process.stdout.readline())}"

    def processor_s(self) -> float:
        return processor_s(self.process.pid)

    def __enter__(self) -> EchoServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.process.kill()
        self.process.wait()


def processor_s(pid: int) -> float:
    """Processor time that a process has used, all its threads together, in seconds."""
    schedstat = 0.0
    for thread in os.scandir(f"/proc/{pid}/task"):
        schedstat += int(Path(thread.path, "schedstat").read_text().split()[0]) / 1e9
    return schedstat


class RedisStore:
    """A redis-server of its own that loses nothing it has acknowledged."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_ports(1)[0]
        self.url = f"redis://127.0.0.1:{port}"
        command = [os.environ.get("REDIS_SERVER", "redis-server"), "--port", str(port)]
        command += ["--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always"]
        with open(directory / "redis.log", "wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + START_S
        with redis.Redis(port=port) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE_S)

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._process.terminate()
        self._process.wait()
