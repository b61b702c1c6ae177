"""A reader of the result: it starts when min time says that all flights of a quarter are in the tables, and counts
them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from examples.flights.data import DAY_NS, YEAR_END_NS, all_lines, parse_line
from examples.flights.pipeline import NAME
from examples.lake.site import ENRICHED
from lowmark import LowmarkError, Subscriber

QUARTERS_S = (
    *(int(datetime(2013, month, 1, tzinfo=UTC).timestamp()) for month in (4, 7, 10)),
    YEAR_END_NS // 10**9,
)
"""The ends of what is read, exclusive: seconds since 1970."""
CLOSE_TIMEOUT_S = 15.0

log = logging.getLogger(__name__)


class QuarterReader:
    """Reads once for each quarter, in a thread of its own, as soon as it may. What it has counted goes to a
    file, a JSON line each: `before_s`, and `flights`."""

    def __init__(self, spark: SparkSession, target: str, reads: Path) -> None:
        self._spark, self._reads = spark, reads
        self._subscriber = Subscriber(target, NAME)
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for a while until all quarters are read."""
        self._thread.join(CLOSE_TIMEOUT_S)
        self._subscriber.close()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            for before_s in self._due():
                flights = self._count(before_s)
                with open(self._reads, "a") as reads:
                    reads.write(json.dumps({"before_s": before_s, "flights": flights}) + "\n")
        except (LowmarkError, PySparkException):
            log.exception("the reader has ended")

    def _due(self) -> Iterator[int]:
        """Each quarter's end, when all flights before it are in the tables."""
        quarters = list(QUARTERS_S)
        for update in self._subscriber.updates():
            if update.segment == "aggregate":
                while quarters and quarters[0] * 10**9 // DAY_NS <= update.min_time:
                    yield quarters.pop(0)
            if not quarters:
                return

    def _count(self, before_s: int) -> int:
        return self._spark.read.table(ENRICHED).where(f"scheduled_s < {before_s}").count()


def problems(reads: Path) -> list[str]:
    """What is wrong with what the reader has counted, in words."""
    counted = {}
    if reads.exists():
        lines = map(json.loads, reads.read_text().splitlines())
        counted = {line["before_s"]: line["flights"] for line in lines}
    return [
        f"when min time said that all before {datetime.fromtimestamp(before_s, UTC):%Y-%m-%d} is there, the "
        f"table had {counted.get(before_s)} flights of that time, there are {flights}"
        for before_s, flights in flights_before(QUARTERS_S).items()
        if counted.get(before_s) != flights
    ]


@cache
def flights_before(moments_s: tuple[int, ...]) -> dict[int, int]:
    """How many well-formed flights are scheduled before each moment, in seconds since 1970."""
    counts = dict.fromkeys(moments_s, 0)
    for line in all_lines():
        try:
            scheduled_s = int(str(parse_line(line)["scheduled_s"]))
        except ValueError:
            continue
        for moment_s in moments_s:
            counts[moment_s] += scheduled_s < moment_s
    return counts
