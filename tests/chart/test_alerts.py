"""Each alert is right by promtool, is shown to fire, knows its metrics, and is in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.chart.alerting import (
    ALERT_TESTS,
    RULES_FILE,
    alerts,
    check_rules,
    promtool,
    shown_to_fire,
)
from tests.docs.pages import ROOT
from tracker.metrics.names import SERVICE


def test_promtool_finds_the_rules_right_and_each_fires() -> None:
    assert check_rules() == []
    assert shown_to_fire() == set(alerts())


def test_an_alert_that_does_not_fire_is_found(tmp_path: Path) -> None:
    """What the tests are worth."""
    rules = yaml.safe_load(RULES_FILE.read_text())
    rules["groups"][0]["rules"][0]["expr"] += " > 1e9"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    tests = yaml.safe_load(ALERT_TESTS.read_text())
    tests["rule_files"] = ["rules.yaml"]
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    assert "LowmarkMinTimeStalled" in promtool("test", "rules", str(tmp_path / "tests.yaml"))


def test_alerts_are_about_metrics_and_labels_that_there_are() -> None:
    metrics = {metric.name: set(metric.labels) for metric in SERVICE}
    target = {"namespace", "job", "group", "pod", "instance", "le"}
    for name, rule in alerts().items():
        used = {m.removesuffix("_bucket") for m in re.findall(r"\blowmark_\w+", rule["expr"])}
        assert used and used <= set(metrics), name
        labels = {
            label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"])
            for label in group.split(",")
        }  # fmt: skip
        assert labels <= target.union(*(metrics[m] for m in used)), name
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels, name
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name


def test_the_docs_say_what_to_do_at_each() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert re.findall(r"(?m)^## (Lowmark\w+)", page) == list(alerts())
