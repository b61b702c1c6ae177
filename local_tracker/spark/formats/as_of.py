"""A table as it was at one version, for those who read it more than once."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.formats.registry import table_format


class TableAsOf:
    """A table of a session, a classic one or of Spark Connect. Its versions are numbers: of a Delta table its
    own, of an Iceberg table the ids of its snapshots on the main branch. Where there is no such table, Spark
    says so when it is asked."""

    def __init__(self, spark: SparkSession, table: str, fmt: str) -> None:
        """table: its name, as the session's catalogs have it, or, with a `/`, where it is. fmt: `delta`, `iceberg`,
        or another format of tables; raises TrackingError for what is none."""
        self._spark, self._table, self._format = spark, table, table_format(fmt)

    def newest(self) -> int | None:
        """The version that stands in the table now, whatever the session remembers of it; None where it has
        none yet."""
        return self._format.newest_version(self._spark, self._table)

    def load(self, version: int | None) -> DataFrame:
        """The table at a version; None: as it is. Where the version is gone, Spark says so."""
        self._format.forget_version(self._spark, self._table)
        if "/" not in self._table:
            at = "" if version is None else f" VERSION AS OF {version}"
            return self._spark.sql(f"SELECT * FROM {self._table}{at}")
        reader = self._spark.read.format(self._format.name)
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._table)
