"""A Kafka broker, which is its own controller: one process."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.cluster.network import fresh_address
from tests.cluster.part import PartProcess
from tests.connectors.parts.jars import class_path
from tests.connectors.parts.process import java, run_java
from tests.waits import HANG_S

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
        """Makes a topic. config: of the topic, with `_` for each dot. The client asks again where the first answer comes
        late, and the topic may be there by then."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=settings)
        try:
            self._answers(lambda admin: admin.create_topics([topic]))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def delete_topic(self, name: str) -> None:
        self._answers(lambda admin: admin.delete_topics([name]))

    def add_partitions(self, name: str, partitions: int) -> None:
        """From here on the topic has so many."""
        more = NewPartitions(name, partitions)
        self._answers(lambda admin: admin.create_partitions([more]))

    def ends(self, name: str) -> dict[int, int]:
        """The end of each partition of a topic, exclusive."""

        def asked(admin: AdminClient) -> dict[TopicPartition, Future[Any]]:
            partitions = admin.list_topics(name, HANG_S).topics[name].partitions
            latest = {TopicPartition(name, number): OffsetSpec.latest() for number in partitions}
            return admin.list_offsets(latest)

        return {each.partition: found.offset for each, found in self._answers(asked).items()}

    def _answers(self, ask: Callable[[AdminClient], dict[Any, Future[Any]]]) -> dict[Any, Any]:
        """To what is asked of a client, which is kept until all of them are there: they go with it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return {what: answer.result(HANG_S) for what, answer in ask(admin).items()}
