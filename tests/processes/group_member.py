"""A member of a group of file fronts as a process of its own, until it is told to finish.

    python -m tests.processes.group_member TARGET PIPELINE MEMBER SOURCE DIRECTORY ANYONE_AFTER_MS [HISTORY]

Says `started`, then `left`, and writes down its ticks where a history is named; it may be killed at any
moment: each line that it writes down is out before it goes on. Without its parent it ends as if killed.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from examples.history import Recorder
from fronts.front import FrontOptions
from fronts.groups import FileGroup
from tests.cluster.told import told_to_finish
from tests.spark_matrix.recording import recording
from tests.waits import HANG_S

GROUP = "shop"


def main(
    target: str,
    pipeline: str,
    member: str,
    source: str,
    directory: str,
    anyone_after_ms: str,
    history: str = "",
) -> None:
    finish = told_to_finish()
    with ExitStack() as stack:
        if history:
            recorder = Recorder(Path(history))
            stack.enter_context(recording(lambda _: recorder))
        group = FileGroup(
            target,
            pipeline,
            GROUP,
            "in",
            source,
            directory,
            options=FrontOptions(
                member=member,
                poll_interval_ms=20,
                anyone_after_ms=int(anyone_after_ms),
                heartbeat_interval_ms=10,
            ),
        ).start(HANG_S)
        print("started", flush=True)
        finish.wait()
        group.close()
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
