"""A program that has calls to a tracker under way may start others by a fork, as PySpark starts its JVM; and what such
a process closes of the first one's clients, say by the end of a `with` block, goes on there."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.waits import PROGRAM_S

if TYPE_CHECKING:
    from tracker import EmbeddedTracker

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

CLOSING = """
import os, sys, threading
from tests.client.support import promise
from tests.waits import HANG_S, until
from tracker.client import NodeClient, Subscriber

target, closed = sys.argv[1:]
node, subscriber, heard = NodeClient(target, "two", "n"), Subscriber(target, "two"), []

def hear():
    for update in subscriber.updates():
        heard.append(update.min_time)

node.join()
node.join_front("front", "first")
node.commit(promise(10**12)).result(HANG_S)
threading.Thread(target=hear, daemon=True).start()
until(lambda: 10**12 in heard)

if (child := os.fork()) == 0:
    {"node": node, "subscriber": subscriber}[closed].close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0

node.commit(promise(10**12 + 1)).result(HANG_S)
until(lambda: 10**12 + 1 in heard)
node.close()
subscriber.close()
print("goes on")
"""


def test_a_program_is_started_by_a_fork_while_calls_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )  # fmt: skip
    assert ran.stdout == "0\n", ran.stderr


@pytest.mark.parametrize("closed", ["node", "subscriber"])
def test_what_a_forked_process_closes_goes_on_in_the_one_before(
    running: EmbeddedTracker, closed: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CLOSING, running.target, closed],
        capture_output=True, text=True, timeout=PROGRAM_S, check=False,
    )  # fmt: skip
    assert ran.stdout == "goes on\n", ran.stderr[-2000:]
