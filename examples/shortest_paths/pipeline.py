"""The pipeline: one segment, whose items go round; and where messages are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from examples.shortest_paths.graph import Numbers
from lowmark import load_pipeline
from lowmark.nodes import unit_name, unit_value
from lowmark.periods import write_durably

NAME, SEGMENT, FRONT = "paths", "search", "requests"
SPEC = load_pipeline("""
name: paths
segments: [search]
edges:
  - search -> search + 1 round
fronts: [requests]
time: number
slack: 128ns
rounds: 128
""")
ROUNDS = SPEC.times


class Mail:
    """Messages: files of vertex numbers, each to one worker, for one (time, round). A message is an item, by its
    name; written again, it says the same."""

    def __init__(self, root: Path, workers: int) -> None:
        self._root, self.workers = root, workers
        for worker in range(workers):
            self._inbox(worker).mkdir(parents=True, exist_ok=True)

    def _inbox(self, worker: int) -> Path:
        return self._root / "messages" / str(worker)

    def send(self, slot: int, sender: str, vertices: Numbers) -> list[Path]:
        """A message to each worker that has any of the vertices; durable on return."""
        sent = []
        for worker in range(self.workers):
            mine = vertices[vertices % self.workers == worker]
            if len(mine):
                path = self._inbox(worker) / f"{slot}-{sender}"
                write_durably(path, mine.astype("<i8").tobytes())
                sent.append(path)
        return sent

    def arrived(self, worker: int, slot: int | None = None) -> list[Path]:
        """What a worker was sent for a slot, or (None) for any, and has not put away."""
        pattern = "[0-9]*-*" if slot is None else f"{slot}-*"
        return sorted(self._inbox(worker).glob(pattern))


def read(messages: Iterable[Path]) -> Numbers:
    """All vertices of some messages, each once."""
    parts = [np.frombuffer(path.read_bytes(), "<i8") for path in messages]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def slot_of_message(path: Path) -> int:
    return int(path.name.split("-")[0])


def value(path: Path) -> int:
    """The ack value of a message."""
    return unit_value(unit_name(str(path)))
