"""The chart, judged by a Kubernetes API server.

    python -m tests.kubernetes [--only life NAME ...] [--sabotage root|budget|claims|rights]

An API server, its controllers and helm, as they are built from their modules, take the chart: every set of values of
`helm/lowmark/ci`, and one release whose pods run. All answers are in build/kubernetes/record.jsonl, which
`tests.kubernetes.judge` judges. With --sabotage a fault is planted into the chart, and the whole must fail.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
from collections import Counter
from pathlib import Path

from scripts.summary import BUILD, finish
from tests.chart.rendering import CHART
from tests.kubernetes import values
from tests.kubernetes.control_plane import ControlPlane, NotBuilt, programs
from tests.kubernetes.judge import read, violations
from tests.kubernetes.life import SPACE, STEPS, Life
from tests.kubernetes.nodes import Nodes
from tests.kubernetes.releases import Record

SABOTAGES = {
    "root": ("templates/_helpers.tpl", "runAsNonRoot: true\nrunAsUser: 65532", "runAsUser: 0"),
    "budget": (
        "templates/poddisruptionbudget.yaml", "component: {{ $component }}", "component: none",
    ),
    "claims": ("templates/statefulset.yaml", "whenScaled: Retain", "whenScaled: Delete"),
    "rights": ("templates/credentials.yaml", "verbs: [get, update]", "verbs: [get, update, delete]"),
}  # fmt: skip
"""Where each is planted: a file of the chart, its text, and what takes its place."""
SHOWN = 20


def planted(chart: Path, directory: Path, sabotage: str) -> Path:
    """A copy of the chart with the fault in it."""
    copy = directory / "lowmark"
    shutil.copytree(chart, copy)
    name, before, after = SABOTAGES[sabotage]
    text = (copy / name).read_text()
    assert text.count(before) == 1, name
    (copy / name).write_text(text.replace(before, after))
    return copy


def run(directory: Path, where: Path, record: Record, only: list[str], chart: Path) -> list[str]:
    """Takes all releases through their steps; what was wrong with the pods that run."""
    steps = {
        name if name == SPACE else values.space_of(name): STEPS if name == SPACE else values.STEPS
        for name in only
    }
    record.write("expected", releases=steps, outside=values.outside(only))
    life = Life(directory / "life")
    try:
        with ControlPlane(directory / "plane", where) as plane:
            processes = {SPACE: life.where}
            with Nodes(plane, directory / "nodes", processes, life.names) as nodes:
                values.define_custom_resources(plane.api)
                for name in only:
                    if name == SPACE:
                        life.go(plane, record, chart)
                    else:
                        values.go_through(plane, record, chart, name)
            plane.check_alive()
        return nodes.wrong
    finally:
        life.close()


def main(arguments: list[str]) -> int:
    everything = [*values.names(), SPACE]
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes")
    parser.add_argument("--only", nargs="+", choices=everything, default=everything)
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), default="")
    given = parser.parse_args(arguments)
    directory = BUILD / "kubernetes"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        where = programs()
    except NotBuilt as reason:
        return finish("kubernetes", ok=False, shown={}, details={}, skipped=str(reason))
    chart, only = CHART, given.only
    if given.sabotage:
        chart, only = planted(CHART, directory, given.sabotage), [SPACE]
    record = Record(directory / "record.jsonl")
    try:
        wrong = run(directory, where, record, only, chart)
    except (AssertionError, OSError, RuntimeError) as error:
        traceback.print_exc()
        wrong = [str(error).splitlines()[0] if str(error) else repr(error)]
    lines = read(record.path)
    failed = violations(lines)
    for said in [*failed, *wrong][:SHOWN]:
        print(f"kubernetes: {said}", flush=True)
    counts = Counter(line["what"] for line in lines)
    ran = next((line for line in lines if line["what"] == "ran"), {})
    shown = {
        "releases": len(only), "steps": counts["step"],
        "objects": sum(line["applied"] for line in lines if line["what"] == "objects"),
        "hooks": sum(len(line["hooks"]) for line in lines if line["what"] == "hooks"),
        "denied": counts["refused"], "evictions": counts["evicted"], "reviews": counts["review"],
        "acknowledged": ran.get("acknowledged", 0), "failed": len(failed), "wrong": len(wrong),
    }  # fmt: skip
    details = {"only": only, "violations": failed, "troubles": wrong}
    return finish("kubernetes", ok=not failed and not wrong, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
