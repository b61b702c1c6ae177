"""Requests made of the OpenAPI document that is served, as they should be and mangled, by tokens with and without rights.

What is to come of each is worked out here again: of a parameter by its schema, of a right by asking over gRPC.
"""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]

from tests.cluster.network import fresh_address
from tests.security.serving import Served, serving, wait_for
from tests.waits import HANG_S
from tracker.client import Admin, LowmarkError, RefusedError, Subscriber
from tracker.core.model import PipelineSpec

SPECS = tuple(
    PipelineSpec(name, ("in", "out"), fronts=("f",)) for name in ("orders", "wages", "a/b <&>")
)
NAMES = [spec.name for spec in SPECS]
ODD = ["none", "..", "%", "a\x00b", "ä" * 300, "x" * 1025, "orders/min_times", "\ud7ff"]
TOKENS: dict[str, dict[str, list[str]]] = {
    "everything": {"*": ["subscribe"]}, "orders": {"orders": ["subscribe"]}, "worker": {"orders": ["commit"]},
    "some": {"o*": ["register"], "wages": ["subscribe"]}, "nothing": {},
}  # fmt: skip
METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")


@dataclass
class Found:
    """What came of all requests. invalid: answers that are not as the document declares, or statuses other than those to
    come; open: what a token saw that it may not see over gRPC, or the other way round."""

    outcomes: Counter[str] = field(default_factory=Counter)
    invalid: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.outcomes.total()


