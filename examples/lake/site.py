"""Where the broker, the S3 server and the tables of a run are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

BUCKET = "lake"
TOPIC = "flights"
CATALOG = "ice"
ENRICHED = f"{CATALOG}.flights.enriched"
"""The Iceberg table of the second query, as SQL knows it."""

_FILE = "site.json"


@dataclass(frozen=True, slots=True)
class Site:
    """brokers: of Kafka; bucket: the directory in which the S3 server keeps the bucket's objects as files;
    jars: for `spark.jars`; python: of the environment in which Spark knows tables; settings: of a session
    that reads and writes `s3a://`."""

    brokers: str
    bucket: str
    jars: str
    python: str
    settings: dict[str, str]

    def write(self, root: Path) -> None:
        """For the programs of the run below `root`."""
        (root / _FILE).write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(root: Path) -> Site:
        return Site(**json.loads((root / _FILE).read_text()))

    @staticmethod
    def url(name: str) -> str:
        """Of a table or folder, for Spark."""
        return f"s3a://{BUCKET}/{name}"

    def objects(self, name: str) -> Path:
        """The same place as the server keeps it."""
        return Path(self.bucket, name)

    @staticmethod
    def checkpoint(query: str) -> str:
        """Of a query, below the bucket."""
        return f"checkpoints/{query}"

    def spark_settings(self, root: Path) -> dict[str, str]:
        """Of a session that reads Kafka, and knows Delta tables, and those of the Iceberg catalog. Which
        metadata of a table are the current ones is a row of a database in `root`: nothing is renamed."""
        catalog = f"spark.sql.catalog.{CATALOG}"
        return {
            "spark.jars": self.jars,
            **self.settings,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A commit of a few files is not worth fifty tasks.
            "spark.databricks.delta.snapshotPartitions": "1",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{root / 'catalog.db'}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": self.url("warehouse"),
            # Who reads the table sees what it is now.
            f"{catalog}.cache-enabled": "false",
        }
