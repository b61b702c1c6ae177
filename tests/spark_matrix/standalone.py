"""A standalone cluster of two workers on two addresses of this machine: for what Spark does only
between hosts, such as speculation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from tests.waits import HANG_S, until
from tracker.client.ports import free_ports

HOSTS = ("127.0.0.1", "127.0.0.2")


class StandaloneCluster:
    """A master and a worker for each host; `stop` ends all of them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.master = f"spark://{HOSTS[0]}:{port}"
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("master.Master", HOSTS[0], "--port", str(port))
            self._await("master", b"I have been elected leader")
            for number, host in enumerate(HOSTS):
                more = (
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(directory / str(number)),
                )
                self._start("worker.Worker", host, *more, self.master, log=f"worker-{number}")
                self._await(f"worker-{number}", b"Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, host: str, *arguments: str, log: str = "master") -> None:
        home = os.path.dirname(pyspark.__file__)
        environment = {
            **os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        }  # fmt: skip
        command = [
            f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", host,
            "--webui-port", "0", *arguments,
        ]  # fmt: skip
        with open(self._directory / f"{log}.log", "wb") as said:
            self._processes.append(
                subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
                )
            )

    def _await(self, log: str, said: bytes) -> None:
        path = self._directory / f"{log}.log"

        def failure() -> str:
            return f"{log} has not started:\n{path.read_text()[-2000:]}"

        def started() -> bool:
            assert self._processes[-1].poll() is None, failure()
            return said in path.read_bytes()

        until(started, failure)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            process.wait(HANG_S)
        self._processes.clear()
