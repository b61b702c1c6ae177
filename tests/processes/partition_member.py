"""A member of a group that shares partitions, as a process of its own, until it is told to finish.

    python -m tests.processes.partition_member TARGET PIPELINE MEMBER JOURNALS ENDS

ENDS is a file, `{partition: end}` as JSON, that is replaced as a whole. Says `started`, then the list of
partitions whenever those that it holds are others, then `left`. Without its parent it ends as if killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fronts.front import FrontOptions
from fronts.groups import PartitionGroup
from tests.cluster.told import told_to_finish

PAUSE_S = 0.01  # paces: its records


def main(target: str, pipeline: str, member: str, journals: str, ends_file: str) -> None:
    finish = told_to_finish()

    def told() -> dict[str, int]:
        return dict(json.loads(Path(ends_file).read_text()))

    def ends(partitions: Sequence[str]) -> Mapping[str, int]:
        known = told()
        return {partition: known[partition] for partition in partitions if partition in known}

    group = PartitionGroup(
        target,
        pipeline,
        "topic",
        "in",
        journals,
        partitions=told,
        ends=ends,
        options=FrontOptions(member=member, poll_interval_ms=20, heartbeat_interval_ms=20),
    ).start()
    print("started", flush=True)
    held: list[str] = []
    while not finish.wait(PAUSE_S):
        if group.held != held:
            held = group.held
            print(json.dumps(held), flush=True)
    group.close()
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
