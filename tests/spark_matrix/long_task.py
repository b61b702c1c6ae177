"""A worker that is not Spark's: takes files of rows, one step each, eagerly.

    python -m tests.spark_matrix.long_task INPUT DONE SEGMENT

For each file there is: reads it, acknowledges it as consumed by one step, and when the step is durable
notes its name in DONE and says it. What is noted is not done again. It ends when it is told to finish.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from local_tracker import acks
from tests.cluster.told import told_to_finish
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import slot_in_name, unit_name

POLL_S = 0.02


def main(directory: Path, done: Path, segment: str) -> None:
    finish = told_to_finish()
    known = set(done.read_text().splitlines()) if done.exists() else set()
    with open(done, "a", encoding="utf-8") as notes:
        while True:
            last = finish.is_set()  # what is there by then is all there is
            for path in sorted(directory.glob("s*")):
                if path.name in known:
                    continue
                slot = slot_in_name(path.name)
                assert slot is not None
                begun_ns = time.monotonic_ns()
                with acks.step("take"):
                    acks.consume(segment, slot, unit_value(unit_name(str(path))))
                notes.write(path.name + "\n")
                notes.flush()
                known.add(path.name)
                print(f"{begun_ns} {path.name}", flush=True)
            if last:
                return
            time.sleep(POLL_S)  # paces: its looks for files


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
