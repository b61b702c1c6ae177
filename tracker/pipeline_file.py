"""Pipelines as people write them: a YAML file, checked with errors that name the place.

name: flights
slack: 10ms
start: now
segments: [parse, enrich, aggregate]
edges:
  - parse -> enrich
  - {from: enrich, to: aggregate, delay: 0}
fronts: [EWR, JFK, LGA]
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tracker.core.model import Edge, PipelineSpec, SilentFront
from tracker.core.slots import slot_of

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
}


class PipelineFileError(ValueError):
    """A pipeline file says something that cannot be; names the place and what is allowed."""


def parse_duration_ns(value: object) -> int:
    """`10ms`, `1h`, `30s` as nanoseconds; raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)\s*", str(value))
    if not match:
        raise ValueError(
            f"{value!r} is not a duration; write a number and ns, us, ms, s, m, h or d"
        )
    return round(float(match[1]) * _UNITS_NS[match[2]])


def parse_moment(text: str) -> int:
    """A moment as nanoseconds since 1970: an ISO date or time (UTC unless it has an offset), or
    `now`. Raises ValueError."""
    if text.strip() == "now":
        return time.time_ns()
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a moment; write an ISO date or time such as 2013-01-01T09:00, or now"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def parse_slot(text: str, slack_ns: int, *, up: bool = False) -> int:
    """`slot:123`, or a moment as its slot, rounded down, or `up`. Raises ValueError."""
    match = re.fullmatch(r"slot:(-?\d+)", text.strip())
    if match:
        return int(match[1])
    moment_ns = parse_moment(text)
    return -(-moment_ns // slack_ns) if up else slot_of(moment_ns, slack_ns)


def _edge(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\S.*?)\s*->\s*(\S.*?)\s*(?:\+\s*(\d+)\s*)?", value)
        if not match:
            raise ValueError(
                f"{value!r} is not an edge; write `from -> to` or `from -> to + delay`"
            )
        return {"from": match[1], "to": match[2], "delay": int(match[3] or 0)}
    return value


class _EdgeModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    delay: int = 0


class _PipelineModel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    segments: list[str]
    edges: list[Annotated[_EdgeModel, BeforeValidator(_edge)]] = []
    fronts: list[str] | int = []
    open: bool = False
    start: str | int | datetime = "slot:0"
    slack: str = "10ms"
    horizon_slots: int | None = None
    silent_front: Literal["hold", "evict"] = "hold"
    evict_after: str | None = None
    max_open_cells: int | None = None
    max_open_units: int | None = None
    max_nodes: int | None = None
    max_staged: int | None = None


def load_pipeline(text: str, source: str = "pipeline file") -> PipelineSpec:
    """A pipeline from YAML text. Raises PipelineFileError naming `source` and the place."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PipelineFileError(f"{source} is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise PipelineFileError(f"{source} must hold one mapping with name, segments and fronts")
    try:
        return _spec(_PipelineModel.model_validate(document))
    except ValidationError as error:
        places = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {str(e['input'])[:80]!r})"
            for e in error.errors()
        )
        raise PipelineFileError(f"{source}: {places}") from None
    except ValueError as error:
        raise PipelineFileError(f"{source}: {error}") from None


def _spec(model: _PipelineModel) -> PipelineSpec:
    slack_ns = parse_duration_ns(model.slack)
    if slack_ns <= 0:
        raise ValueError(f"slack {model.slack!r} must be positive")
    start = model.start
    if isinstance(start, int):
        start_slot = start
    else:
        text = start.isoformat() if isinstance(start, datetime) else start
        start_slot = parse_slot(text, slack_ns)
    limits = {
        name: getattr(model, name)
        for name in ("horizon_slots", "max_open_cells", "max_open_units", "max_nodes", "max_staged")
        if getattr(model, name) is not None
    }
    return PipelineSpec(
        name=model.name,
        segments=tuple(model.segments),
        edges=tuple(Edge(edge.source, edge.target, edge.delay) for edge in model.edges),
        fronts=tuple(model.fronts) if isinstance(model.fronts, list) else (),
        front_count=model.fronts if isinstance(model.fronts, int) else 0,
        open=model.open,
        start_slot=start_slot,
        slack_ns=slack_ns,
        silent_front=SilentFront(model.silent_front),
        evict_after_ms=parse_duration_ns(model.evict_after) // 10**6 if model.evict_after else 0,
        **limits,
    )
