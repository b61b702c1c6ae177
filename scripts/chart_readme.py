"""Writes the chart's README: what it is, by hand, and all of its settings, from `values.schema.json` and
`values.yaml`.

    python -m scripts.chart_readme [--check]

With --check nothing is written, and a README that is not what it would be is an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from scripts.summary import ROOT

CHART = ROOT / "helm" / "lowmark"
README = CHART / "README.md"
BEGIN, END = "<!-- settings: made by scripts/chart_readme.py -->", "<!-- end of settings -->"


def settings() -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and description of each setting, in the order of the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    yield from _settings("", schema, values)


def _settings(path: str, schema: Any, values: Any) -> Iterator[tuple[str, str, str, str]]:
    for name, inner in schema["properties"].items():
        key = f"{path}{name}"
        value = values.get(name, inner.get("default"))
        if value is None:
            continue  # global: Helm's own
        if inner.get("properties") and value:
            yield key, "", "", inner["description"]
            yield from _settings(f"{key}.", inner, value)
        else:
            yield key, _kind(inner), json.dumps(value), inner["description"]


def _kind(schema: Any) -> str:
    kind = schema["type"]
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    if "minimum" in schema:
        most = f"to {schema['maximum']}" if "maximum" in schema else "or more"
        return f"{kind}, {schema['minimum']} {most}"
    return str(kind)


def table() -> str:
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for key, kind, default, meaning in settings():
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{key}` | {kind} | {shown} | {meaning} |".replace("  ", " "))
    return "\n".join(lines)


def readme(now: str) -> str:
    """The README with its table made anew; the rest as it is."""
    before, _, rest = now.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    now = README.read_text()
    made = readme(now)
    if "--check" in arguments:
        if made != now:
            print(f"{README} is not up to date: python -m scripts.chart_readme", file=sys.stderr)
        return int(made != now)
    README.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
