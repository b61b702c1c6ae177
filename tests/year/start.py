"""`python -m tests.year.start CONSTANTS FILE...`: how long the processes of these stores take to recover, as a JSON line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.growth import resident_bytes
from tests.year.smaller import applied
from tests.year.world import MOMENT_NS, Stored, config


def main(arguments: list[str]) -> None:
    before_bytes, began = resident_bytes(), time.process_time()
    paths = [Path(each) for each in arguments[1:]]
    with applied(json.loads(arguments[0])):
        back = [
            Stored(path, shard).recovered(config(), len(paths), MOMENT_NS)
            for shard, path in enumerate(paths)
        ]
    found = {
        "start_s": round(time.process_time() - began, 3),
        "start_records": sum(each.records for each in back),
        "start_bytes": resident_bytes() - before_bytes,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
