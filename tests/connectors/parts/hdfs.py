"""HDFS: a NameNode and a DataNode, each a process."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Self

from tests.cluster.network import fresh_address
from tests.cluster.part import PartProcess
from tests.connectors.parts.jars import class_path
from tests.connectors.parts.process import java, run_java
from tests.waits import HANG_S, until

JARS = "hdfs"
HEAP_MB = 192
BLOCK_BYTES = 4 * 1024 * 1024
"""A DataNode takes a file only if it has room for a whole block, however small the file is."""
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_LOGGING = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


class HdfsCluster:
    """A file system with its data in `directory`. It has one address for all its runs.

    Raises Unavailable where its jars can't be fetched.
    """

    def __init__(self, directory: Path) -> None:
        self.address, self.web = fresh_address(), fresh_address()
        self.url = f"hdfs://{self.address}"
        directory.mkdir(parents=True, exist_ok=True)
        self._write_config(directory)
        classes = self._classes = class_path(JARS, directory)
        run_java(classes, _NAME_NODE, "-format", "-nonInteractive", "-force")
        self.name_node, self.data_node = (
            PartProcess(java(classes, main, heap_mb=HEAP_MB), directory / f"{name}.log", ready)
            for name, main, ready in (
                ("name-node", _NAME_NODE, self._listens), ("data-node", _DATA_NODE, self._is_whole)
            )
        )  # fmt: skip

    def _write_config(self, directory: Path) -> None:
        (directory / "log4j.properties").write_text(_LOGGING)
        # Each node serves its state from a web application, whose pages the jars do not bring.
        for name in ("hdfs", "datanode", "static"):
            (directory / "webapps" / name).mkdir(parents=True, exist_ok=True)
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": directory / "data"}
        hdfs = {
            "dfs.namenode.http-address": self.web,
            "dfs.datanode.address": fresh_address(),
            "dfs.datanode.http.address": fresh_address(),
            "dfs.datanode.ipc.address": fresh_address(),
            "dfs.replication": 1,
            "dfs.blocksize": BLOCK_BYTES,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": 0,
            # The one DataNode takes what comes, however busy it is.
            "dfs.namenode.redundancy.considerLoad": "false",
            # How soon the nodes of a cluster on one host notice each other, in seconds.
            "dfs.heartbeat.interval": 1,
        }
        for name, settings in (("core-site", core), ("hdfs-site", hdfs)):
            properties = "".join(
                f"<property><name>{key}</name><value>{value}</value></property>\n"
                for key, value in settings.items()
            )
            text = f"<configuration>\n{properties}</configuration>\n"
            (directory / f"{name}.xml").write_text(text)

    def start(self) -> Self:
        """Starts what is not running; returns when files can be written."""
        for node in (self.name_node, self.data_node):
            if not node.running:
                node.start()
        until(self._is_whole, lambda: f"HDFS is not whole: {self.name_node.said()}", HANG_S)
        return self

    def stop_name_node(self) -> None:
        """kill -9 of the NameNode: nothing can be read or written until `start`."""
        self.name_node.kill()

    @staticmethod
    def spark_settings() -> dict[str, str]:
        """For a session that writes `hdfs://` there: a client says how large its blocks are."""
        return {"spark.hadoop.dfs.blocksize": str(BLOCK_BYTES)}

    def shell(self, *arguments: str) -> str:
        """What `hdfs dfs` says."""
        return run_java(self._classes, "org.apache.hadoop.fs.FsShell", *arguments)

    def _listens(self) -> bool:
        return self._ask("GET", "GETFILESTATUS")

    def _is_whole(self) -> bool:
        """Whether the NameNode would take a file, and has a DataNode for it. Makes none."""
        return self._ask("PUT", "CREATE&noredirect=true", "probe")

    def _ask(self, method: str, operation: str, name: str = "") -> bool:
        url = f"http://{self.web}/webhdfs/v1/{name}?op={operation}"
        try:
            # expires: asked again until it is ready
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5):
                return True
        except OSError:
            return False

    def discard(self) -> None:
        """At the end, however it went."""
        for node in (self.data_node, self.name_node):
            node.discard()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.discard()
            raise

    def __exit__(self, *_: object) -> None:
        self.discard()
