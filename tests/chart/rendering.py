"""The chart rendered by Helm's own engine, as objects."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import helm_python
import yaml

from tests.docs.pages import ROOT

CHART = ROOT / "helm" / "lowmark"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE, NAMESPACE = "demo", "prod"

Object: TypeAlias = dict[str, Any]
Values: TypeAlias = dict[str, Any]


class RefusedValues(Exception):
    """The chart says that these values cannot be."""


@dataclass(frozen=True)
class Rendered:
    """What a release consists of. objects: all of them, hooks too; files: the template of each;
    values: as they count, defaults included; notes: what the installer reads."""

    objects: list[Object]
    files: list[str]
    values: Values
    notes: str
    release: str = RELEASE
    namespace: str = NAMESPACE

    def kind(self, kind: str) -> list[Object]:
        return [o for o in self.objects if o["kind"] == kind]

    def one(self, kind: str, name: str = "") -> Object:
        found = [o for o in self.kind(kind) if name in ("", o["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} {kind} {name}"
        return found[0]

    def of_groups(self) -> Iterator[Rendered]:
        """What each group of the deployment is, as if it were a release by itself: its set and its jobs, its values, and all that
        is of no group."""
        for group in range(self.values["groups"]):
            overrides = self.values["groupOverrides"].get(str(group), {})
            mine = [o for o in self.objects if group_of(o) in (None, group)]
            yield replace(self, objects=mine, values=_merged(self.values, overrides))

    def pod_specs(self) -> Iterator[tuple[str, Object, Object]]:
        """Name, metadata and spec of each pod or pod template, that of sidecars too."""
        for o in self.objects:
            where = f"{o['kind']}/{o['metadata']['name']}"
            if o["kind"] == "Pod":
                yield where, o["metadata"], o["spec"]
            elif "template" in o.get("spec", {}):
                yield where, o["spec"]["template"]["metadata"], o["spec"]["template"]["spec"]
        for o in self.kind("ConfigMap"):
            for key, text in o["data"].items():
                if key == "executor.yaml":
                    (pod,) = documents(text)
                    yield f"ConfigMap/{o['metadata']['name']}", pod["metadata"], pod["spec"]


def group_of(o: Object) -> int | None:
    """The group that a set is, or whose shards a job looks after; none for all else."""
    if o["kind"] == "Job":
        args = o["spec"]["template"]["spec"]["containers"][0]["args"]
        if args[0] != "shards":
            return None
    elif o["kind"] != "StatefulSet":
        return None
    return int(o["metadata"]["labels"].get("lowmark.dev/group", 0))


def _merged(values: Values, over: Values) -> Values:
    merged = dict(values)
    for key, value in over.items():
        merged[key] = _merged(values[key], value) if isinstance(value, dict) else value
    return merged


@cache
def _chart() -> Any:
    return helm_python.Chart.load(CHART)


def documents(text: str) -> list[Any]:
    """Those of a YAML file, by the loader in C: the one in Python takes longer than Helm's engine and all rules together."""
    return list(yaml.load_all(text, yaml.CSafeLoader))


def values_of(path: Path) -> Values:
    (values,) = documents(path.read_text())
    return values or {}


def render(values: Values, release: str = RELEASE, namespace: str = NAMESPACE) -> Rendered:
    """Renders a release. Raises RefusedValues with what the chart says, or its schema."""
    return _render(_chart(), values, release, namespace)


def _render(chart: Any, values: Values, release: str, namespace: str) -> Rendered:
    try:
        merged = chart.merge_values(values)
        chart.validate_schema(merged)
        texts = chart.render(values, name=release, namespace=namespace)
    except helm_python.HelmError as error:
        raise RefusedValues(str(error)) from None
    objects, files, notes = [], [], ""
    for path, text in sorted(texts.items()):
        if path.endswith("NOTES.txt"):
            notes = text
            continue
        for found in documents(text):
            if found is not None:
                objects.append(found)
                files.append(path)
    return Rendered(objects, files, merged, notes, release, namespace)


def render_upgrade(values: Values, running: Rendered | None = None, **was: str) -> Rendered:
    """Renders an upgrade of a release that runs, or of one with these annotations. Raises RefusedValues."""
    kept = dict(was)
    if running is not None:
        kept = next(running.of_groups()).one("StatefulSet")["metadata"]["annotations"]
    words = " ".join(f'"{name}" "{value}"' for name, value in kept.items())
    answer = f'dict "metadata" (dict "annotations" (dict {words}))'
    return _render_answered(values, _ASKED_FOR_SET, answer)


def render_into_cluster(values: Values) -> Rendered:
    """Renders an install into a namespace that is there. Raises RefusedValues."""
    return _render_answered(values, _ASKED_FOR_CLUSTER, 'dict "kind" "ConfigMap"')


_ASKED_FOR_SET = r'lookup "apps/v1" "StatefulSet" \.Release\.Namespace \(.*?\)'
_ASKED_FOR_CLUSTER = r'lookup "v1" "ConfigMap" \.Release\.Namespace "kube-root-ca\.crt"'


def _render_answered(values: Values, asked: str, answer: str) -> Rendered:
    """Helm's engine has no cluster to ask here, so the answer is put into a copy of the chart."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "lowmark"
        shutil.copytree(CHART, copy)
        helpers = copy / "templates" / "_helpers.tpl"
        text, answers = re.subn(asked, answer, helpers.read_text())
        assert answers == 1
        helpers.write_text(text)
        with helm_python.Chart.load(copy) as chart:
            return _render(chart, values, RELEASE, NAMESPACE)


def lint(values: Values) -> list[str]:
    """What Helm's linter says against the chart with these values; strictly."""
    report = helm_python.lint(CHART, values, strict=True, namespace=NAMESPACE)
    said = [f"{m['path']}: {m['error']}" for m in report["messages"] if m["severity"] >= 2]
    return said + [str(error) for error in report.get("errors") or []]
