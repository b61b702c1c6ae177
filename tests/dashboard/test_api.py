"""The API over HTTP: what it answers is what its OpenAPI document declares, and what it refuses is said as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.client.support import (
    HOUR,
    TWO_SEGMENTS,
    create,
    done,
    joined_front,
    promise,
    various_pipelines,
)
from tests.dashboard.scene import Showing
from tests.dashboard.test_http import asked, raw
from tests.waits import HANG_S, until
from tracker import __version__
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.dashboard import shared as shared_module
from tracker.dashboard.query import DashboardQuery
from tracker.dashboard.routes import MAX_OFFSET, ROUTES
from tracker.view.pipelines import min_time_json

PIPELINES = ("complete", "held", "waiting", "numbers")
ODD = '<b>&"odd"/100%'


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with various_pipelines(2) as embedded:
        embedded.register(PipelineSpec(ODD, ("a",), fronts=("f",)))
        yield embedded


@pytest.fixture(scope="module")
def showing(running: EmbeddedTracker) -> Iterator[Showing]:
    with closing(Showing(running.target)) as showing:
        yield showing


@pytest.fixture(scope="module")
def document(showing: Showing) -> dict[str, Any]:
    return dict(json.loads(asked(showing, "/api/v1/openapi.json")[2]))


def answered(showing: Showing, path: str) -> Any:
    status, headers, body = asked(showing, path)
    assert (status, headers["content-type"]) == (200, "application/json"), body
    return json.loads(body)


def valid(document: dict[str, Any], model: str, value: Any) -> Any:
    """The value, which is one of a model of the document."""
    schema = {"$ref": f"#/components/schemas/{model}", "components": document["components"]}
    Draft202012Validator(schema).validate(value)
    return value


def refused(showing: Showing, path: str, **headers: str) -> tuple[int, str, str]:
    status, told, body = asked(showing, path, **headers)
    assert told["content-type"] == "application/json" and told["cache-control"] == "no-store"
    error = json.loads(body)
    assert error.keys() == {"code", "message"}
    return status, error["code"], error["message"]


def test_each_answer_is_as_the_document_declares(
    showing: Showing, document: dict[str, Any]
) -> None:
    valid(document, "Pipelines", answered(showing, "/api/v1/pipelines"))
    for name in (*PIPELINES, ODD):
        path = f"/api/v1/pipelines/{quote(name, safe='')}"
        look = valid(document, "Pipeline", answered(showing, path))
        moved = valid(document, "MinTimes", answered(showing, f"{path}/min_times"))
        valid(document, "Lags", answered(showing, f"{path}/lags"))
        assert look["pipeline"] == moved["pipeline"] == name
        for each in (look, moved):
            assert [s["segment"] for s in each["segments"]] == (
                ["a"] if name == ODD else ["first", "second"]
            )


def test_the_document_has_each_route_with_its_parameters_and_what_refuses(
    document: dict[str, Any],
) -> None:
    assert document["openapi"].startswith("3.1.") and document["info"]["version"] == __version__
    assert {*document["paths"]} == {route.path for route in ROUTES}
    for route in ROUTES:
        (method,) = document["paths"][route.path]
        told = document["paths"][route.path][method]
        assert [p["name"] for p in told["parameters"]] == [p.name for p in route.parameters]
        assert told["responses"]["default"]["content"].keys() == {"application/json"}
        for parameter in told["parameters"]:
            Draft202012Validator.check_schema(parameter["schema"])
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
        assert schema["type"] != "object" or schema["additionalProperties"] is False


def test_a_schema_that_is_broken_is_noticed(document: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="is a required property"):
        valid(document, "Error", {"code": "failed"})
    with pytest.raises(Exception, match="Additional properties"):
        valid(document, "Error", {"code": "failed", "message": "", "more": 1})


def test_the_words_are_those_of_the_command_line(
    running: EmbeddedTracker, showing: Showing
) -> None:
    with running.admin() as admin:
        for name in PIPELINES:
            moved = answered(showing, f"/api/v1/pipelines/{name}/min_times")
            info = admin.pipeline(name)
            expected = min_time_json(info.state.min_time, info.spec)
            assert {key: moved[key] for key in expected} == expected
    numbers = answered(showing, "/api/v1/pipelines/numbers/min_times")
    assert (numbers["min_time"], numbers["whole_time"], numbers["round"]) == (7, 3, 1)
    assert (numbers["time"], numbers["text"]) == (None, "time 3, round 1")
    over = answered(showing, "/api/v1/pipelines/complete/min_times")
    assert (over["min_time"], over["complete"], over["text"]) == (FOREVER, True, "complete")


def test_what_has_not_changed_is_not_sent_again(showing: Showing) -> None:
    for path in ("pipelines/held/min_times", "openapi.json", "pipelines/held/lags"):
        _, headers, body = asked(showing, f"/api/v1/{path}")
        assert headers["cache-control"] == "no-cache"
        etag = headers["etag"]
        for given in (etag, f'"other", W/{etag}', "*"):
            status, again, nothing = asked(showing, f"/api/v1/{path}", **{"If-None-Match": given})
            assert (status, again["etag"], nothing) == (304, etag, b""), path
            assert "content-length" not in again, "a cache would keep it"
        assert asked(showing, f"/api/v1/{path}", **{"If-None-Match": '"other"'})[2] == body
        assert asked(showing, f"/api/v1/{path}", "HEAD")[1]["etag"] == etag


def test_refusals_name_what_was_refused_and_what_is_allowed(showing: Showing) -> None:
    pipelines = "/api/v1/pipelines"
    for path, status, code, *words in (
        ("/api/v1/pipeline", 404, "invalid.argument", "'/api/v1/pipeline'", "/api/v1 lists"),
        ("/api/look?pipeline=held", 404, "invalid.argument", "'/api/look'"),
        (f"{pipelines}/none", 404, "refused.unknown_pipeline", "'none'"),
        (f"{pipelines}/none/events", 404, "refused.unknown_pipeline", "'none'"),
        ("/badge/none.svg", 404, "refused.unknown_pipeline", "'none'"),
        (
            f"{pipelines}/held/events?segment=third",
            404,
            "refused.unknown_segment",
            "third",
            "second",
        ),
        ("/badge/held.svg?segment=third", 404, "refused.unknown_segment", "'third'"),
        (f"{pipelines}?offset=x", 400, "invalid.argument", "offset='x'", f"0 to {MAX_OFFSET}"),
        (f"{pipelines}?from=1", 400, "invalid.argument", "'from'", "search, offset"),
        (f"{pipelines}/held?deep=1", 400, "invalid.argument", "'deep'", "none"),
        (f"{pipelines}?search={'x' * 201}", 400, "invalid.argument", "201 characters", "0 to 200"),
        (f"{pipelines}/held/events?segment=", 400, "invalid.argument", "0 characters", "1 to"),
        ("/badge/held.svg?show=all", 400, "invalid.argument", "show='all'", "min_time or lag"),
        (f"{pipelines}?{'&'.join(f'a{n}=1' for n in range(21))}", 400, "invalid.argument", "20"),
    ):
        found = refused(showing, path)
        assert found[:2] == (status, code), path
        assert all(word in found[2] for word in words), found
    last = {"Last-Event-ID": "yesterday"}
    status, _, message = refused(showing, f"{pipelines}/held/events", **last)
    assert status == 400 and "Last-Event-ID='yesterday'" in message
    for data, expected in ((b"POST /api/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
                           (b"GET /api/v1 HTTP/1.1\r\n\r\n", b"400")):  # fmt: skip
        head, _, body = raw(showing, data).partition(b"\r\n\r\n")
        assert expected in head.splitlines()[0] and json.loads(body)["code"] == "invalid.argument"


def test_a_failure_of_the_page_itself_is_said_without_its_inside(
    showing: Showing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(query: DashboardQuery, name: str) -> None:
        raise ZeroDivisionError("the inside")

    monkeypatch.setattr(shared_module, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(DashboardQuery, "lags", fails)
    status, code, message = refused(showing, "/api/v1/pipelines/held/lags")
    assert (status, code) == (500, "failed") and "inside" not in message


def test_the_page_of_the_api_shows_what_the_document_has(
    showing: Showing, document: dict[str, Any]
) -> None:
    status, headers, body = asked(showing, "/api/v1")
    assert status == 200 and headers["content-type"].startswith("text/html")
    page = body.decode()
    assert all(f"GET {path}" in page for path in document["paths"])
    assert all(f'id="{model}"' in page for model in document["components"]["schemas"])


def picture(showing: Showing, path: str) -> tuple[str, dict[str, str]]:
    """What a badge says, and its headers."""
    status, headers, body = asked(showing, path)
    assert (status, headers["content-type"]) == (200, "image/svg+xml"), body
    title = ElementTree.fromstring(body).find("{http://www.w3.org/2000/svg}title")
    assert title is not None and title.text is not None
    return title.text, headers


def test_a_badge_says_up_to_when_all_is_complete(showing: Showing) -> None:
    assert picture(showing, "/badge/complete.svg")[0] == "complete: complete"
    assert picture(showing, "/badge/numbers.svg")[0] == "numbers: complete to time 3, round 1"
    until(
        lambda: picture(showing, "/badge/held.svg")[0].startswith(
            "held: complete to 1970-01-01 01:00"
        )
    )
    said, headers = picture(showing, "/badge/held.svg?segment=first&show=lag")
    assert said.startswith("held first: 2.0 h behind")
    assert picture(showing, "/badge/waiting.svg?show=lag")[0] == "waiting: no front"
    assert headers["cache-control"] == "max-age=5"
    assert headers["cross-origin-resource-policy"] == "cross-origin", "for other pages"
    assert asked(showing, "/badge/complete.svg", **{"If-None-Match": picture(
        showing, "/badge/complete.svg")[1]["etag"]})[0] == 304  # fmt: skip


def test_a_badge_of_a_segment_that_is_drained_is_not_that_of_the_pipeline(
    running: EmbeddedTracker, showing: Showing
) -> None:
    spec = replace(TWO_SEGMENTS, name="shrunk")
    running.register(spec)
    front = joined_front(running.node("shrunk", "n", "front"))
    done(front.commit(promise(HOUR)))
    assert running.subscriber("shrunk").wait_until(HOUR, timeout_s=HANG_S)
    running.admin().apply(replace(spec, segments=("first",), edges=()))
    assert running.subscriber("shrunk").wait_until(FOREVER, "second", timeout_s=HANG_S)
    until(
        lambda: picture(showing, "/badge/shrunk.svg?segment=second")[0] == "shrunk second: complete"
    )
    assert "complete to" in picture(showing, "/badge/shrunk.svg")[0]


def test_a_pipeline_is_as_its_worst_segment_also_where_that_is_not_shown(
    running: EmbeddedTracker, showing: Showing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracker.view.progress.STUCK_AFTER_MS", 0)
    monkeypatch.setattr("tracker.dashboard.query.MAX_SHOWN_SEGMENTS", 1)
    running.register(replace(TWO_SEGMENTS, name="many"))
    front = joined_front(running.node("many", "n", "front"))
    done(front.commit(create(HOUR, 1, segment=1)))
    done(front.commit(promise(3 * HOUR)))
    assert running.subscriber("many").wait_until(HOUR, timeout_s=HANG_S)
    until(lambda: answered(showing, "/api/v1/pipelines/many")["state"] == "stuck")
    found = answered(showing, "/api/v1/pipelines/many")
    assert [each["state"] for each in found["segments"]] == ["moving"]
    assert found["more_segments"] == 1


def test_names_on_a_badge_are_text_whatever_they_hold(showing: Showing) -> None:
    body = asked(showing, f"/badge/{quote(ODD, safe='')}.svg")[2]
    assert b"<b>" not in body and picture(showing, f"/badge/{quote(ODD, safe='')}.svg")[
        0
    ].startswith(ODD)
