"""Scraping metrics as Prometheus does, and having promtool check them."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from time import monotonic, sleep

from prometheus_client.parser import text_string_to_metric_families

WAIT_S = 60.0
_PAUSE_S = 0.05

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def text_of(address: str) -> str:
    """The metrics at host:port, as text."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def samples_of(text: str) -> Samples:
    """By name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def text_when(address: str, wanted: Callable[[Samples], object]) -> str:
    """The metrics at host:port, once somebody tells them there and they are as wanted."""
    deadline = monotonic() + WAIT_S
    while True:
        try:
            text = text_of(address)
        except OSError:
            text = ""
        if wanted(samples_of(text)):
            return text
        assert monotonic() < deadline, f"not in {WAIT_S} s; last: {text}"
        sleep(_PAUSE_S)


def promtool_finds(text: str) -> str:
    """What `promtool check metrics` says against them: nothing, if all is well."""
    checked = subprocess.run(
        [os.environ.get("PROMTOOL", "promtool"), "check", "metrics"],
        check=False, input=text, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    return checked.stdout + checked.stderr + ("" if checked.returncode == 0 else "failed\n")
