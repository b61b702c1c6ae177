"""A plain Python node: takes the malformed rows, writes them to a ledger, and commits them as done.

    python -m examples.flights.dead_letters TARGET ROOT

Runs until SIGTERM. The ledger is its own durable record: what is in it and not yet committed, because
the node was killed in between, is committed first when it starts again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np

from examples.children import tell
from examples.flights.letters import Letter, letter_values, read_letters
from examples.flights.pipeline import NAME, Places
from examples.history import Recorder, recording_ticks
from lowmark.nodes import Batch, Cells, NodeClient, TickContent

SCAN_INTERVAL_S = 0.1
COMMIT_TIMEOUT_S = 60.0
SEGMENT = "dead_letters"


class DeadLetterNode:
    """Takes each file of letters once, in the order in which it finds them."""

    def __init__(self, node: NodeClient, places: Places, recorder: Recorder) -> None:
        self._node, self._places, self._recorder = node, places, recorder
        self._segment = node.segment(SEGMENT)
        self._ledger = open(places.dead_letters, "a+", encoding="utf-8")  # noqa: SIM115 - kept open
        self._ledger.seek(0)
        self._done = [json.loads(line)["file"] for line in self._ledger]

    def commit_rest(self, last_durable: int) -> None:
        """Commits what the ledger has beyond the last batch that the tracker has."""
        for batch, name in enumerate(self._done):
            if batch > last_durable:
                self._commit(batch, name, read_letters(self._places.malformed / name))

    def take_new(self) -> None:
        """Writes all files that are new to the ledger, and commits each."""
        known = set(self._done)
        for path in sorted(self._places.malformed.glob("*.jsonl")):
            if path.name not in known:
                letters = read_letters(path)
                rows = [letter.row for letter in letters]
                self._ledger.write(json.dumps({"file": path.name, "rows": rows}) + "\n")
                self._ledger.flush()
                os.fsync(self._ledger.fileno())
                self._done.append(path.name)
                self._commit(len(self._done) - 1, path.name, letters)

    def _commit(self, batch: int, name: str, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._recorder.created(SEGMENT, letter.slot, f"row {letter.row}")
            self._recorder.consumed(SEGMENT, f"row {letter.row}")
        fingerprint = blake2b(name.encode(), digest_size=16).digest()
        content = TickContent(
            consumed=letter_cells(self._segment, letters),
            batch=Batch("ledger", batch, fingerprint),
        )
        self._node.commit(content).result(COMMIT_TIMEOUT_S)


def letter_cells(segment: int, letters: Sequence[Letter]) -> Cells:
    """A cell for each letter."""
    count = len(letters)
    return Cells(
        np.full(count, segment, np.int32),
        np.array([letter.slot for letter in letters], np.int64),
        letter_values([letter.row for letter in letters]),
        np.ones(count, np.int64),
    )


def main(target: str, root: str) -> int:
    """Runs the node until SIGTERM."""
    # A handler may put into this queue, whatever this thread does just then; it may not set a threading.Event.
    told: SimpleQueue[int] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, _: told.put(number))
    places = Places(Path(root))
    recorder = Recorder(places.histories / "dead-letters.jsonl")
    node = NodeClient(target, NAME, SEGMENT)
    with recording_ticks(recorder):
        joined = node.join()
        dead_letters = DeadLetterNode(node, places, recorder)
        dead_letters.commit_rest(max((batch.id for batch in joined.last_batches), default=-1))
        tell("ready")
        while True:
            dead_letters.take_new()
            with suppress(Empty):
                told.get(timeout=SCAN_INTERVAL_S)
                break
        dead_letters.take_new()
    node.close()
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
