"""A program that has calls to a tracker under way may start others by a fork, as PySpark starts its JVM."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waits import PROGRAM_S

PROGRAM = """
import subprocess, threading
import tracker
from tracker.client import Subscriber
from tracker.core.model import PipelineSpec

with tracker.embedded() as running:
    running.register(PipelineSpec("p", ("s",), (), open=True))
    over = threading.Event()

    def ask():
        with running.admin() as admin:
            while not over.is_set():
                admin.pipeline("p")

    with Subscriber(running.target, "p"):
        asking = [threading.Thread(target=ask) for _ in range(12)]
        for each in asking:
            each.start()
        try:
            ended = [subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(200)]
        finally:
            over.set()
            for each in asking:
                each.join()
print(sum(status != 0 for status in ended))
"""


def test_a_program_is_started_by_a_fork_while_calls_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )  # fmt: skip
    assert ran.stdout == "0\n", ran.stderr
