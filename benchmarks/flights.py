"""Two queries of the flights demo as workloads: parsing raw lines in Python, and joining small tables.

They are the demo's own functions, on a year of flights at once. Rows that cannot be parsed are dropped,
tracked or not: the side output for them is no part of what is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from examples.flights import queries
from examples.flights.data import all_lines, parse_line

FILES = 10


def tables(workload: str, rows: int) -> Iterator[pa.Table]:
    """What the query reads: raw lines for "parse", flights for "enrich"; the first `rows` of the data, in
    some files."""
    lines = list(enumerate(islice(all_lines(), rows)))
    per_file = -(-len(lines) // FILES)
    for first in range(0, len(lines), per_file):
        part = lines[first : first + per_file]
        if workload == "parse":
            yield pa.table({"row": [row for row, _ in part], "line": [line for _, line in part]})
        else:
            yield pa.Table.from_pylist(list(_flights(part)), schema=queries.ARROW_FLIGHT)


def _flights(lines: list[tuple[int, str]]) -> Iterator[dict[str, object]]:
    for row, line in lines:
        try:
            yield {"row": row, **parse_line(line)}
        except ValueError:
            continue  # as the query that parses drops it


def frame(workload: str, spark: SparkSession, directory: str) -> DataFrame:
    """The demo's query over that."""
    if workload == "parse":
        return queries.parsed(
            queries.raw_flights(spark, directory), queries.parser(_dropped, _no_slot)
        )
    flights = queries.flights_in(spark, directory, queries.FLIGHT_SCHEMA)
    return queries.enriched(spark, flights)


def _dropped(_malformed: queries.Malformed) -> None:
    pass


def _no_slot(_raw: Mapping[str, Any]) -> int:
    return 0
