"""Checks the chart, as far as that can be without a cluster.

    python -m tests.chart [--only PART ...] [--upgrades 3] [--sabotage early|lost|double]

Parts: render (each example by Helm's engine: lint, schemas, rules; values that must be refused), alerts
(promtool), image (the Dockerfile's steps in a chroot, and a pod's command in it), shards (their number is
changed by upgrades), upgrade (the rendered pods, run and upgraded under load). With --sabotage the tracker has a planted fault, only the upgrade is
made, and the whole must fail.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.summary import BUILD, finish
from tests.chart.alerting import ALERT_TESTS, alerts, check_rules
from tests.chart.growing import STEPS, change_shards
from tests.chart.image import CannotTry, build, privileged, size_mb, writable
from tests.chart.image_pod import run_pod_in
from tests.chart.release import Release
from tests.chart.rendering import CI_VALUES, RefusedValues, lint, render, values_of
from tests.chart.rules import RULES, rule_violations
from tests.chart.schemas import VERSIONS, schema_violations
from tests.chart.test_bad_values import BAD
from tests.sabotage import FAULTS

PARTS = ("render", "alerts", "image", "shards", "upgrade")
MOST_IMAGE_MB = 400.0
SHOWN = 10
UPGRADES = (
    {"tracker": {"settings": {"log_level": "debug"}}},
    {"tracker": {"settings": {"log_level": "info"}, "preStopSleepSeconds": 0}},
    {"tracker": {"settings": {"lease_ms": 2_000}}},
)
"""What each upgrade changes, in turn."""


def check_render(details: dict[str, Any]) -> list[str]:
    wrong, objects = [], 0
    for path in CI_VALUES:
        values = values_of(path)
        rendered = render(values)
        objects += len(rendered.objects)
        found = lint(values) + rule_violations(rendered)
        for version in VERSIONS:
            found += [f"{version}: {said}" for said in schema_violations(rendered, version)]
        wrong += [f"{path.name}: {said}" for said in found]
    for what, (values, advice) in BAD.items():
        try:
            render(values)
            wrong.append(f"bad values are taken: {what}")
        except RefusedValues as error:
            if advice not in str(error) and advice.replace(".", "/") not in str(error):
                wrong.append(f"bad values without advice: {what}: {error}")
    details["render"] = {
        "values": len(CI_VALUES), "objects": objects, "rules": len(RULES), "bad_values": len(BAD),
        "versions": list(VERSIONS),
    }  # fmt: skip
    return wrong


def check_alerts(details: dict[str, Any]) -> list[str]:
    details["alerts"] = {"alerts": len(alerts()), "tests": ALERT_TESTS.name}
    return check_rules()


def check_image(details: dict[str, Any]) -> list[str]:
    begin = time.monotonic()
    try:
        stage = build(shown=True)
    except CannotTry as reason:
        # Said in the summary, too: an image that was not tried is no success of it.
        details["image"] = {"tried": False, "reason": str(reason)}
        return []
    megabytes = size_mb(stage)
    wrong = [f"the image's user can write {path}" for path in writable(stage)]
    wrong += [f"{path} runs with more rights" for path in privileged(stage)]
    if megabytes > MOST_IMAGE_MB:
        wrong.append(f"the image takes {megabytes:.0f} MB, more than {MOST_IMAGE_MB:.0f}")
    wrong += run_pod_in(stage, _directory("image-pod"))
    details["image"] = {
        "tried": True, "mb": round(megabytes, 1), "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip
    return wrong


def check_shards(details: dict[str, Any]) -> list[str]:
    details["shards"] = {"changes": len(STEPS)}
    try:
        return change_shards(_directory("shards"))
    except AssertionError as error:
        return [str(error).splitlines()[0]]


def check_upgrade(details: dict[str, Any], upgrades: int, sabotage: str) -> list[str]:
    release = Release(_directory("upgrade"), sabotage=sabotage)
    trouble, gaps = "", []
    try:
        release.start()
        release.goes_on()
        try:
            for number in range(upgrades):
                begin_ns = time.monotonic_ns()
                release.upgrade(**UPGRADES[number % len(UPGRADES)])
                release.goes_on()
                gaps.append(round(release.gap_s(begin_ns), 2))
                print(f"upgrade {number + 1}: longest pause {gaps[-1]} s", flush=True)
            release.finish(30.0 if sabotage else 120.0)
            release.end_pods()
        except AssertionError as error:
            trouble = str(error).splitlines()[0]
            release.stop_nodes()
        violations = release.violations()
        violations += [f"secret: {name} holds one" for name in release.told_secrets()]
        details["upgrade"] = {
            "upgrades": len(gaps), "pods": len(gaps) * len(release.pods), "gap_s": gaps,
            "acknowledged": release.acknowledged(), "announcements": len(release.heard()),
            "probes": sum(sum(k.asked.values()) for k in release.kubelets),
            "worst_stop_s": round(release.worst_stop_s, 2), "trouble": trouble,
            "violations": violations[:SHOWN],
            "by_kind": dict(Counter(v.split(":")[0] for v in violations)),
        }  # fmt: skip
        return ([trouble] if trouble else []) + violations[:SHOWN]
    finally:
        release.close()


def _directory(name: str) -> Path:
    path = BUILD / "chart" / name
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chart")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--upgrades", type=int, default=3)
    parser.add_argument("--sabotage", choices=sorted(FAULTS), default="")
    given = parser.parse_args(arguments)
    if given.sabotage:
        given.only, given.upgrades = ["upgrade"], 1
    details: dict[str, Any] = {}
    wrong: list[str] = []
    for part in given.only:
        try:
            wrong += {
                "render": lambda: check_render(details),
                "alerts": lambda: check_alerts(details),
                "image": lambda: check_image(details),
                "shards": lambda: check_shards(details),
                "upgrade": lambda: check_upgrade(details, given.upgrades, given.sabotage),
            }[part]()
        except (Exception, subprocess.SubprocessError) as error:
            traceback.print_exc()
            wrong.append(f"{part}: {str(error).splitlines()[0] if str(error) else error!r}")
    for reason in wrong:
        print(f"chart: {reason}", flush=True)
    return finish("chart", ok=not wrong, shown=_shown(details), details={**details, "wrong": wrong})


def _shown(details: dict[str, Any]) -> dict[str, object]:
    """Of each part that was run, what matters."""
    shown: dict[str, object] = {}
    if rendered := details.get("render"):
        shown |= {key: rendered[key] for key in ("values", "objects", "rules", "bad_values")}
    if alerting := details.get("alerts"):
        shown["alerts"] = alerting["alerts"]
    if image := details.get("image"):
        shown["image_mb"] = image["mb"] if image["tried"] else "not-tried"
    if changes := details.get("shards"):
        shown["shard_changes"] = changes["changes"]
    if run := details.get("upgrade"):
        kinds = Counter(run["by_kind"])
        shown |= {key: run[key] for key in ("upgrades", "pods", "acknowledged", "announcements")}
        shown |= {"false": kinds.pop("false completion", 0), "lost": sum(kinds.values())}
        shown["worst_gap_s"] = max(run["gap_s"], default=0)
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
