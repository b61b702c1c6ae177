"""Scraping metrics as Prometheus does, and having promtool check them."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from tests.waits import HANG_S, until

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def text_of(address: str) -> str:
    """The metrics at host:port, as text."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=HANG_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def samples_of(text: str) -> Samples:
    """By name and labels, but for `group`, which all samples of a tracker have."""
    return {
        (sample.name, frozenset(sample.labels.items() - {("group", "0")})): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def text_when(address: str, wanted: Callable[[Samples], object]) -> str:
    """The metrics at host:port, once somebody tells them there and they are as wanted."""
    text = ""

    def as_wanted() -> bool:
        nonlocal text
        with suppress(OSError):
            text = text_of(address)
        return bool(wanted(samples_of(text)))

    until(as_wanted, lambda: f"the last metrics: {text}")
    return text


def promtool_finds(text: str) -> str:
    """What `promtool check metrics` says against them: nothing, if all is well."""
    checked = subprocess.run(
        [os.environ.get("PROMTOOL", "promtool"), "check", "metrics"],
        check=False, input=text, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    return checked.stdout + checked.stderr + ("" if checked.returncode == 0 else "failed\n")
