"""The sink: python -m examples.ordered.sink TARGET DIRECTORY

Three durable records make it exact: the list of files in the order in which they were taken (the number of a
file in it is its batch at the tracker), the buffer, and the output, whose last line says its position.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.ordered.pipeline import NAME, SEGMENT
from lowmark import Subscriber
from lowmark.barrier import Released, ReorderBuffer
from lowmark.nodes import Batch, Cells, NodeClient, TickContent, slot_in_name, unit_name, unit_value
from lowmark.periods import write_durably

LOOK_S = 0.02


class Output:
    """The ordered file: one JSON line an item. What was given out again is written once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.next = len(_whole_lines(path))

    def write(self, items: Sequence[Released]) -> None:
        with open(self._path, "a") as file:
            for item in items:
                if item.position >= self.next:
                    row = {
                        "position": item.position, "slot": item.slot, "row": item.payload.decode(),
                    }  # fmt: skip
                    file.write(json.dumps(row) + "\n")
                    self.next = item.position + 1
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[str]:
    """A record's lines; one that was cut off when its writer was killed is taken out of it."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    write_durably(path, "".join(whole).encode())
    return [line.strip() for line in whole]


def take(node: NodeClient, buffer: ReorderBuffer, number: int, path: Path) -> None:
    """Into the buffer first, then out of the segment: so that it is nowhere for no moment."""
    unit = unit_name(str(path))
    slot = slot_in_name(unit)
    assert slot is not None
    buffer.add([(slot, path.name, path.read_bytes().strip())])
    node.commit(
        TickContent(
            consumed=Cells.of([(0, slot, unit_value(unit), 1)]),
            batch=Batch("files", number, path.name.encode()),
        )
    ).result()


def main(target: str, directory: str) -> None:
    """Runs until it is killed."""
    root = Path(directory)
    node = NodeClient(target, NAME, "sink")
    last = next((b.id for b in node.join().last_batches if b.scope == "files"), -1)
    taken = _whole_lines(root / "taken")
    output = Output(root / "out.jsonl")
    with (
        ReorderBuffer(root / "buffer.db") as buffer,
        Subscriber(target, NAME) as subscriber,
        open(root / "taken", "a") as record,
    ):
        for number, name in enumerate(taken):
            if number > last:
                take(node, buffer, number, root / "in" / name)
        while True:
            for path in sorted((root / "in").glob("*.json")):
                if path.name not in taken:
                    record.write(f"{path.name}\n")
                    record.flush()
                    os.fsync(record.fileno())
                    taken.append(path.name)
                    take(node, buffer, len(taken) - 1, path)
            buffer.release(subscriber.min_time(SEGMENT), output.write)
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
