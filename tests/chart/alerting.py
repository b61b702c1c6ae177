"""The alert rules, checked by promtool: as rules, and by tests that make each of them fire."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import CHART
from tests.waits import HANG_S

RULES_FILE = CHART / "files" / "alerts.yaml"
ALERT_TESTS = Path(__file__).parent / "alerts" / "alerts_test.yaml"


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts, by name."""
    groups = yaml.safe_load(RULES_FILE.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def promtool(*words: str) -> str:
    """What promtool says if it is not content; else nothing."""
    done = subprocess.run(
        [os.environ.get("PROMTOOL", "promtool"), *words],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


def check_rules() -> list[str]:
    said = [
        promtool("check", "rules", str(RULES_FILE)),
        promtool("test", "rules", str(ALERT_TESTS)),
    ]
    return [text for text in said if text]


def shown_to_fire() -> set[str]:
    """Alerts of which a test expects that they fire."""
    return {
        test["alertname"]
        for case in yaml.safe_load(ALERT_TESTS.read_text())["tests"]
        for test in case.get("alert_rule_test", [])
        if test["exp_alerts"]
    }
