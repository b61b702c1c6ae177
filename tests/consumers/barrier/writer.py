"""A process that writes into a sink until it is killed: python -m tests.consumers.barrier.writer KIND WHERE

It says the position that it found, and then each that it has written.
"""

from __future__ import annotations

import json
import sys

from tests.consumers.barrier.conformance import BARRIER, BUFFER, batch
from tests.consumers.barrier.places import SINKS


def main(kind: str, where: str) -> None:
    sink = SINKS[kind](json.loads(where))
    held = sink.open(BARRIER, BUFFER)
    at = 0 if held is None else held.next
    print(at, flush=True)
    while True:
        rows, position = batch(at)
        sink.write(rows, position)
        at = position.next
        print(at, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
