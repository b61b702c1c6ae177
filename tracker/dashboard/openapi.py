"""The OpenAPI document and its page, both made of the declarations of the routes and of their answers."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from pydantic.json_schema import models_json_schema

from tracker import __version__
from tracker.dashboard.answers import Error
from tracker.dashboard.routes import DOCUMENT, EVENTS, JSON, ROUTES, Parameter, Route

_PLACE = "#/components/schemas/{model}"
_ETAG = {
    "schema": {"type": "string"},
    "description": "Send it as If-None-Match, and what is the same is answered with 304.",
}


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    models = {each.answer for each in ROUTES if each.answer is not None} | {Error}
    _, definitions = models_json_schema(
        [(model, "serialization") for model in sorted(models, key=lambda each: each.__name__)],
        ref_template=_PLACE,
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lowmark",
            "version": __version__,
            "description": "Up to which moment everything that entered a pipeline has been completely processed. Reading alone.",
        },
        "paths": {route.path: {"get": _operation(route)} for route in ROUTES},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {
                    "type": "http", "scheme": "basic", "description": "The password is a token, the user any name.",
                },
            },
        },
        # Where the tracker has no tokens, none is asked for.
        "security": [{}, {"bearer": []}, {"basic": []}],
    }  # fmt: skip


def _operation(route: Route) -> dict[str, Any]:
    return {
        "operationId": route.name,
        "summary": route.what,
        "description": f"Where the tracker has tokens it needs {route.need.value}.",
        "parameters": [_parameter(each) for each in route.parameters],
        "responses": {
            "200": _answer(route),
            **({} if route.media == EVENTS else {"304": {"description": "It is as it was."}}),
            **({"204": {"description": "All is complete: nothing more will come."}} if route.media == EVENTS else {}),
            "default": {
                "description": "It was refused.",
                "content": {JSON: {"schema": {"$ref": _PLACE.format(model=Error.__name__)}}},
            },
        },
    }  # fmt: skip


def _answer(route: Route) -> dict[str, Any]:
    if route.answer is None or route.media == EVENTS:
        schema: dict[str, Any] = {"type": "string"}
    else:
        schema = {"$ref": _PLACE.format(model=route.answer.__name__)}
    answer: dict[str, Any] = {
        "description": "It is answered.",
        "content": {route.media: {"schema": schema}},
    }
    if route.media == EVENTS and route.answer is not None:
        answer["description"] = (
            f"Events whose data is {_PLACE.format(model=route.answer.__name__)}."
        )
    else:
        answer["headers"] = {"ETag": _ETAG}
    return answer


def _parameter(parameter: Parameter) -> dict[str, Any]:
    default = {} if parameter.default is None else {"default": parameter.default}
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.meaning,
        "schema": parameter.kind.schema | default,
    }


@cache
def page() -> bytes:
    """The same for people, in HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Lowmark: the HTTP API</title>'
        '<link rel="stylesheet" href="/style.css"><link rel="icon" href="/icon.svg"></head><body><main id="api">'
        "<h1>The HTTP API</h1>"
        f'<p>Reading alone. For programs: <a href="{DOCUMENT}">{DOCUMENT}</a>.</p>'
        f"{''.join(map(_section, ROUTES))}{_models()}</main></body></html>\n"
    ).encode()


def _section(route: Route) -> str:
    name = "" if route.answer is None else f": {_link(route.answer.__name__)}"
    rows = "".join(
        f"<tr><td><code>{escape(each.name)}</code></td><td>{each.place}</td><td>{escape(each.meaning)}</td></tr>"
        for each in route.parameters
    )
    return (
        f'<section id="{route.name}"><h2><code>GET {escape(route.path)}</code></h2><p>{escape(route.what)}</p>'
        f"<table><tbody>{rows}</tbody></table>"
        f"<p>Answers {escape(route.media)}{name}. Where the tracker has tokens it needs {escape(route.need.value)}.</p></section>"
    )


def _link(model: str) -> str:
    return f'<a href="#{model}">{model}</a>'


def _models() -> str:
    found = []
    for name, schema in document()["components"]["schemas"].items():
        rows = "".join(
            f"<tr><td><code>{field}</code></td><td>{_kind(one)}</td><td>{escape(one.get('description', ''))}</td></tr>"
            for field, one in schema.get("properties", {}).items()
        )
        what = escape(schema.get("description", ""))
        found.append(
            f'<section id="{name}"><h2>{name}</h2><p>{what}</p><table><tbody>{rows}</tbody></table></section>'
        )
    return "".join(found)


def _kind(schema: dict[str, Any]) -> str:
    """What a field is, in a word."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return escape(" or ".join(schema["enum"]) if "enum" in schema else str(schema.get("type", "")))
