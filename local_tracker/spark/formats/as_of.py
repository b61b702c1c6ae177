"""A Delta or Iceberg table as it was at one version, for those who read it more than once."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.formats.tables import TABLE_FORMATS
from tracker.errors import TrackingError


class TableAsOf:
    """A table of a session, a classic one or of Spark Connect. Its versions are numbers: of a Delta table its
    own, of an Iceberg table the ids of its snapshots on the main branch. Where there is no such table, Spark
    says so when it is asked."""

    def __init__(self, spark: SparkSession, table: str, fmt: str) -> None:
        """table: its name, as the session's catalogs have it, or, with a `/`, where it is. fmt: `delta` or
        `iceberg`; raises TrackingError for another one."""
        if fmt not in TABLE_FORMATS:
            raise TrackingError(f"versions are known of {TABLE_FORMATS}, not of {fmt!r}")
        self._spark, self._table, self._format = spark, table, fmt
        self._is_path = "/" in table

    def newest(self) -> int | None:
        """The version that stands in the table now, whatever the session remembers of it; None where it has
        none yet."""
        if self._format == "delta":
            table = f"delta.`{self._table}`" if self._is_path else self._table
            found = self._spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()
            return None if found is None else int(found["version"])
        self._forget()
        reader = self._spark.read.format("iceberg")
        path, name = f"{self._table}#refs", f"{self._table}.refs"
        refs = reader.load(path) if self._is_path else reader.table(name)
        main = refs.where("name = 'main'").first()
        return None if main is None else int(main["snapshot_id"])

    def load(self, version: int | None) -> DataFrame:
        """The table at a version; None: as it is. Where the version is gone, Spark says so."""
        self._forget()
        if not self._is_path:
            at = "" if version is None else f" VERSION AS OF {version}"
            return self._spark.sql(f"SELECT * FROM {self._table}{at}")
        reader = self._spark.read.format(self._format)
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self._table)

    def _forget(self) -> None:
        """Iceberg's catalogs keep a table that has a name for half a minute, as it was."""
        if self._format == "iceberg" and not self._is_path:
            self._spark.sql(f"REFRESH TABLE {self._table}")
