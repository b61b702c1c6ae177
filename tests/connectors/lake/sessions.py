"""Spark sessions that know Delta and Iceberg tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.s3 import S3Server
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session

CATALOG = "ice"
"""The Iceberg catalog: directories below `<directory>/ice`."""


SQL_CATALOG = "sql"
"""The Iceberg catalog that programs without a JVM know, too: a file of SQLite in `<directory>`."""


def lake_session(directory: Path, server: S3Server | None = None) -> SparkSession:
    """What Spark leaves behind, and its catalogs, are in `directory`. server: that it reaches, by `s3a://`."""
    sets = ("delta", "iceberg", "sqlite-jdbc", *(("s3a-3.4",) if server else ()))
    settings = {
        **(server.spark_settings() if server else {}),
        "spark.jars": spark_jars(*sets),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(directory / CATALOG),
        f"spark.sql.catalog.{SQL_CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{SQL_CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{SQL_CATALOG}.uri": f"jdbc:sqlite:{directory / SQL_CATALOG}.db",
        f"spark.sql.catalog.{SQL_CATALOG}.warehouse": f"file://{directory / SQL_CATALOG}",
        # A commit of a few files is not worth fifty tasks.
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    return make_session(Profile("lake", "local[2]", settings), directory)


def sql_catalog(spark: SparkSession) -> dict[str, str]:
    """The properties by which pyiceberg knows the SQL catalog."""
    uri = spark.conf.get(f"spark.sql.catalog.{SQL_CATALOG}.uri") or ""
    return {"type": "sql", "uri": uri.replace("jdbc:sqlite:", "sqlite:///")}
