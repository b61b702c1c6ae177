"""Parts for a program that is no test: `python -m tests.connectors.parts.serving DIRECTORY BUCKET TOPIC PARTITIONS`.

Starts a Kafka broker with a topic and an S3 server with a bucket, says where they are as one JSON line, `ready`,
and ends them when its standard input is closed. What can't be had it says as `unavailable`, with the reason.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from examples.children import tell
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server
from tests.spark_versions.environments import TABLES_PYSPARK, EnvironmentFailed, environment

JARS = ("spark-kafka-4.1", "s3a-3.4", "delta", "iceberg", "sqlite-jdbc")
KEPT_MS = 10**15
"""Longer than any record is old."""


def main(directory: Path, bucket: str, topic: str, partitions: int) -> int:
    """Serves until standard input is closed; 1 where a part can't be had."""
    with ExitStack() as started:
        try:
            python, jars = environment(TABLES_PYSPARK), spark_jars(*JARS)
            store = S3Server(directory / "s3", bucket)
            broker = KafkaBroker(directory / "kafka")
        except (Unavailable, EnvironmentFailed) as error:
            tell("unavailable", reason=str(error))
            return 1
        started.enter_context(store)
        started.enter_context(broker)
        # A segment of the log, and its records, are as old as the records' timestamps.
        broker.create_topic(topic, partitions, retention_ms=-1, segment_ms=KEPT_MS)
        tell(
            "ready", brokers=broker.bootstrap, bucket=str(store.data / bucket), jars=jars,
            python=str(python), settings=store.spark_settings(),
        )  # fmt: skip
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    where, bucket_name, topic_name, count = sys.argv[1:]
    sys.exit(main(Path(where), bucket_name, topic_name, int(count)))
