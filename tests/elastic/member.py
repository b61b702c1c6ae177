"""A member of a group of file fronts, as a process of its own that writes down its ticks.

    python -m tests.elastic.member TARGET MEMBER SOURCE DIRECTORY HISTORY

Says `started`, and after a line `finish`, `left`. It may be killed at any moment: each line that it
writes down is out before it goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.history import Recorder
from fronts.groups import FileGroup
from tests.cluster.told import told_to_finish
from tests.spark_matrix.recording import recording

PIPELINE, GROUP = "shared", "group"
WAIT_S = 120.0
POLL_MS, ANYONE_AFTER_MS, HEARTBEAT_MS = 30, 3_000, 25


def main(target: str, member: str, source: str, directory: str, history: str) -> None:
    finish = told_to_finish()
    recorder = Recorder(Path(history))
    with recording(lambda pipeline: recorder):
        group = FileGroup(
            target, PIPELINE, GROUP, "in", source, directory, member=member,
            poll_interval_ms=POLL_MS, anyone_after_ms=ANYONE_AFTER_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        ).start(WAIT_S)  # fmt: skip
        print("started", flush=True)
        finish.wait()
        group.close()
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
