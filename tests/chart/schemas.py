"""Every object against the schema of its kind, strictly: no field that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate

from tests.chart.rendering import Object, Rendered, documents

CUSTOM = Path(__file__).parent / "custom_resources"
VERSIONS = ("1.30", "1.34", "1.37")
"""The oldest that the chart is for, and newer ones."""


def schema_violations(rendered: Rendered, version: str) -> list[str]:
    """What is wrong by the schemas of one version of Kubernetes."""
    found = []
    for document in [*rendered.objects, *_embedded(rendered)]:
        where = f"{document['kind']}/{document['metadata'].get('name', 'template')}"
        try:
            custom = CUSTOM / f"{document['kind'].lower()}.json"
            if custom.exists():
                schema = json.loads(custom.read_text())
                jsonschema.Draft202012Validator(schema).validate(document)
            else:
                kubernetes_validate.validate(document, version, strict=True)
        except jsonschema.ValidationError as error:
            path = ".".join(str(part) for part in error.absolute_path)
            found.append(f"{where}: {path}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            found.append(f"{where}: {error.message}")
    return found


def _embedded(rendered: Rendered) -> list[Object]:
    """Objects inside of config maps."""
    return [
        document
        for config in rendered.kind("ConfigMap")
        for key, text in config["data"].items()
        if key == "executor.yaml"
        for document in documents(text)
    ]
