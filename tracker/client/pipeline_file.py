"""Pipelines as people write them: a YAML file, checked with errors that name the place.

name: flights
slack: 10ms
start: 2013-01-01T05:00
segments: [parse, enrich, aggregate]
edges:
  - parse -> enrich
  - {from: enrich, to: aggregate, delay: 0}
fronts: [EWR, JFK, LGA]
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
)

from tracker.client.moments import NOW, parse_duration_ns, parse_slot
from tracker.client.yaml_text import brief, load_mapping, position, problems, shown
from tracker.core.home.home import MAX_NAME_CHARACTERS
from tracker.core.home.registration import check_spec
from tracker.core.model import Edge, FrontPolicy, PipelineSpec, Refused, SilentFront, TimeKind
from tracker.core.model.placements import MAX_GROUPS
from tracker.core.model.rounds import MAX_ROUNDS
from tracker.errors import Code, InvalidError

MAX_FILE_CHARACTERS = 4_000_000
MAX_EDGE_CHARACTERS = 2 * MAX_NAME_CHARACTERS + 100


def load_pipeline(text: str, source: str = "pipeline file") -> PipelineSpec:
    """A pipeline from YAML text. Raises InvalidError naming `source`, line and column."""
    try:
        document = load_mapping(text, source, MAX_FILE_CHARACTERS, "with name, segments and fronts")
    except ValueError as error:
        raise InvalidError(str(error), Code.INVALID_PIPELINE) from None
    try:
        spec = _spec(_PipelineModel.model_validate(document))
        check_spec(spec)
    except ValidationError as error:
        wrong = problems(error, lambda problem: _place(problem, text))
    except (ValueError, Refused) as error:
        wrong = f"{position(text, _path(brief(error), document))[0]}: {brief(error)}"
    else:
        return spec
    raise InvalidError(f"{source}: {wrong}", Code.INVALID_PIPELINE)


def begins_now(text: str) -> bool:
    """Whether the pipeline of a text that is one begins when it is registered: one that is there has begun."""
    start = load_mapping(text, "it", MAX_FILE_CHARACTERS, "of a pipeline").get("start")
    return isinstance(start, str) and start.strip() == NOW


def group_named(text: str) -> int | None:
    """The group in which a new pipeline of a text that is one is to live, if it names one."""
    group: int | None = load_mapping(text, "it", MAX_FILE_CHARACTERS, "of a pipeline").get("group")
    return group


def _edge(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if len(value) > MAX_EDGE_CHARACTERS:
        raise ValueError(
            f"an edge of {len(value)} characters is over the limit of {MAX_EDGE_CHARACTERS}"
        )
    match = re.fullmatch(r"\s*(\S.*?)\s*->\s*(\S.*?)\s*(?:\+\s*(\d+)\s*(rounds?)?\s*)?", value)
    if not match:
        raise ValueError(
            "an edge is written `from -> to`, `from -> to + delay` or `from -> to + 1 round`"
        )
    raised = "rounds" if match[4] else "delay"
    return {"from": match[1], "to": match[2], raised: int(match[3] or 0)}


def _fronts(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(each, str | dict) for each in value):
        return [_FrontModel(name=each) if isinstance(each, str) else each for each in value]
    raise ValueError(
        "fronts are a list of names, or a number of them; one with a rule of its own is a mapping with "
        "name, silent_front and evict_after"
    )


def _lateness(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _duration(value)
    raise ValueError("lateness is a duration, or a number of slots")


def _start(value: Any) -> Any:
    # YAML makes dates of what looks like one, and a mapping of `slot: 5`.
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value
    raise ValueError("start is slot:N, an ISO date or time (UTC unless it has an offset), or now")


def _duration(value: str) -> str:
    if parse_duration_ns(value) <= 0:
        raise ValueError("must be longer than nothing")
    return value


_Duration = Annotated[str, AfterValidator(_duration)]


class _Strict(BaseModel):
    # `open: 1` or `name: 5` is a slip of the pen, not what is meant.
    model_config = ConfigDict(extra="forbid", strict=True)


class _EdgeModel(_Strict):
    source: str = Field(alias="from")
    target: str = Field(alias="to")
    delay: int = 0
    rounds: int = 0


class _FrontModel(_Strict):
    name: str
    silent_front: Literal["hold", "evict"] | None = None
    evict_after: _Duration | None = None


_Fronts = Annotated[
    Annotated[list[_FrontModel], Tag("list")] | Annotated[int, Tag("number")],
    Discriminator(lambda given: "number" if isinstance(given, int) else "list"),
]


class _PipelineModel(_Strict):
    name: str
    segments: list[str]
    edges: list[Annotated[_EdgeModel, BeforeValidator(_edge)]] = []
    fronts: Annotated[_Fronts, BeforeValidator(_fronts)] = []
    open: bool = False
    start: Annotated[Any, BeforeValidator(_start)] = "slot:0"
    slack: _Duration = "10ms"
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = 1
    horizon_slots: int | None = None
    silent_front: Literal["hold", "evict"] = "hold"
    evict_after: _Duration | None = None
    time: Literal["arrival", "event", "number"] = "arrival"
    lateness: Annotated[str | int, BeforeValidator(_lateness)] = 0
    max_open_cells: int | None = None
    max_open_units: int | None = None
    max_nodes: int | None = None
    max_staged: int | None = None
    group: Annotated[int, Field(ge=0, lt=MAX_GROUPS)] | None = None


_LIMITS = ("horizon_slots", "max_open_cells", "max_open_units", "max_nodes", "max_staged")


def _spec(model: _PipelineModel) -> PipelineSpec:
    slack_ns = _slot_width_ns(model)
    try:
        start_slot = parse_slot(model.start, slack_ns, model.rounds)
    except ValueError as error:
        raise ValueError(f"start: {error}") from None
    limits = {name: getattr(model, name) for name in _LIMITS if getattr(model, name) is not None}
    fronts = model.fronts if isinstance(model.fronts, list) else []
    if isinstance(model.lateness, str):  # rounded up: it is what the fronts vouch for
        lateness_slots = -(-parse_duration_ns(model.lateness) // slack_ns)
    else:
        lateness_slots = model.lateness * model.rounds
    spec = PipelineSpec(
        name=model.name,
        segments=tuple(model.segments),
        edges=tuple(_packed(edge, model.rounds) for edge in model.edges),
        fronts=tuple(front.name for front in fronts),
        front_count=model.fronts if isinstance(model.fronts, int) else 0,
        open=model.open,
        start_slot=start_slot,
        slack_ns=slack_ns,
        silent_front=SilentFront(model.silent_front),
        evict_after_ms=_milliseconds(model.evict_after),
        front_policies=tuple(_policy(front, model) for front in fronts if front.silent_front),
        time=TimeKind(model.time),
        lateness_slots=lateness_slots,
        rounds=model.rounds,
        **limits,
    )
    if model.horizon_slots is None:  # so far as without rounds
        spec = replace(spec, horizon_slots=spec.horizon_slots * spec.rounds)
    return spec


def _slot_width_ns(model: _PipelineModel) -> int:
    """Of a round: the slack is that of a time."""
    slack_ns = parse_duration_ns(model.slack)
    if slack_ns % model.rounds:
        raise ValueError(
            f"slack: {model.slack} cannot be cut into {model.rounds} rounds of whole nanoseconds; say another number "
            f"of rounds, or a slack such as {-(-slack_ns // model.rounds) * model.rounds}ns"
        )
    return slack_ns // model.rounds


def _packed(edge: _EdgeModel, rounds: int) -> Edge:
    """An edge whose delay, given in times, or rounds are in slots."""
    where = f"edge {edge.source!r} -> {edge.target!r}"
    if edge.rounds and edge.delay:
        raise ValueError(f"{where} raises the round, or the time by a delay; it cannot do both")
    if edge.rounds and not 0 < edge.rounds < rounds:
        raise ValueError(
            f"{where} raises the round by {edge.rounds}, and a time has {rounds}; an edge raises it by 1 to "
            f"{rounds - 1}" + (": say `rounds: 64`, or how many there are" if rounds == 1 else "")
        )
    return Edge(edge.source, edge.target, edge.delay * rounds + edge.rounds)


def _policy(front: _FrontModel, model: _PipelineModel) -> FrontPolicy:
    """One front's own rule; how long it may be silent is the pipeline's if it says nothing of it."""
    if front.silent_front == "hold":
        if front.evict_after:
            raise ValueError(f"front {front.name!r}: evict_after goes with silent_front: evict")
        return FrontPolicy(front.name, SilentFront.HOLD)
    return FrontPolicy(
        front.name, SilentFront.EVICT, _milliseconds(front.evict_after or model.evict_after)
    )


def _milliseconds(duration: str | None) -> int:
    return parse_duration_ns(duration) // 10**6 if duration else 0


_FIELDS = {
    "edge": "edges", "segment": "segments", "front": "fronts", "start_slot": "start", "slack_ns": "slack",
    "evict_after_ms": "silent_front", "lateness_slots": "lateness",
}  # fmt: skip
"""What else judges of a pipeline name, and the setting of a file that it is about."""


def _path(message: str, document: dict[Any, Any]) -> tuple[object, ...]:
    """To the edge, or else to the first setting of a document, that a message is about."""
    of_pipeline = re.sub(r"^pipeline '.*?': ", "", message)
    if edge := re.match(r"edge '(.+?)' -> '(.+?)'", of_pipeline):
        for index, each in enumerate(document.get("edges", ())):
            given = _edge(each)
            if (given["from"], given["to"]) == edge.groups():
                return ("edges", index)
    words = sorted(re.findall(r"\w+", of_pipeline), key=lambda word: "_" not in word)
    named = (name for word in words if (name := _FIELDS.get(word, word)) in document)
    return tuple(islice(named, 1))


def _place(problem: Any, text: str) -> str:
    """One problem that the model found in a text, for people."""
    path, is_unknown = problem["loc"], problem["type"] == "extra_forbidden"
    place, steps = position(text, path, of_key=is_unknown)
    if problem["type"] == "missing":
        steps = (*steps, path[-1])
    where = f"{place}: {'.'.join(map(str, steps))}"
    if is_unknown:
        models: dict[Any, type[BaseModel]] = {"edges": _EdgeModel, "fronts": _FrontModel}
        known = models.get(problem["loc"][0], _PipelineModel)
        names = [field.alias or name for name, field in known.model_fields.items()]
        return f"{where}: there is no such setting; there are {', '.join(names)}"
    if problem["type"] == "missing":
        return f"{where}: is missing"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {message} (it says {shown(problem['input'])})"
