"""A worker: python -m examples.shortest_paths.worker TARGET DIRECTORY NUMBER WORKERS [--early]

It has the vertices whose number leaves NUMBER when divided by WORKERS. What it knows after each of its steps is
durable before the step's tick: killed anywhere, it does the step again, with the same outcome, or finds it done.
"""

from __future__ import annotations

import os
import sys
import time as clock
from pathlib import Path

import numpy as np

from examples.shortest_paths.graph import UNREACHED, Graph, Numbers
from examples.shortest_paths.pipeline import (
    NAME,
    ROUNDS,
    SEGMENT,
    Mail,
    read,
    slot_of_message,
    value,
)
from lowmark import FOREVER, Subscriber
from lowmark.nodes import Batch, Cells, NodeClient, RoundsExceededError, TickContent
from lowmark.periods import write_durably

LOOK_S = 0.05
LOOK_EARLY_S = 0.002


class Worker:
    """Takes its messages, a step for each (time, round)."""

    def __init__(self, target: str, root: Path, number: int, workers: int) -> None:
        self.number, self._mail = number, Mail(root, workers)
        self._graph = Graph.load(root / "graph.npz")
        self._states = root / "states" / str(number)
        self._states.mkdir(parents=True, exist_ok=True)
        self._subscriber = Subscriber(target, NAME)
        self._node = NodeClient(target, NAME, f"worker-{number}")
        batches = self._node.join().last_batches
        self._done = {int(batch.scope): batch.id for batch in batches}
        """By time the last round whose tick is durable."""
        self._known = {time: self._load(time, last) for time, last in self._done.items()}
        """By time the distances of its vertices, by the vertex's place among them, after the last step."""

    def _path(self, time: int, number: int) -> Path:
        return self._states / f"{time}-{number}"

    def _load(self, time: int, number: int) -> Numbers:
        return np.frombuffer(self._path(time, number).read_bytes(), "<i8").copy()

    def distances(self, time: int) -> Numbers:
        """What is known, to be changed."""
        mine = -(-(self._graph.vertices - self.number) // self._mail.workers)
        return self._known.setdefault(time, np.full(mine, UNREACHED, np.int64))

    def run(self) -> None:
        """Until all that there will ever be is complete."""
        reached = self._subscriber.min_time(SEGMENT)
        while reached < FOREVER:
            for message in self._mail.arrived(self.number):
                time, number = ROUNDS.split(slot_of_message(message))
                if number == 0:  # before the first round of a time there is none to wait for
                    self.step(time, 0)
            # The barrier: everything below (time, round) is over, so all that was sent to it is here. Where a
            # search has ended, min time is at the next one, without counting the rounds that it did not need.
            self.step(*ROUNDS.split(reached))
            self._subscriber.wait_until(reached + 1, SEGMENT, LOOK_S)
            reached = self._subscriber.min_time(SEGMENT)

    def step(self, time: int, number: int) -> None:
        """Takes what was sent for a round, once."""
        slot = ROUNDS.slot(time, number)
        messages = self._mail.arrived(self.number, slot)
        if messages and number > self._done.get(time, -1):
            sent = self.advance(time, number, read(messages), str(self.number))
            write_durably(self._path(time, number), self.distances(time).astype("<i8").tobytes())
            self.commit(messages, sent, Batch(str(time), number, b""))
            self._path(time, self._done.get(time, -1)).unlink(missing_ok=True)
            self._done[time] = number
        for message in messages:
            message.unlink()

    def advance(self, time: int, number: int, heard: Numbers, sender: str) -> list[Path]:
        """Sets the distance of what is heard of first, and sends its neighbours on; returns the messages."""
        known, places = self.distances(time), heard // self._mail.workers
        fresh = known[places] == UNREACHED
        known[places[fresh]] = number
        following = self._graph.neighbours(heard[fresh])
        if not len(following):
            return []
        after = ROUNDS.next_round(ROUNDS.slot(time, number))
        return self._mail.send(after, sender, following)

    def commit(self, taken: list[Path], sent: list[Path], batch: Batch | None) -> None:
        """One tick: what the step took, and what it sent."""
        created = Cells.of((0, slot_of_message(path), value(path), 1) for path in sent)
        consumed = Cells.of((0, slot_of_message(path), value(path), 1) for path in taken)
        self._node.commit(TickContent(created=created, consumed=consumed, batch=batch)).result()

    def run_early(self) -> None:
        """The sabotage: it takes what has arrived of a round, and waits for none to be over."""
        steps = 0
        while self._subscriber.min_time(SEGMENT) < FOREVER:
            arrived = self._mail.arrived(self.number)
            for slot in sorted({slot_of_message(message) for message in arrived}):
                messages = [message for message in arrived if slot_of_message(message) == slot]
                time, number = ROUNDS.split(slot)
                steps += 1
                try:
                    sent = self.advance(time, number, read(messages), f"{self.number}.{steps}")
                except RoundsExceededError:  # by detours that no search with rounds takes
                    sent = []
                write_durably(self._path(time, 0), self.distances(time).astype("<i8").tobytes())
                self.commit(messages, sent, None)
                for message in messages:
                    message.unlink()
            clock.sleep(LOOK_EARLY_S)


def main(target: str, directory: str, number: str, workers: str, *early: str) -> None:
    worker = Worker(target, Path(directory), int(number), int(workers))
    worker.run_early() if early else worker.run()
    # Nothing is left to be said.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
