"""What the API answers to: each address declared once, with its parameters, what it needs and what it answers.

The server finds requests by these declarations, and the OpenAPI document and the table of docs/http.md are made of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from tracker.core.home.home import MAX_NAME_CHARACTERS
from tracker.dashboard import answers
from tracker.dashboard.events import HeardEvent
from tracker.dashboard.refusing import Refused
from tracker.errors import Code
from tracker.http import MAX_SHOWN_CHARACTERS, Request

ROOT = "/api/v1"
DOCUMENT = f"{ROOT}/openapi.json"
SVG, EVENTS = "image/svg+xml", "text/event-stream"
JSON = "application/json"
MAX_SEARCH_CHARACTERS = 200
MAX_OFFSET = 1_000_000
"""Far beyond the pipelines that are kept."""


class Need(Enum):
    """The right that a token must have, as for the call of gRPC that answers the same."""

    ANY = "any token: what it may not see is left out"
    LOOK = "any right to the pipeline"
    SUBSCRIBE = "the right `subscribe` to the pipeline"


@dataclass(frozen=True, slots=True)
class Text:
    """A parameter that is any text of so many characters."""

    least: int
    most: int

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": self.least, "maxLength": self.most}

    def parsed(self, given: str) -> str:
        """Raises ValueError with what is allowed."""
        if not self.least <= len(given) <= self.most:
            raise ValueError(f"it has {len(given)} characters; give {self.least} to {self.most}")
        return given


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a whole number."""

    least: int
    most: int

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "integer", "format": "int64", "minimum": self.least, "maximum": self.most,
        }  # fmt: skip

    def parsed(self, given: str) -> int:
        """Raises ValueError with what is allowed."""
        is_number = re.fullmatch(r"-?[0-9]{1,19}", given)
        if not is_number or not self.least <= int(given) <= self.most:
            raise ValueError(f"it is not a whole number; give {self.least} to {self.most}")
        return int(given)


@dataclass(frozen=True, slots=True)
class EventId:
    """A parameter that is the id of an event."""

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": HeardEvent.PATTERN}

    def parsed(self, given: str) -> HeardEvent:
        """Raises ValueError with what is allowed."""
        return HeardEvent.of(given)


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter that is one of some words."""

    words: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}

    def parsed(self, given: str) -> str:
        """Raises ValueError with what is allowed."""
        if given not in self.words:
            raise ValueError(f"it is none of the words; give {' or '.join(self.words)}")
        return given


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of a request. place: path, query or header; default: where it is not given, which a part of the path always
    is."""

    name: str
    place: str
    kind: Text | Number | EventId | Choice
    meaning: str
    default: str | int | None = None


_PIPELINE = Parameter(
    "pipeline", "path", Text(1, MAX_NAME_CHARACTERS), "Its name, percent-encoded."
)
_SEGMENT = Parameter(
    "segment", "query", Text(1, MAX_NAME_CHARACTERS), "One segment, in place of the whole pipeline."
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """An address. name: of the operation; answer: the model of its JSON, or of the data of its events; media: what it
    answers with; cached_s: how long anybody may keep an answer without asking again."""

    name: str
    path: str
    what: str
    need: Need
    answer: type[answers.Answer] | None
    parameters: tuple[Parameter, ...] = ()
    media: str = JSON
    cached_s: int = 0

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.path)
        return re.compile(
            "".join(f"(?P<{p}>[^/]+)" if n % 2 else re.escape(p) for n, p in enumerate(parts))
        )

    def matches(self, path: str) -> dict[str, str] | None:
        """The parameters that a path has; None where it is another address."""
        found = self._pattern.fullmatch(path)
        return None if found is None else {n: unquote(v) for n, v in found.groupdict().items()}

    def parsed(self, request: Request, in_path: dict[str, str]) -> dict[str, Any]:
        """The parameters of a request by name, those that are not given as their defaults. Raises Refused."""
        known = [each.name for each in self.parameters if each.place == "query"]
        for name in request.query:
            if name not in known:
                what = f"there is no parameter {name[:MAX_SHOWN_CHARACTERS]!r}"
                raise Refused(400, f"{what}; there are: {', '.join(known) or 'none'}")
        found: dict[str, Any] = {}
        for each in self.parameters:
            places = {"path": in_path, "query": request.query, "header": request.headers}
            given = places[each.place].get(
                each.name.lower() if each.place == "header" else each.name
            )
            if given is None:
                found[each.name] = each.default
                continue
            try:
                found[each.name] = each.kind.parsed(given)
            except ValueError as error:
                shown = given[:MAX_SHOWN_CHARACTERS]
                raise Refused(400, f"{each.name}={shown!r} is refused: {error}") from None
        return found


ROUTES = (
    Route(
        "pipelines", f"{ROOT}/pipelines", "All pipelines, the worst first, a page at a time.",
        Need.ANY, answers.Pipelines,
        (
            Parameter("search", "query", Text(0, MAX_SEARCH_CHARACTERS),
                      "A text in the names of pipelines or of their segments, in capitals or not.", ""),
            Parameter("offset", "query", Number(0, MAX_OFFSET), "Rows to leave out.", 0),
        ),
    ),
    Route(
        "pipeline", f"{ROOT}/pipelines/{{pipeline}}",
        "One pipeline: its segments and what holds them, fronts, nodes, shards, and what is open over time.",
        Need.LOOK, answers.Pipeline, (_PIPELINE,),
    ),
    Route(
        "min_times", f"{ROOT}/pipelines/{{pipeline}}/min_times",
        "Min time of a pipeline and of its segments, at most a second old.",
        Need.SUBSCRIBE, answers.MinTimes, (_PIPELINE,),
    ),
    Route(
        "lags", f"{ROOT}/pipelines/{{pipeline}}/lags",
        "How far a pipeline and its segments were behind over the last hour.",
        Need.LOOK, answers.Lags, (_PIPELINE,),
    ),
    Route(
        "events", f"{ROOT}/pipelines/{{pipeline}}/events",
        "Min time now, and then each change as it comes, as server-sent events `min_time`. The id of an event is the "
        "pipeline's generation and its min time: a client that comes back with its last one hears only what is further. "
        "After an event that says complete the stream ends, and whoever comes back with it is answered with 204; with one of "
        "a pipeline that was deleted, with 404.",
        Need.SUBSCRIBE, answers.Announcement,
        (
            _PIPELINE, _SEGMENT,
            Parameter("Last-Event-ID", "header", EventId(), "The id of the last event that was heard."),
        ),
        EVENTS,
    ),
    Route(
        "badge", "/badge/{pipeline}.svg",
        "A picture for other pages: up to when a pipeline is complete (UTC), or how far it is behind.",
        Need.LOOK, None,
        (
            _PIPELINE, _SEGMENT,
            Parameter("show", "query", Choice(("min_time", "lag")), "What it shows.", "min_time"),
        ),
        SVG, 5,
    ),
)  # fmt: skip


def found(path: str) -> tuple[Route, dict[str, str]]:
    """The route of a path, and the parameters in it. Raises Refused."""
    for route in ROUTES:
        parameters = route.matches(path)
        if parameters is not None:
            return route, parameters
    shown = path[:MAX_SHOWN_CHARACTERS]
    raise Refused(
        404, f"there is nothing at {shown!r}; {ROOT} lists what there is", Code.INVALID_ARGUMENT
    )
