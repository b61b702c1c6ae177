"""A Kafka broker, which is its own controller: one process."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from tests.cluster.network import fresh_address
from tests.cluster.part import PartProcess
from tests.connectors.parts.jars import class_path
from tests.connectors.parts.process import java, run_java

HEAP_MB = 256
JARS = "kafka"
_STARTED = "Kafka Server started"


class KafkaBroker(PartProcess):
    """A broker with its data in `directory`. It has one address for all its runs.

    Raises Unavailable where its jars can't be fetched.
    """

    def __init__(self, directory: Path, **settings: object) -> None:
        """settings: of the broker, with `_` for each dot."""
        self.bootstrap = fresh_address()
        self._class_path = class_path(JARS)
        self._config = directory / "server.properties"
        self._write_config(directory, settings)
        command = java(self._class_path, "kafka.Kafka", str(self._config), heap_mb=HEAP_MB)
        super().__init__(command, directory / "broker.log", lambda: self.logged(_STARTED))
        self._format()

    def _write_config(self, directory: Path, more: dict[str, object]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        controller = fresh_address()
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / "data",
            # Topics of its own have as many replicas as there are brokers.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # A topic is made by who names its partitions.
            "auto.create.topics.enable": "false",
        } | {name.replace("_", "."): value for name, value in more.items()}
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _format(self) -> None:
        # One word: an id may begin with a hyphen.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_java(
            self._class_path, "kafka.tools.StorageTool", "format", "-c", str(self._config),
            f"--cluster-id={cluster}",
        )  # fmt: skip

    def create_topic(self, name: str, partitions: int = 2, **config: object) -> None:
        """Makes a topic. config: of the topic, with `_` for each dot. The tool asks again where the first answer comes
        late, and the topic may be there by then."""
        settings = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
        self._topics(
            "--create", "--if-not-exists", "--topic", name, "--partitions", str(partitions),
            *(word for setting in settings for word in ("--config", setting)),
        )  # fmt: skip

    def delete_topic(self, name: str) -> None:
        self._topics("--delete", "--topic", name)

    def add_partitions(self, name: str, partitions: int) -> None:
        """From here on the topic has so many."""
        self._topics("--alter", "--topic", name, "--partitions", str(partitions))

    def describe(self, name: str) -> str:
        """What the broker says of a topic."""
        return self._topics("--describe", "--topic", name)

    def ends(self, name: str) -> dict[int, int]:
        """The end of each partition of a topic, exclusive."""
        said = self._tool("GetOffsetShell", "--topic", name)
        lines = (line.split(":") for line in said.splitlines())
        return {int(partition): int(end) for _, partition, end in lines}

    def _topics(self, *arguments: str) -> str:
        return self._tool("TopicCommand", *arguments)

    def _tool(self, name: str, *arguments: str) -> str:
        return run_java(
            self._class_path, f"org.apache.kafka.tools.{name}",
            "--bootstrap-server", self.bootstrap, *arguments,
        )  # fmt: skip
