"""What is shown of a tracker as rows, table by table: each has its columns declared once, and where its rows come from.

The command line writes them, as text, JSON or columns; Spark reads them as DataFrames and in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tracker.client import Admin, Explanation, PipelineInfo
from tracker.core.model import PipelineSpec
from tracker.errors import UnavailableError
from tracker.view.causes import cause_json
from tracker.view.model import standings_of
from tracker.view.nodes import left_out, node_row
from tracker.view.pipelines import min_time_json
from tracker.view.progress import Progress, progress_json, progress_of

MAX_EXPLAINED_AT_ONCE = 4
"""Pipelines that shards are asked about at the same time."""

Types: TypeAlias = Mapping[str, str]
"""By column the name of its Arrow type, or `time`, which rows have as an ISO text."""
Rows: TypeAlias = list[dict[str, Any]]
"""Plain values by column; what a row lacks is null."""
Lines: TypeAlias = Sequence[tuple[PipelineInfo, Sequence[Progress]]]
"""By pipeline: it, and its lines."""

_MIN_TIME = {
    "min_time": "int64", "time": "time", "complete": "bool", "whole_time": "int64", "round": "int64",
}  # fmt: skip
"""The columns of `min_time_json`."""


@dataclass(frozen=True, slots=True)
class Table:
    """rows: those of the named pipelines, or of all where none is named. Raises RefusedError for a name that is unknown,
    UnavailableError."""

    types: Types
    rows: Callable[[Admin, Sequence[str]], Rows]


def lines_of(admin: Admin, names: Sequence[str]) -> Lines:
    """The named pipelines, or all, each with why it is where it is. Raises RefusedError, UnavailableError."""
    return [(info, progress_of(info, why)) for info, why in _explained(admin, names)]


def status_rows(lines: Lines) -> Rows:
    """The lines as rows of STATUS."""
    return [progress_json(each, info) for info, progress in lines for each in progress]


def min_time_row(
    pipeline: str, segment: str | None, slot: int, spec: PipelineSpec, at: datetime
) -> dict[str, Any]:
    """A min time, of a segment or of the whole pipeline; at: when it was heard."""
    heard = {"pipeline": pipeline, "segment": segment, **min_time_json(slot, spec)}
    return {**heard, "at": at.isoformat()}


def infos_of(admin: Admin, names: Sequence[str]) -> list[PipelineInfo]:
    """The named pipelines, or all. Raises as `lines_of`."""
    return [admin.pipeline(name) for name in names] if names else admin.pipelines()


def _explained(
    admin: Admin, names: Sequence[str]
) -> Iterator[tuple[PipelineInfo, Explanation | None]]:
    """Each pipeline as it is; and why, unless it is complete."""

    def asked(info: PipelineInfo) -> tuple[PipelineInfo, Explanation | None]:
        name = info.spec.name
        if info.omitted:  # a list leaves out what is larger than a page, and with it the lag
            info = admin.pipeline(name)
        return info, None if info.state.complete else admin.explain(name, max_cells=0)

    with ThreadPoolExecutor(MAX_EXPLAINED_AT_ONCE) as asking:
        yield from asking.map(asked, infos_of(admin, names))


def _min_times(admin: Admin, names: Sequence[str]) -> Rows:
    infos, at = infos_of(admin, names), datetime.now(UTC)
    return [
        min_time_row(info.spec.name, segment, slot, info.spec, at)
        for info in infos
        for segment, slot in (
            (None, info.state.min_time),
            *((each.segment, each.min_time) for each in info.state.segments),
        )
    ]


def _causes(admin: Admin, names: Sequence[str]) -> Rows:
    return [
        {
            "pipeline": info.spec.name,
            "segment": standing.segment.segment,
            "number": number,
            **cause_json(cause, info.spec),
        }
        for info, explanation in _explained(admin, names)
        if explanation is not None
        for standing in standings_of(explanation)
        for number, cause in enumerate(standing.causes)
    ]


def _nodes(admin: Admin, names: Sequence[str]) -> Rows:
    found = []
    for name in names or [info.spec.name for info in admin.pipelines()]:
        nodes = admin.nodes(name)
        if nodes.silent_shards:
            raise UnavailableError(
                f"the nodes of pipeline {name!r} are not all there: {'; '.join(left_out(nodes))}"
            )
        found += [node_row(node, nodes.spec) for node in nodes.nodes]
    return found


MIN_TIMES = Table(
    {"pipeline": "string", "segment": "string", **_MIN_TIME, "at": "time"}, _min_times
)
"""Min time of each segment, and of each whole pipeline, whose segment is null."""
STATUS = Table(
    {
        "pipeline": "string", "segment": "string", **_MIN_TIME,
        "lag_slots": "int64", "lag_ms": "int64", "age_ms": "int64",
        "state": "string", "open_slots": "int64", "open_items": "int64", "holds": "string", "advice": "string",
    },
    lambda admin, names: status_rows(lines_of(admin, names)),
)  # fmt: skip
"""How far each is, and what holds it: `lowmark status`."""
CAUSES = Table(
    {
        "pipeline": "string", "segment": "string", "number": "int64", "kind": "string", "text": "string",
        "advice": "string", "trouble": "bool", "node_id": "string", "front": "string", "query": "string",
    },
    _causes,
)  # fmt: skip
"""All that keeps each segment where it is, the first cause first: `lowmark explain`."""
NODES = Table(
    {
        "pipeline": "string", "node_id": "string", "incarnation": "int64", "kind": "string", "state": "string",
        "home": "int64", "silent_ms": "int64", "node_time": "int64", "batch": "string", "staged": "int64",
        "slot": "int64", "time": "time", "age_ms": "int64", "holds": "int64", "waits": "string",
    },
    _nodes,
)  # fmt: skip
"""`lowmark nodes list`; UnavailableError where a shard does not answer, whose nodes nobody else knows."""

TABLES = {"min_times": MIN_TIMES, "status": STATUS, "causes": CAUSES, "nodes": NODES}
