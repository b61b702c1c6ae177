"""Kafka topics: as the sink of a query, and as what the next one reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.connector import AFTER, PARSE, How, Site
from tests.connectors.kinds.files import with_task
from tests.connectors.kinds.kafka import ROWS, FromKafka, item, records
from tests.spark.support import SCHEMA
from tests.spark_matrix.places import StoreAway
from tests.spark_matrix.truth import Output
from tests.spark_matrix.world import World

PARTITIONS = 2


class IntoKafka(FromKafka):
    """From topic to topic, and from there into files."""

    number, name = 6, "a Kafka topic into another"

    def site(self, world: World) -> Site:
        site = super().site(world)
        return Site(site.url, {**site.more, "out": f"{site.more['topic']}-out"})

    def open(self, world: World) -> None:
        self.parts.broker.create_topic(self.site(world).more["out"], PARTITIONS)
        super().open(world)

    def follow(self, world: World) -> None:
        site = self.site(world)
        manifests = Manifests(site, world.name)
        written = Output(
            "topic", manifests.directory, (AFTER,), lambda _, batch: manifests.of(batch)
        )
        world.follow("cp", PARSE, written, ranges=records)
        world.follow("cp-after", AFTER, ranges=manifests.somebodys)

    @staticmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        source = spark.readStream.format("kafka").option("maxOffsetsPerTrigger", ROWS * how.files)
        frame = with_task(rows_of(source, site, "topic"), how)
        writer = frame.select(to_json(struct("slot", "row")).alias("value")).writeStream
        writer = writer.format("kafka").option("kafka.bootstrap.servers", site.more["brokers"])
        writer = writer.option("topic", site.more["out"]).option("checkpointLocation", site("cp"))
        reads = {site.more["topic"]: PARSE}
        return tracked.start(writer, node_id=PARSE, reads=reads, creates=[AFTER])

    def read_on(self, world: World, tracked: Tracked) -> TrackedQuery:
        site = self.site(world)
        frame = rows_of(world.spark.readStream.format("kafka"), site, "out")
        return world.copy(
            tracked, frame, node=AFTER, reads={site.more["out"]: AFTER}, out="after",
            checkpoint="cp-after",
        )  # fmt: skip

    def check(self, world: World) -> None:
        """Each row is there at least once, and no record has a later slot than its row."""
        wanted = sorted((row, slot) for slot, row in world.rows())
        found = sorted(set(world.sink_rows("after", "parquet")))
        world.check(found == wanted, f"after holds {found}, and was to hold {wanted}")
        site = self.site(world)
        labels = Manifests(site, world.name).labels()
        source = rows_of(world.spark.read.format("kafka"), site, "out", "partition", "offset")
        for record in source.collect():
            label = labels[item(site.more["out"], record.partition, record.offset)]
            if label is None or label > record.slot:
                world.fail(f"{record} has the label {label}")


def rows_of(source: Any, site: Site, topic: str, *more: str) -> DataFrame:
    """The rows of a topic's records, from its first one on."""
    options = {
        "kafka.bootstrap.servers": site.more["brokers"], "startingOffsets": "earliest",
        "subscribe": site.more[topic],
    }  # fmt: skip
    parsed = from_json(col("value").cast("string"), SCHEMA).alias("parsed")
    return source.options(**options).load().select(parsed, *more).select("parsed.*", *more)


class Manifests:
    """What the query has noted of its topic, read as it lies there."""

    def __init__(self, site: Site, pipeline: str) -> None:
        topic = Path(site.more["topics"]) / quote(pipeline, safe="") / site.more["out"]
        self.directory = topic / "writer"

    def of(self, batch: int) -> list[str]:
        """The records that the manifest of a batch covers. Raises StoreAway while there is none."""
        found = [manifest for manifest in self._read() if manifest["batch"] == batch]
        if not found:
            raise StoreAway(f"batch {batch} has no manifest yet")
        return [name for manifest in found for name in _names(manifest)]

    def labels(self) -> dict[str, int | None]:
        """The slot of each record, None where it is nobody's."""
        return {
            name: manifest["slots"].get(AFTER)
            for manifest in self._read()
            for name in _names(manifest)
        }

    def somebodys(self, before: Any, after: Any) -> list[tuple[str, int | None]]:
        """The records between two offsets, but for those that are nobody's."""
        labels = self.labels()
        nobodys = {name for name, label in labels.items() if label is None}
        return [found for found in records(before, after) if found[0] not in nobodys]

    def _read(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.directory.glob("0*.json"))]


def _names(manifest: dict[str, Any]) -> list[str]:
    found = []
    for name, begin, end in manifest["ranges"]:
        topic, partition = name.rsplit("/", 1)
        found += [item(topic, int(partition), offset) for offset in range(begin, end)]
    return found
