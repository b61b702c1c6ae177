"""Writes what follows from the declarations of settings: the tables of docs/settings.md, and in the chart's
`values.schema.json` the settings that a release may give. `python -m scripts.settings_page`.

`--check` fails if they are not what the declarations make of them; the tests do the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.chart_readme import CHART
from scripts.marked import between, table_marks
from scripts.summary import ROOT
from tracker.cli import attach, barrier, periods
from tracker.cli.attach import AttachSettings
from tracker.cli.barrier import BarrierSettings
from tracker.cli.periods import FollowSettings
from tracker.client.settings import Settings
from tracker.service.settings import TYPED, ServeSettings

PAGE = ROOT / "docs" / "settings.md"
SCHEMA = CHART / "values.schema.json"
TABLES: dict[str, tuple[type[Settings], Sequence[str]]] = {
    "serve": (ServeSettings, TYPED),
    "query-attach": (AttachSettings, attach.TYPED),
    "periods-follow": (FollowSettings, periods.TYPED),
    "barrier-run": (BarrierSettings, barrier.TYPED),
}
"""The tables of the page, with the settings of each that are options."""
OF_THE_CHART = {
    *TYPED, "member", "members", "left_file", "left_status", "health_listen", "log_json", "relay",
}  # fmt: skip
"""What the chart says itself, by its values for it."""
OF_A_RELAY = {
    "max_subscribers", "max_streams_per_client", "max_calls_per_s", "max_connection_age_ms", "log_level",
}  # fmt: skip
"""What of the rest a relay has, too."""


def declared(model: type[Settings]) -> dict[str, Any]:
    """The JSON schema of each setting, by its name."""
    schema = model.model_json_schema()
    found = dict[str, Any]()
    for name, one in schema["properties"].items():
        extra = model.model_fields[name].json_schema_extra
        if not (isinstance(extra, dict) and extra.get("hidden")):
            choices: list[dict[str, Any]] = one.get("anyOf", [])
            chosen = next((each for each in choices if each["type"] != "null"), {})
            found[name] = {"description": one["description"], **chosen, **one}
    return found


def kind(schema: Any) -> str:
    """What a value may be, in words."""
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    if schema["type"] == "array":
        return "list"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None:
        return f"{schema['type']}, {least:g} " + ("or more" if most is None else f"to {most}")
    return str(schema.get("format", schema["type"]))


def rows(model: type[Settings], typed: Sequence[str]) -> Iterator[str]:
    """A table of the page, in Markdown."""
    yield from ("| setting | option | kind | default | meaning |", "|---|---|---|---|---|")
    for name, schema in declared(model).items():
        option = f"`--{name.replace('_', '-')}`" if name in typed else ""
        default = schema["default"]
        shown = "" if default in ("", None, []) else f"`{json.dumps(default)}`"
        yield f"| `{name}` | {option} | {kind(schema)} | {shown} | {schema['description']} |"


def page(now: str) -> str:
    """The page with its tables made anew; the rest as it is. Raises SystemExit where it has no marks for one."""
    for name, (model, typed) in TABLES.items():
        table = "\n".join(rows(model, typed))
        now = between(now, table_marks(name, "scripts.settings_page"), table, PAGE, name)
    return now


def chart_schema(now: str) -> str:
    """The chart's schema with the settings of a release made anew."""
    document = json.loads(now)
    of_serve = {name for name in declared(ServeSettings) if name not in OF_THE_CHART}
    for component, what, names in (
        ("tracker", "Further settings", of_serve), ("relays", "Those of a relay", OF_A_RELAY),
    ):  # fmt: skip
        document["properties"][component]["properties"]["settings"] = _settings(what, names)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _settings(what: str, names: Collection[str]) -> dict[str, Any]:
    kept = ("description", "type", "enum", "minimum", "maximum", "default")
    return {
        "description": f"{what} of `lowmark serve`, by their names in docs/settings.md.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {key: schema[key] for key in kept if key in schema}
            for name, schema in declared(ServeSettings).items()
            if name in names
        },
    }


MADE: dict[Path, Callable[[str], str]] = {PAGE: page, SCHEMA: chart_schema}


def main(arguments: list[str]) -> int:
    stale = [path for path, made in MADE.items() if made(path.read_text()) != path.read_text()]
    if "--check" in arguments:
        for path in stale:
            print(f"{path} is not up to date: python -m scripts.settings_page", file=sys.stderr)
        return int(bool(stale))
    for path in stale:
        path.write_text(MADE[path](path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
