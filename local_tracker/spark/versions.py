"""The PySpark versions that queries are tracked on.

What Lowmark relies on is no public interface of Spark: the checkpoint's logs, and a few private names
of PySpark. Both differ by the minor version and stay within one, so a new patch release needs nothing,
and a new minor version has to be tried first (`make spark-versions`). What is not the same in all of them, and has to be
asked for, is here; the logs themselves say which form they are of.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from local_tracker.spark.scala import class_name, has_method, optional
from tracker.errors import TrackingError

SUPPORTED_PYSPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""The minor versions whose logs have been tried out."""

FIRST_WITH_CONNECT = "4.0"
"""Of Spark Connect; the 3.5 that is on PyPI comes without its server."""
FIRST_WITH_DATA_SOURCES = "4.0"
"""Of data sources, and of table functions that are analysed, in Python."""
FIRST_WITH_PUSHDOWN = "4.1"
"""Of filters that data sources in Python hear of."""
FIRST_WITH_REPARTITION = "4.2"
"""Of repartitioning state; PySpark offers it under a private name."""

UNTRIED_VARIABLE = "LOWMARK_UNTRIED_PYSPARK"
"""Environment variable: the version beside these that the user takes the risk of, such as `4.4`."""

log = logging.getLogger("lowmark.spark")


def check_version(version: str, untried: str | None = None) -> None:
    """Raises TrackingError for a version of PySpark that has not been tried, unless `untried` (or the
    variable `LOWMARK_UNTRIED_PYSPARK`) names that very version, or its minor version; then it warns."""
    if any(_is_of(version, known) for known in SUPPORTED_PYSPARK):
        return
    accepted = untried if untried is not None else os.environ.get(UNTRIED_VARIABLE, "")
    tried = f"tried are {SUPPORTED_PYSPARK[0]} to {SUPPORTED_PYSPARK[-1]}"
    if accepted and _is_of(version, accepted):
        log.warning(
            "PySpark %s has not been tried with Lowmark (%s), and is used since %r was named: if its logs "
            "differ, queries are stopped, or what they read and wrote is told wrongly",
            version, tried, accepted,
        )  # fmt: skip
        return
    minor = ".".join(version.split(".")[:2])
    log.warning("PySpark %s has not been tried with Lowmark: %s", version, tried)
    raise TrackingError(
        f"PySpark {version} is not supported: its logs have not been tried out; {tried}. To track on it all "
        f"the same, at your own risk, name it: untried_pyspark={minor!r} (of Tracked or SparkFront) or "
        f"{UNTRIED_VARIABLE}={minor}"
    )


def check_connect(version: str) -> None:
    """Raises TrackingError for a version of PySpark whose Spark Connect sessions have not been tried."""
    if _minor(version) < _minor(FIRST_WITH_CONNECT):
        raise TrackingError(
            f"PySpark {version} in a Spark Connect session is not supported, {FIRST_WITH_CONNECT} is the first: use a "
            f"classic session, in the driver, or follow the query from outside (lowmark query attach)"
        )


def check_data_sources(version: str) -> None:
    """Raises TrackingError for a version of PySpark that has no data sources in Python."""
    if _minor(version) < _minor(FIRST_WITH_DATA_SOURCES):
        raise TrackingError(
            f"PySpark {version} has no data sources in Python, {FIRST_WITH_DATA_SOURCES} is the first: ask by "
            f"lowmark.spark.progress(spark, target, 'status'), which gives a DataFrame"
        )


def push_filters_down(spark: Any) -> None:
    """Lets data sources in Python hear of filters, in a session of a version that can; without it one that would
    listen is refused, and one that does not is as before."""
    if _minor(spark.version) >= _minor(FIRST_WITH_PUSHDOWN):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def can_repartition(spark: Any) -> bool:
    """Whether a session can give a query's state another number of partitions (`FIRST_WITH_REPARTITION`)."""
    return getattr(type(spark), "_streamingCheckpointManager", None) is not None


def repartition(spark: Any, checkpoint: str, partitions: int) -> None:
    """Gives the state in a checkpoint another number of partitions, in a session that can."""
    spark._streamingCheckpointManager.repartition(checkpoint, partitions)


def source_names(leaf: Any) -> tuple[str | None, str]:
    """Of the leaf of a plan that is a source: the name that its reader gave it by `readStream.name()`, since 4.2, None
    where it gave none; and what Spark shows."""
    given = None
    if has_method(leaf, "sourceIdentifyingName"):
        name = leaf.sourceIdentifyingName()
        given = str(name.name()) if class_name(name) == "UserProvided" else None
    return given, str(leaf.sourceName() if has_method(leaf, "sourceName") else leaf.nodeName())


def watermark_ms(value: Any) -> int | None:
    """A stream's own watermark as a running query keeps it, a number or an option of one; None before its first."""
    found = value if isinstance(value, int) else optional(value)
    return None if found is None else int(found)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _is_of(version: str, release: str) -> bool:
    """Whether a version is a release, or a patch release of it."""
    return version == release or version.startswith(release + ".")
