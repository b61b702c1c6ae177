"""Spark's file source and file sink, with their checkpoints, in stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.cluster.relay import Relay
from tests.connectors.connector import AFTER, PARSE, Connector, Hold, How, Site
from tests.connectors.parts.together import BUCKET
from tests.connectors.places import HdfsPlace, S3Place
from tests.spark.support import SCHEMA
from tests.spark_matrix.world import World


def read_files(spark: SparkSession, site: Site, how: How) -> DataFrame:
    """The front's files."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", how.files)
    return frame.parquet(site("in"))


def with_task(frame: DataFrame, how: How) -> DataFrame:
    """What is to be written: by way of the task, if there is one, in so many partitions."""
    if how.task is not None:
        frame = frame.mapInArrow(how.task, SCHEMA)
    return frame.repartition(how.partitions, "row")


def into_files(frame: DataFrame, site: Site, how: How) -> DataStreamWriter:
    writer = with_task(frame, how).writeStream.format("parquet").option("path", site("out"))
    return writer.option("checkpointLocation", site("cp"))


class Files(Connector):
    """From files into files."""

    pyspark = "4.3"

    def open(self, world: World) -> None:
        super().open(world)
        world.follow("cp", PARSE, world.sink("out", AFTER))
        world.follow("cp-after", AFTER)

    @staticmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        writer = into_files(read_files(spark, site, how), site, how)
        return tracked.start(writer, node_id=PARSE, reads=PARSE, creates=[AFTER])

    def read_on(self, world: World, tracked: Tracked) -> TrackedQuery:
        return world.copy(
            tracked, world.reader(3).parquet(world.path("out")), node=AFTER, reads=AFTER,
            out="after", checkpoint="cp-after",
        )  # fmt: skip

    def check(self, world: World) -> None:
        world.sink_is_all("out", "parquet")
        world.sink_is_all("after", "parquet")


class FilesInHdfs(Files):
    number, name, jars = 1, "files in HDFS", ()

    def settings(self) -> dict[str, str]:
        return self.parts.hdfs.spark_settings()

    def place(self, row: str, directory: Path) -> HdfsPlace:
        return HdfsPlace(self.parts.hdfs, self.parts.hdfs_relay.address, row)

    @contextmanager
    def held_before_commit(self, batch: int) -> Iterator[Hold]:
        with held(self.parts.hdfs_relay, batch) as hold:
            yield hold

    @contextmanager
    def away(self) -> Iterator[None]:
        self.parts.hdfs.stop_name_node()
        try:
            yield
        finally:
            self.parts.hdfs.start()


class OnS3(Connector):
    """Whose files are on the S3 server, checkpoints too."""

    def settings(self) -> dict[str, str]:
        return self.parts.s3.spark_settings()

    def place(self, row: str, directory: Path) -> S3Place:
        return S3Place(self.parts.s3, BUCKET, row)

    @contextmanager
    def held_before_commit(self, batch: int) -> Iterator[Hold]:
        relay = Relay(self.parts.s3.url.removeprefix("http://"))
        settings = {"spark.hadoop.fs.s3a.endpoint": f"http://{relay.address}"}
        try:
            with held(relay, batch, settings) as hold:
                yield hold
        finally:
            relay.close()

    @contextmanager
    def away(self) -> Iterator[None]:
        self.parts.s3.kill()
        try:
            yield
        finally:
            self.parts.s3.start()


class FilesOnS3(OnS3, Files):
    number, name, jars = 2, "files on S3", ("s3a",)


@contextmanager
def held(relay: Relay, batch: int, settings: dict[str, str] | None = None) -> Iterator[Hold]:
    """From the first request on that names a temporary file of `commits/<batch>`, none comes through; at the
    end, what was held is lost."""
    mark = f"/commits/.{batch}.".encode()
    relay.hold_from(mark)
    try:
        yield Hold(settings or {}, lambda timeout_s: relay.until_held(mark, timeout_s))
    finally:
        relay.lose()
