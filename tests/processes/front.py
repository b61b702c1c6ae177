"""A front as a process of its own: publishes a file every few milliseconds until it is told to finish.

    python -m tests.processes.front TARGET PIPELINE NAME DIRECTORY

Says `started` and `left` on standard output. Without its parent it ends as if it had been killed.
"""

from __future__ import annotations

import sys

from fronts.files import FileFront
from fronts.front import FrontOptions
from tests.cluster.told import told_to_finish
from tests.waits import HANG_S

PAUSE_S = 0.015  # paces: its files


def main(target: str, pipeline: str, name: str, directory: str) -> None:
    finish = told_to_finish()
    front = FileFront(
        target,
        pipeline,
        name,
        "in",
        directory,
        format="json",
        options=FrontOptions(heartbeat_interval_ms=10),
    ).start(HANG_S)
    print("started", flush=True)
    number = len(front.published())
    while not finish.wait(PAUSE_S):
        front.write([{"front": name, "number": number}])
        number += 1
    front.leave()
    print("left", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
