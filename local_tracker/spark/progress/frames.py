"""A tracker's progress as a DataFrame, in every version of PySpark, without a data source: asked for at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from local_tracker.spark.progress.asked import PROGRESS, Asked, struct
from local_tracker.spark.progress.registered import TIMEOUT_S, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def progress(
    spark: SparkSession,
    target: str | Sequence[str],
    table: str = "min_times",
    pipeline: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> DataFrame:
    """The rows of a table (`min_times`, `status`, `causes`, `nodes`) as they are now, of one pipeline or of all. Raises
    InvalidError, RefusedError, UnavailableError."""
    asked, options = Asked(*plain(target, timeout_s)), {"table": table}
    if pipeline is not None:
        options["pipeline"] = pipeline
    types = asked.types(PROGRESS, options)
    return spark.createDataFrame(asked.rows(PROGRESS, options, None), struct(types))