class Asking:
    """Asks one API with a token, and holds each answer against the document."""

    def __init__(self, page: str, token: str, found: Found) -> None:
        self._page, self._token, self.found = page, token, found
        status, _, body = self.asked("GET", "/api/v1/openapi.json", {})
        assert status == 200, body
        self.document = json.loads(body)

    def asked(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """The status, the media type, and the body; of a stream its first line."""
        given = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        with closing(http.client.HTTPConnection(self._page, timeout=HANG_S)) as connection:
            connection.request(method, path, headers={**given, **headers})
            answer = connection.getresponse()
            media = answer.headers.get("content-type", "")
            is_stream = media == "text/event-stream"
            return answer.status, media, answer.readline() if is_stream else answer.read()

    def ask(self, method: str, path: str, route: str = "", **headers: str) -> int:
        """The status. What is answered is as the document declares it for a route, or for what is refused."""
        status, media, body = self.asked(method, path, headers)
        self.found.outcomes[f"{route or method} {status}"] += 1
        declared = self.document["paths"].get(route, {}).get("get", {"responses": {}})["responses"]
        answer = declared.get(str(status)) or (declared or self._any()).get("default", {})
        wrong = self._wrong(answer.get("content", {}), media, body)
        if status == 500 or wrong:
            self.found.invalid.append(f"{method} {path[:200]}: {status} {wrong or body[:200]!r}")
        return status

    def _any(self) -> dict[str, Any]:
        """What is declared of refusals, of any route."""
        first = next(iter(self.document["paths"].values()))
        return dict(first["get"]["responses"])

    def _wrong(self, content: dict[str, Any], media: str, body: bytes) -> str:
        """What is not as it is declared."""
        if not content:
            return f"a body of {len(body)} bytes where none is declared" if body else ""
        if media not in content:
            return f"{media!r} where {[*content]} is declared"
        if media != "application/json":
            return "" if body else "nothing"
        schema = {**content[media]["schema"], "components": self.document["components"]}
        try:
            Draft202012Validator(schema).validate(json.loads(body))
        except (ValidationError, ValueError) as error:
            return str(error).splitlines()[0]
        return ""


def mangled(asking: Asking, choose: random.Random, count: int) -> None:
    """So many requests, of each route in turn, with parameters as declared and others."""
    routes = sorted(asking.document["paths"])
    for number in range(count):
        route = routes[number % len(routes)]
        declared = asking.document["paths"][route]["get"]["parameters"]
        given = {
            p["name"]: _value(choose, p) for p in declared if p["required"] or choose.random() < 0.5
        }
        odd = {"more": "1"} if choose.random() < 0.1 else {}
        places = {p["name"]: p["in"] for p in declared}
        path, query = route, dict(odd)
        headers = {"If-None-Match": '"x"'} if choose.random() < 0.3 else {}
        for name, value in given.items():
            if places[name] == "path":
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            elif places[name] == "query":
                query[name] = value
            else:
                headers[name] = value
        expected = _expected(declared, given, bool(odd))
        status = asking.ask(
            "GET", f"{path}?{urlencode(query)}" if query else path, route, **headers
        )
        if status not in expected:
            asking.found.invalid.append(f"{route} {given} {odd}: {status}, and not {expected}")


def _value(choose: random.Random, parameter: dict[str, Any]) -> str:
    """Of a parameter what it may be, or something else."""
    schema = parameter["schema"]
    if parameter["name"] == "pipeline":
        return choose.choice(NAMES * 3 + ODD)
    if parameter["name"] == "segment":
        return choose.choice(["in", "out", "none", "", "x" * 1025])
    if "enum" in schema:
        return str(choose.choice([*schema["enum"], "", "all"]))
    if "pattern" in schema:  # the id of an event; nobody has restarted the pipelines
        odd = ["x", "5", "0.", ".5", "0.1.5", "0x0.5", "0.5e3"]
        return choose.choice(
            [*odd, "0.0", "0.-7", f"0.{2**63 - 1}", f"0.{choose.randint(0, 10**12)}"]
        )
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema["maximum"]
        odd = [
            "",
            "x",
            "1.5",
            "1e3",
            " 1",
            "+1",
            "0x1",
            "\u0661",
            str(most + 1),
            str(least - 1),
            "9" * 30,
        ]
        known = [str(least), str(most), str(choose.randint(least, most)), "0"]
        value = choose.choice([*odd, *known])
        # Of a header spaces around it are not a part.
        return (
            value
            if parameter["in"] != "header" or (value.isascii() and value == value.strip())
            else "one"
        )
    return choose.choice(
        ["", "or", "x" * schema["maxLength"], "x" * (schema["maxLength"] + 1), "ö\n&=%"]
    )


def _expected(declared: list[dict[str, Any]], given: dict[str, str], has_more: bool) -> set[int]:
    """The statuses that may come of it: by the schemas, and by what is registered."""
    if has_more or any(
        not _fits(p["schema"], given[p["name"]]) for p in declared if p["name"] in given
    ):
        return {400}
    if given.get("pipeline", NAMES[0]) not in NAMES or given.get("segment", "in") not in (
        "in",
        "out",
    ):
        return {404}
    return {200, 204} if given.get("Last-Event-ID") == f"0.{2**63 - 1}" else {200}


def _fits(schema: dict[str, Any], value: str) -> bool:
    """Whether a value is one by its schema."""
    parsed: Any = value
    if schema["type"] == "integer":
        is_number = value.removeprefix("-").isdecimal() and value.isascii() and len(value) <= 20
        parsed = int(value) if is_number else value
    return bool(Draft202012Validator(schema).is_valid(parsed))


def other_methods(asking: Asking) -> None:
    """What is no GET is refused, wherever."""
    for method in METHODS:
        for path in ("/", "/api/v1/pipelines", "/badge/orders.svg"):
            if asking.ask(method, path) != 405:
                asking.found.invalid.append(f"{method} {path} is not refused")


def streams_are_bounded(asking: Asking, page: str, token: str) -> int:
    """Opens streams until one is refused, and none of them is read; returns how many there were."""
    opened: list[http.client.HTTPConnection] = []
    headers = {"Authorization": f"Bearer {token}"}
    try:
        while True:
            connection = http.client.HTTPConnection(page, timeout=HANG_S)
            opened.append(connection)
            connection.request("GET", "/api/v1/pipelines/orders/events", headers=headers)
            if connection.getresponse().status == 503:
                return len(opened) - 1
            if len(opened) > 1_000:
                asking.found.invalid.append("streams have no limit")
                return len(opened)
    finally:
        for connection in opened:
            connection.close()


def rights(served: Served, page: str, found: Found) -> None:
    """Each token at each route of each pipeline: it is answered where gRPC answers it, and nowhere else."""
    for name in TOKENS:
        asking = Asking(page, served.secrets[name], found)
        token_file = str(served.directory / f"{name}.token")
        with Admin(served.target(token_file=token_file), HANG_S) as admin:
            listed = {info.spec.name for info in admin.pipelines()}
            for pipeline in NAMES:
                may_look = _may(lambda: admin.pipeline(pipeline))  # noqa: B023
                may_hear = _may(lambda: _heard(served, token_file, pipeline))  # noqa: B023
                for route in asking.document["paths"]:
                    if "{pipeline}" in route:
                        may = may_hear if route.endswith(("min_times", "events")) else may_look
                        path = route.replace("{pipeline}", quote(pipeline, safe=""))
                        if (asking.ask("GET", path, route) == 200) != may:
                            found.open.append(f"token {name}, {path}: over gRPC it is {may}")
        _, _, body = asking.asked("GET", "/api/v1/pipelines", {})
        if {each["pipeline"] for each in json.loads(body)["pipelines"]} != listed:
            found.open.append(f"token {name} is listed others than {sorted(listed)}")
    for secret in (
        "",
        "lowmark_none",
        served.secrets["orders"][:-1],
        served.secrets["orders"] + "x",
    ):
        stranger = Asking(page, secret, found)
        for route in stranger.document["paths"]:
            if stranger.ask("GET", route.replace("{pipeline}", "orders"), route) != 401:
                found.open.append(f"a stranger is answered at {route}")


def _heard(served: Served, token_file: str, pipeline: str) -> int:
    with Subscriber(served.target(token_file=token_file), pipeline) as subscriber:
        return subscriber.min_time()


def _may(ask: Any) -> bool:
    """Whether gRPC answers."""
    try:
        ask()
    except RefusedError:
        raise
    except LowmarkError as error:
        assert "PERMISSION_DENIED" in str(error), error
        return False
    return True


@contextmanager
def _tracker(directory: Path, fault: str) -> Iterator[tuple[Served, str]]:
    """A process with TLS and tokens, and the address of its API."""
    served, page = Served(directory), fresh_address()
    for name, pipelines in TOKENS.items():
        rights: Any = {("_any" if p == "*" else p): words for p, words in pipelines.items()}
        served.token(name, **rights)
    operator = served.token("operator", _any=["register"])
    options = ("--tokens", str(served.tokens_file), "--dashboard-listen", page)
    own = {
        "LOWMARK_TLS_CA": served.authority.cert,
        "LOWMARK_TOKEN_FILE": str(directory / "everything.token"),
    }
    with serving(served, *options, environment=own, fault=fault):
        target = served.target(token_file=operator)
        wait_for(target)
        with Admin(target, HANG_S) as admin:
            for spec in SPECS:
                admin.register(spec)
        yield served, page


def run(directory: Path, count: int, seed: int, fault: str = "") -> tuple[Found, int]:
    """What came of all, and how many streams one client could open."""
    found = Found()
    with _tracker(directory, fault) as (served, page):
        asking = Asking(page, served.secrets["everything"], found)
        mangled(asking, random.Random(seed), count)
        other_methods(asking)
        streams = streams_are_bounded(asking, page, served.secrets["everything"])
        rights(served, page, found)
    return found, streams
