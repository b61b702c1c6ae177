"""The parts that a run needs, each started when it is first asked for, and ended with the run."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from tests.cluster.relay import Relay
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server

BUCKET = "lowmark"


class Parts:
    """One of each. What can't be had raises Unavailable when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @cached_property
    def s3(self) -> S3Server:
        return S3Server(self._directory / "s3", BUCKET).start()

    @cached_property
    def hdfs(self) -> HdfsCluster:
        return HdfsCluster(self._directory / "hdfs").__enter__()

    @cached_property
    def hdfs_relay(self) -> Relay:
        """Before the NameNode: files are named by its address, for all who read and write them."""
        return Relay(self.hdfs.address)

    @property
    def sqlite(self) -> Path:
        """A database, for the names of tables."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / "catalog.db"

    @cached_property
    def broker(self) -> KafkaBroker:
        return KafkaBroker(self._directory / "kafka").start()

    def close(self) -> None:
        started = self.__dict__
        if "hdfs_relay" in started:
            self.hdfs_relay.close()
        for name in ("s3", "hdfs", "broker"):
            if name in started:
                started[name].discard()
