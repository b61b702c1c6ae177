"""Tables that are called by the names that the session's catalogs have for them, instead of by where they are."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from local_tracker.spark.formats.interface import Source
from local_tracker.spark.formats.registry import table_format
from tracker.files import Stores


class TableNames:
    """The names of the tables that a plan reads."""

    def __init__(self, spark: SparkSession, stores: Stores, plan: Sequence[Source]) -> None:
        tables = [source.table for source in plan if source.table is not None]
        self._spark, self._stores = spark, stores
        self._formats = sorted({table.format for table in tables})
        self._locations = {stores.location(table.location) for table in tables}

    def location(self, name: str) -> str:
        """Where the table is that a name means; with the versions, where it is `name@versions`. What means
        none of the plan's tables is given back as it is."""
        table, at, versions = name.partition("@")
        if "/" in table or table.isdigit():
            return name
        for fmt in self._formats:
            found = table_format(fmt).table(self._spark, table)
            if found is not None and self._stores.location(found.location) in self._locations:
                return self._stores.location(found.location) + at + versions
        return name
