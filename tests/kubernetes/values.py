"""Each set of values of `helm/lowmark/ci`, as a release of its own in a namespace that enforces the restricted pod
security standard: installed, tested, upgraded, rolled back and uninstalled. Its pods are stated to run."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chart.rendering import CI_VALUES, Object, values_of
from tests.chart.schemas import CUSTOM
from tests.kubernetes.api import Api
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.releases import PRIVILEGED, Record, Release
from tests.waits import until

STEPS = ("install", "test", "upgrade", "roll back", "uninstall")
OUTSIDE = "node-spool"
"""The set of values that is outside of the restricted standard."""


def names() -> list[str]:
    return [path.name.removesuffix("-values.yaml") for path in CI_VALUES]


def space_of(name: str) -> str:
    """The namespace of a set's release."""
    return f"values-{name}"


def outside(names: list[str]) -> list[str]:
    """The namespaces in which pods must be refused."""
    return [f"{space_of(OUTSIDE)}-restricted"] * (OUTSIDE in names)


def go_through(plane: ControlPlane, record: Record, chart: Path, name: str) -> None:
    """All steps with one set, until one fails."""
    values = values_of(chart / "ci" / f"{name}-values.yaml")
    if name == OUTSIDE:
        _is_refused(plane, record, chart)
    standard = PRIVILEGED if name == OUTSIDE else "restricted"
    release = Release(plane, record, space_of(name), values, chart, standard=standard)
    _make_what_it_names(release)
    tracker = {**values.get("tracker", {}), "preStopSleepSeconds": 4}
    if release.install() and release.test() and release.upgrade(tracker=tracker):
        release.roll_back(1)
        release.uninstall()


def _make_what_it_names(release: Release) -> None:
    """What the values name that is there before the release, as far as admission asks for it."""
    if account := release.values.get("serviceAccount", {}).get("name"):
        metadata = {"name": account}
        release.api.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, release.space
        )
    if priority := release.values.get("tracker", {}).get("priorityClassName"):
        release.api.create({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": priority}, "value": 1000,
        })  # fmt: skip


def _is_refused(plane: ControlPlane, record: Record, chart: Path) -> None:
    """What the namespace of all others refuses."""
    values = values_of(chart / "ci" / f"{OUTSIDE}-values.yaml")
    (space,) = outside([OUTSIDE])
    release = Release(plane, record, space, values, chart)
    process = plane.helm("install", release.name, str(chart), "--namespace", release.space,
                         "--values", str(chart / "ci" / f"{OUTSIDE}-values.yaml"))  # fmt: skip
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    until(release.refusals, f"{release.space}: nothing is refused")


def define_custom_resources(api: Api) -> list[str]:
    """The kinds of cert-manager and of the Prometheus operator, as far as the chart uses them: by the schemas that
    `make chart` holds it against. Returns their names."""
    made = []
    for path in sorted(CUSTOM.glob("*.json")):
        schema = json.loads(path.read_text())
        properties = schema["properties"]
        group, version = properties["apiVersion"]["const"].split("/")
        kind = properties["kind"]["const"]
        plural = f"{kind.lower()}s"
        structural = {
            "type": "object", "required": ["spec"],
            "properties": {"spec": _structural(properties["spec"], schema.get("$defs", {}))},
        }  # fmt: skip
        served = {
            "name": version, "served": True, "storage": True,
            "schema": {"openAPIV3Schema": structural},
        }  # fmt: skip
        api.create({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [served],
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            },
        })  # fmt: skip
        made.append(f"{plural}.{group}")
    for name in made:
        path_of = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        until(lambda path=path_of: _is_established(api.get(path)), name)  # type: ignore[misc]
    return made


def _is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions", [])
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _structural(schema: Object, definitions: Object) -> Object:
    """Without references and closed objects, and with a type of all, as definitions of custom resources must be."""
    if "$ref" in schema:
        return _structural(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    found = {
        key: value for key, value in schema.items()
        if not (key == "additionalProperties" and value is False)
    }  # fmt: skip
    if "enum" in found:
        found["type"] = "string"
    if isinstance(found.get("type"), list):  # a whole number or text
        del found["type"]
        found["x-kubernetes-int-or-string"] = True
    if "properties" in found:
        found["properties"] = {
            name: _structural(part, definitions) for name, part in found["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _structural(found[key], definitions)
    return found
