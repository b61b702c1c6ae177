"""The files that `lowmark init` writes for Kafka and for Delta run with the real thing, and the reader takes what is
complete, each order once. Those for files run in tests/spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

import tracker
from tests.connectors.conftest import or_skip
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.kafka import KafkaBroker
from tests.dev.written import Written, file_orders, reported
from tests.spark_versions.environments import TABLES_PYSPARK, EnvironmentFailed, environment
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.core.model.slots import DEFAULT_SLACK_NS, slot_of

TOPIC = "orders"


def submit(python: Path, jars: str) -> list[str]:
    """What runs a program with the jars of a connector, as the files say for a place without a way to Maven
    Central."""
    return [str(python.parent / "spark-submit"), "--jars", jars]


def topic_orders(broker: KafkaBroker) -> list[tuple[int, str, int]]:
    """What is in the topic: slot, shop and pieces of each order."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "oracle"})
    ends = broker.ends(TOPIC)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    found: list[tuple[int, str, int]] = []
    while len(found) < sum(ends.values()):
        message = consumer.poll(HANG_S)
        assert message is not None and message.error() is None
        order, (_, time_ms) = json.loads(message.value() or b""), message.timestamp()
        slot = slot_of(time_ms * 1_000_000, DEFAULT_SLACK_NS)
        found.append((slot, order["shop"], order["pieces"]))
    consumer.close()
    return found


@pytest.mark.long
def test_the_files_for_kafka_run(broker: KafkaBroker, tmp_path: Path) -> None:
    jars = or_skip(lambda: spark_jars("spark-kafka"))
    assert CliRunner().invoke(app, ["init", str(tmp_path), "--source", "kafka"]).exit_code == 0
    broker.create_topic(TOPIC)
    python = Path(sys.executable)
    environment = {"BROKERS": broker.bootstrap, "PYSPARK_PYTHON": str(python)}
    with tracker.embedded() as embedded:
        command = submit(python, jars)
        with Written(tmp_path, embedded.target, command, environment) as written:
            written.start()
            written.reach_now()
            assert "run 0: " in written.read()
        written.check_taken(topic_orders(broker), reported(tmp_path / "data/report"))
    broker.delete_topic(TOPIC)  # an example has one of that name


@pytest.mark.long
def test_the_files_for_delta_run(tmp_path: Path) -> None:
    jars = or_skip(lambda: spark_jars("delta"))
    try:
        python = environment(TABLES_PYSPARK)
    except EnvironmentFailed as error:
        pytest.skip(str(error))
    assert CliRunner().invoke(app, ["init", str(tmp_path), "--source", "delta"]).exit_code == 0
    with tracker.embedded() as embedded:
        command = submit(python, jars)
        with Written(
            tmp_path, embedded.target, command, {"PYSPARK_PYTHON": str(python)}
        ) as written:
            written.start()
            written.reach_now()
            assert "run 0: " in written.read()
        data = tmp_path / "data"
        written.check_taken(file_orders(data / "orders"), reported(data / "report"))
