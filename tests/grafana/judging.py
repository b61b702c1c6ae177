"""Evaluates each query of a dashboard over a recording, by promtool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chart.alerting import promtool
from tests.grafana.recording import INTERVAL_S, OPEN, RUNNING, Recording

RATE_INTERVAL = "1m"
"""What Grafana makes of $__rate_interval, of scrapes each 15 seconds."""
VARIABLES = {
    "$namespace": ".*",
    "$job": ".*",
    "$group": ".*",
    "$pipeline": RUNNING,
    "$__rate_interval": RATE_INTERVAL,
}
KNOWN = {
    ("fleet", "Pipelines"): 2, ("fleet", "Complete"): 1, ("fleet", "Processes that serve"): 2,
    ("fleet", "Open items"): OPEN, ("fleet", "Streams of subscribers"): 1, ("pipeline", "Open items"): OPEN,
    ("pipeline", "Late items"): 0, ("pipeline", "Restarts"): 0, ("pipeline", "Subscribers"): 1,
}  # fmt: skip
"""By dashboard and panel what its query comes to at the end of the recording."""


@dataclass(frozen=True)
class Asked:
    """A query of a panel, as Grafana sends it."""

    board: str
    panel: str
    expression: str


def asked(directory: Path) -> Iterator[Asked]:
    """Each query of the dashboards of a directory."""
    for path in sorted(directory.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"]
                for name, text in VARIABLES.items():
                    expression = expression.replace(name, text)
                yield Asked(path.stem, panel["title"], expression)


@dataclass(frozen=True)
class Judged:
    """Queries that come to nothing, or to no number; and those that come to another number than what is known."""

    empty: tuple[str, ...]
    wrong: tuple[str, ...]


def judge(queries: list[Asked], recording: Recording, directory: Path) -> Judged:
    """Evaluates all of them at the end of a recording."""
    judged: dict[str, list[str]] = {"empty": [], "wrong": []}
    # What is no number is equal to nothing.
    tests = {
        f"count(({q.expression}) == ({q.expression})) > bool 0": ("empty", q, 1) for q in queries
    }
    tests |= {
        f"0 + {q.expression}": ("wrong", q, KNOWN[q.board, q.panel])
        for q in queries
        if (q.board, q.panel) in KNOWN
    }
    for expression in _failed(
        {e: number for e, (_, _, number) in tests.items()}, recording, directory
    ):
        kind, query, number = tests[expression]
        judged[kind].append(
            f"{query.board}, {query.panel}: {query.expression} is not {number if kind == 'wrong' else 'there'}"
        )
    return Judged(tuple(judged["empty"]), tuple(judged["wrong"]))


def _failed(expected: dict[str, int], recording: Recording, directory: Path) -> list[str]:
    """The expressions that do not come to one sample of this value. Raises AssertionError where promtool cannot tell."""
    samples = {e: [{"labels": "{}", "value": number}] for e, number in expected.items()}
    end = f"{(recording.scrapes - 1) * INTERVAL_S}s"
    document: dict[str, Any] = {
        "rule_files": [],
        "evaluation_interval": f"{INTERVAL_S}s",
        "tests": [
            {
                "interval": f"{INTERVAL_S}s",
                "input_series": [
                    {"series": series, "values": " ".join(map(_value, values))}
                    for series, values in recording.series.items()
                ],
                "promql_expr_test": [
                    {"expr": e, "eval_time": end, "exp_samples": sample}
                    for e, sample in samples.items()
                ],
            }
        ],
    }
    path = directory / "queries.yaml"
    path.write_text(yaml.safe_dump(document, width=10_000))
    said = promtool("test", "rules", str(path))
    failed = re.findall(r'^ *expr: "((?:[^"\\]|\\.)*)"', said, re.MULTILINE)
    found = [json.loads(f'"{each}"') for each in failed]
    assert bool(said) == bool(found) and {*found} <= {*expected}, said
    return found


def _value(found: float | None) -> str:
    return "_" if found is None else repr(found)
