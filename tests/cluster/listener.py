"""A subscriber as a process of its own: says all that it hears, until the pipeline is complete.

    python -m tests.cluster.listener TARGET PIPELINE

One JSON line an update: segment (null: the whole pipeline), min_time, and the moment at which it was
heard (at_ns, of CLOCK_MONOTONIC, which all processes of one machine share).
"""

from __future__ import annotations

import json
import sys
import time

from tracker.client import Subscriber


def main(target: str, pipeline: str) -> None:
    with Subscriber(target, pipeline) as subscriber:
        for update in subscriber.updates():
            heard = {
                "at_ns": time.monotonic_ns(),
                "segment": update.segment,
                "min_time": update.min_time,
            }
            print(json.dumps(heard), flush=True)
            if update.segment is None and update.complete:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
