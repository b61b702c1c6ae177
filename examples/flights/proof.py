"""The demo's proof: what the queries came to, against a plain computation over the same data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from examples.flights.expected import Expected, RouteKey, RouteTotals

SHOWN = 5


@dataclass(frozen=True)
class Result:
    """What a run has left. routes: what the last query wrote; dead: rows in the ledger of dead letters, as
    often as they are there."""

    routes: Mapping[RouteKey, RouteTotals]
    dead: Sequence[int]

    @property
    def flights(self) -> int:
        """Aggregated flights and dead letters."""
        return sum(totals.flights for totals in self.routes.values()) + len(self.dead)


def newest_totals(directory: Path) -> dict[RouteKey, RouteTotals]:
    """Of each route the totals of the newest batch that has it, in files with a column `batch`."""
    newest: dict[RouteKey, tuple[int, RouteTotals]] = {}
    for path in sorted(directory.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            key = route_of(row)
            if key not in newest or newest[key][0] < row["batch"]:
                newest[key] = row["batch"], totals_of(row)
    return {key: totals for key, (_, totals) in newest.items()}


def route_of(row: Mapping[str, Any]) -> RouteKey:
    """The route of a row that the last query has written."""
    return row["carrier"], row["origin"], row["dest"]


def totals_of(row: Mapping[str, Any]) -> RouteTotals:
    """The totals of such a row."""
    return RouteTotals(
        flights=row["flights"],
        dep_delay_min=row["dep_delay_min"],
        arrived=row["arrived"],
        arr_delay_min=row["arr_delay_min"] or 0,
        seats=row["seats"],
    )


def dead_rows(ledger: Path) -> list[int]:
    """The rows in the ledger of dead letters, as often as they are there."""
    if not ledger.exists():
        return []
    lines = ledger.read_text().splitlines()
    return [row for line in lines for row in json.loads(line)["rows"]]


def differences(result: Result, expected: Expected) -> list[str]:
    """What is not as it must be, in words; empty if every flight was counted once."""
    found = _route_differences(result.routes, expected.routes)
    rows = Counter(result.dead)
    twice = [row for row, times in rows.items() if times > 1]
    if twice:
        found.append(
            f"{len(twice)} malformed rows are in the ledger twice, such as {twice[:SHOWN]}"
        )
    if missing := expected.malformed - rows.keys():
        found.append(
            f"{len(missing)} malformed rows are missing, such as {sorted(missing)[:SHOWN]}"
        )
    if extra := rows.keys() - expected.malformed:
        found.append(f"{len(extra)} rows are no malformed ones, such as {sorted(extra)[:SHOWN]}")
    return found


def _route_differences(
    actual: Mapping[RouteKey, RouteTotals], expected: Mapping[RouteKey, RouteTotals]
) -> list[str]:
    wrong = [key for key in actual.keys() | expected.keys() if actual.get(key) != expected.get(key)]
    found = [
        f"route {' '.join(key)}: {actual.get(key)}, expected {expected.get(key)}"
        for key in sorted(wrong)[:SHOWN]
    ]
    if len(wrong) > SHOWN:
        found.append(f"and {len(wrong) - SHOWN} more routes")
    return found
