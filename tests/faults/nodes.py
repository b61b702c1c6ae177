"""The nodes of a run, each a process with a durable record of its own: the items' own account.

    python -m tests.faults.nodes front TARGET NAME DIRECTORY
    python -m tests.faults.nodes query TARGET NAME DIRECTORY FROM TO   (batches, committed by number)
    python -m tests.faults.nodes staging TARGET NAME DIRECTORY FROM TO (contributions staged before)
    python -m tests.faults.nodes worker SOCKET NAME DIRECTORY FROM     (steps for an eager local tracker)

A step is written down before it is committed, in one write: what is in the record has happened, what
is not has not, wherever the process is killed. Started again, a node commits anew what it does not
know to be durable. A node ends when those that it reads from have, and all of theirs is done.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from local_tracker.worker.handle import Handle
from tests.cluster.children import now_slot
from tests.cluster.told import end_with_parent
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import (
    Batch,
    Cells,
    Heartbeat,
    PipelineSpec,
    StagedContribution,
    TickContent,
)
from tracker.core.model import Edge as E
from tracker.core.model.ack_values import unit_value

SEGMENTS = ("in", "mid", "out")
FRONTS = ("a", "b", "c")
PIPELINE = "faults"
SCOPE = "steps"
PAUSE_VARIABLE = "LOWMARK_TESTS_PAUSE_S"
PAUSE_S = float(os.environ.get(PAUSE_VARIABLE, "0.012"))
"""Between two steps of a node."""
QUIET_PAUSE_S = 0.04
"""The same where it is enough that something is always under way."""
MAX_OPEN_STEPS = 1_000
"""Steps that a node leaves unacknowledged before it waits: a tracker that is away holds its nodes."""
ITEMS_PER_BATCH = 2_000


def spec(start_slot: int) -> PipelineSpec:
    edges = (E("in", "mid"), E("mid", "out"))
    return PipelineSpec(PIPELINE, SEGMENTS, edges, fronts=FRONTS, start_slot=start_slot)


Item = tuple[str, int, str]
"""Segment, slot, name."""


class Record:
    """A node's steps, and which of them are known to be durable."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.steps"
        self.steps: dict[int, dict[str, Any]] = {}
        self.acknowledged: set[int] = set()
        for line in read(self.path):
            if line["kind"] == "step":
                self.steps[line["batch"]] = line
            else:
                self.acknowledged.add(line["batch"])
        self.next = max(self.steps, default=-1) + 1
        self._lock = threading.Condition()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def step(self, created: list[Item], consumed: list[Item], promise: int | None = None) -> int:
        batch = self.next
        line = {
            "kind": "step", "at_ns": time.monotonic_ns(), "batch": batch,
            "created": created, "consumed": consumed, "promise": promise,
        }  # fmt: skip
        self._write(line)
        self.steps[batch] = line
        self.next = batch + 1
        return batch

    def durable(self, batch: int, node: str, number: int, handed_ns: int) -> None:
        line = {
            "kind": "durable", "at_ns": time.monotonic_ns(), "batch": batch, "node": node,
            "number": number, "handed_ns": handed_ns,
        }  # fmt: skip
        with self._lock:
            self._write(line)
            self.acknowledged.add(batch)
            self._lock.notify_all()

    def wait_for_room(self, most: int, timeout_s: float) -> bool:
        with self._lock:
            return self._lock.wait_for(
                lambda: len(self.steps) - len(self.acknowledged) <= most, timeout_s
            )

    def _write(self, line: dict[str, Any]) -> None:
        # A whole line in one write: a kill leaves it there, or not.
        os.write(self._file, (json.dumps(line, separators=(",", ":")) + "\n").encode())


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a record as far as they are whole."""
    if path.exists():
        text = path.read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            yield json.loads(line)


class Node:
    """A node that commits the steps of its record, each under its number as a batch."""

    def __init__(self, target: str, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self.record = Record(directory, name)
        self.client = NodeClient(target, PIPELINE, name)
        joined = self.client.join(HANG_S)
        self.key = f"{name}#{joined.key.incarnation}"
        last = {batch.scope: batch.id for batch in joined.last_batches}.get(SCOPE, -1)
        for batch in sorted(self.record.steps.keys() - self.record.acknowledged):
            if batch <= last:  # durable, and the answer was lost with the process before
                self.record.durable(batch, f"{name}#recovered", batch, 0)
        self.grants = {grant.front: grant for grant in joined.fronts}

    def commit_missing(self) -> None:
        for batch in sorted(self.record.steps.keys() - self.record.acknowledged):
            self.commit(batch)

    def commit(self, batch: int) -> None:
        step, handed_ns = self.record.steps[batch], time.monotonic_ns()
        promise = step["promise"]
        content = TickContent(
            created=cells(step["created"]),
            consumed=cells(step["consumed"]),
            heartbeats=(Heartbeat(self.name, promise),) if promise is not None else (),
            batch=Batch(SCOPE, batch, b"%d" % batch),
        )
        future = self.client.commit(content, HANG_S)
        future.add_done_callback(lambda done: self._done(batch, handed_ns, done))

    def _done(self, batch: int, handed_ns: int, done: Future[int]) -> None:
        error = done.exception()
        if error is not None:
            print(f"{self.key}: step {batch} failed: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        self.record.durable(batch, self.key, done.result(), handed_ns)

    def wait_for_room(self, most: int = MAX_OPEN_STEPS) -> None:
        if not self.record.wait_for_room(most, HANG_S):
            print(f"{self.key}: nothing becomes durable", file=sys.stderr, flush=True)
            os._exit(1)

    def end(self) -> None:
        self.wait_for_room(0)
        (self.directory / f"{self.name}.done").touch()
        self.client.close()


def cells(items: list[Item]) -> Cells:
    return Cells.of(
        [(SEGMENTS.index(segment), slot, unit_value(name), 1) for segment, slot, name in items]
    )


def front(target: str, name: str, directory: Path) -> None:
    node = Node(target, name, directory)
    if name not in node.grants or not node.grants[name].granted:
        grant = node.client.join_front(name, "in", HANG_S)
    else:
        grant = node.grants[name]
    node.commit_missing()
    last = max((step["promise"] for step in node.record.steps.values()), default=grant.slot)
    finish = directory / "finish"
    while not finish.exists():
        slot = last = max(now_slot(), last, grant.slot)
        number = node.record.next
        items = [("in", slot, f"{name}-{number}-{k}") for k in range(1 + number % 2)]
        node.commit(node.record.step(items, [], promise=slot))
        node.wait_for_room()
        time.sleep(PAUSE_S)  # paces: the load
    node.wait_for_room(0)
    node.client.leave_front(name).result(HANG_S)
    node.end()


class Source:
    """The items of a segment, from the records of those who create them."""

    def __init__(self, directory: Path, names: list[str], segment: str) -> None:
        self._directory, self._segment, self._names = directory, segment, names
        self._read = dict.fromkeys(names, 0)
        self._waiting: list[Item] = []

    def take(self, seen: set[str], most: int) -> list[Item]:
        """Some items that have not been seen; empty if there are none now."""
        for name in self._names:
            path = self._directory / f"{name}.steps"
            if not path.exists():
                continue
            with open(path, "rb") as file:
                file.seek(self._read[name])
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[name] += len(whole)
            for line in whole.splitlines():
                for segment, slot, item in json.loads(line).get("created", ()):
                    if segment == self._segment and item not in seen:
                        self._waiting.append((segment, slot, item))
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        seen.update(item for _, _, item in taken)
        return taken

    def ended(self) -> bool:
        return all((self._directory / f"{name}.done").exists() for name in self._names)


def batches(record: Record, source: Source) -> Iterator[list[Item]]:
    """What is to be consumed, until those who create have ended and nothing is left."""
    seen = {item for step in record.steps.values() for _, _, item in step["consumed"]}
    while True:
        ended = source.ended()
        items = source.take(seen, ITEMS_PER_BATCH)
        if items:
            yield items
        elif ended:
            return
        time.sleep(PAUSE_S)  # paces: the load


def query(
    target: str, name: str, directory: Path, creators: str, creates: str, stages: bool
) -> None:
    node = Node(target, name, directory)
    reads = SEGMENTS[SEGMENTS.index(creates) - 1]
    source = Source(directory, creators.split(","), reads)
    if stages:
        for batch in sorted(node.record.steps.keys() - node.record.acknowledged):
            stage(node, batch)
    node.commit_missing()
    for items in batches(node.record, source):
        children = [(creates, slot, f"{item}>") for _, slot, item in items]
        batch = node.record.step(children, items)
        if stages:
            stage(node, batch)
        node.commit(batch)
        node.wait_for_room()
    node.end()


def stage(node: Node, batch: int) -> None:
    """As a query's tasks do: what they did is staged, durably, and the commit counts what is there. It
    is staged under the name that the tick's batch has, so that the tick clears it away."""
    step = node.record.steps[batch]
    contribution = StagedContribution(
        SCOPE, "run", batch, 0, "operator", 0, 0, 0,
        created=cells(step["created"]), consumed=cells(step["consumed"]),
    )  # fmt: skip
    node.client.stage([contribution], timeout_s=HANG_S)
    (kept,) = node.client.list_contributions(SCOPE, batch, HANG_S)
    assert sorted(kept.consumed.rows()) == sorted(contribution.consumed.rows()), "staged otherwise"


def worker(socket: str, name: str, directory: Path, creators: str) -> None:
    """Not to be killed itself: it cannot know whether its last step was taken. The local tracker that
    it hands over to may be."""
    record = Record(directory, name)
    handle = Handle(socket, PIPELINE, HANG_S)
    for items in batches(record, Source(directory, creators.split(","), "out")):
        batch, handed_ns = record.step([], items), time.monotonic_ns()
        handle.step(Cells.empty(), cells(items), what=f"step {batch}")
        record.durable(batch, name, batch + 1, handed_ns)
    (directory / f"{name}.done").touch()


def main(kind: str, target: str, name: str, directory: str, *more: str) -> None:
    end_with_parent()
    match kind:
        case "front":
            front(target, name, Path(directory))
        case "query" | "staging":
            creators, creates = more
            query(target, name, Path(directory), creators, creates, kind == "staging")
        case "worker":
            worker(target, name, Path(directory), *more)


if __name__ == "__main__":
    main(*sys.argv[1:])
