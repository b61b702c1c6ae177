"""A member of a group of file fronts as a process of its own, until it is told to finish.

    python -m tests.processes.group_member TARGET PIPELINE MEMBER SOURCE DIRECTORY

Says `started`, then `taken N` for each file, then `left`. Without its parent it ends as if killed.
"""

from __future__ import annotations

import sys

from fronts.groups import FileGroup
from tests.cluster.told import told_to_finish

PAUSE_S = 0.01
WAIT_S = 60.0


def main(target: str, pipeline: str, member: str, source: str, directory: str) -> None:
    finish = told_to_finish()
    group = FileGroup(
        target, pipeline, "shop", "in", source, directory, member=member,
        poll_interval_ms=20, anyone_after_ms=600_000, heartbeat_interval_ms=10,
    ).start(WAIT_S)  # fmt: skip
    print("started", flush=True)
    said = 0
    while not finish.wait(PAUSE_S):
        if group.taken != said:
            said = group.taken
            print(f"taken {said}", flush=True)
    group.close()
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
