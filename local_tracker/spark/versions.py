"""The PySpark versions that queries are tracked on.

What Lowmark relies on is no public interface of Spark: the checkpoint's logs, and a few private names
of PySpark. Both differ by the minor version and stay within one, so a new patch release needs nothing,
and a new minor version has to be tried first (`make spark-versions`).
"""

from __future__ import annotations

import logging
import os

from tracker.errors import TrackingError

SUPPORTED_PYSPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""The minor versions whose logs have been tried out."""

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


def _is_of(version: str, release: str) -> bool:
    """Whether a version is a release, or a patch release of it."""
    return version == release or version.startswith(release + ".")
