"""The run of the rescaling reference: a word count of 100 lines a second, of 100 words each, by two
processes of two workers; twice, another process of two workers joins, and a shard of the tracker with it.

The latency of a line is the time from its label until a subscriber has heard that all before the next slot
is done: it and all its words.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from examples.history import Recorder, read
from examples.latency import percentile
from examples.word_count.text import lines, words
from tests.check.judging import judge
from tests.cluster.children import Running, discard, now_slot
from tests.cluster.steps import Steps
from tests.elastic.counting import PIPELINE, address, send, workers
from tests.elastic.fleet import Fleet
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Edge, PipelineSpec

LINES_PER_S, WORDS_PER_LINE = 100, 100
SHARDS, PROCESSES, WORKERS, ADDITIONS = 2, 2, 2, 2
PAUSE_S = 8.0


class Feeder(threading.Thread):
    """The one front, which samples lines and hands them to the workers in turn."""

    def __init__(self, target: str, directory: Path) -> None:
        super().__init__(name="front")
        self.labelled: list[tuple[int, int]] = []
        """(slot, moment) of each line."""
        self.sent: Counter[str] = Counter()
        self.finish = threading.Event()
        self._directory = directory
        self.steps = Steps(directory / "parts" / "front.jsonl")
        text = [word for line in lines() for word in words(line)]
        self._lines = [
            text[first : first + WORDS_PER_LINE]
            for first in range(0, len(text) - WORDS_PER_LINE, WORDS_PER_LINE)
        ]
        self._node = NodeClient(target, PIPELINE, "front", kind="front")
        self._node.join(HANG_S)
        self._slot = self._node.join_front("front", "lines", HANG_S).slot

    def run(self) -> None:
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        number, due_s = 0, time.monotonic()
        while not self.finish.is_set():
            self._slot = max(now_slot(), self._slot)
            item, line = ("lines", self._slot, f"l{number}"), self._lines[number % len(self._lines)]
            everyone = workers(self._directory)
            at_ns = time.monotonic_ns()
            send(sender, address(self._directory, everyone[number % len(everyone)]), item, line)
            self.steps.commit(self._node, [item], [], ("front", self._slot))
            self.labelled.append((self._slot, at_ns))
            self.sent.update(line)
            number += 1
            due_s = max(due_s + 1 / LINES_PER_S, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))  # paces: the load
        self.steps.leave_front(self._node, "front")
        self._node.leave(HANG_S)
        self.steps.close()
        sender.close()


def find(root: Path) -> dict[str, Any]:
    directory = root / "original"
    shutil.rmtree(directory, ignore_errors=True)
    parts = directory / "parts"
    parts.mkdir(parents=True)
    edges = (Edge("lines", "words"),)
    registered = PipelineSpec(
        PIPELINE, ("lines", "words"), edges, fronts=("front",), start_slot=now_slot()
    )
    recorder = Recorder(parts / "run.jsonl")
    recorder.header(registered, {"front": "lines"})
    processes: list[Running] = []
    with Fleet(directory / "tracker", SHARDS) as fleet:
        fleet.register(registered)
        listener = fleet.listening(parts, PIPELINE)
        try:
            for _ in range(PROCESSES):
                _add(processes, fleet, directory)
            feeder = Feeder(fleet.target, directory)
            began_ns, marks = time.monotonic_ns(), []
            feeder.start()
            for addition in range(ADDITIONS):
                time.sleep(PAUSE_S)  # paces: the load
                marks.append(((time.monotonic_ns() - began_ns) / 1e9, f"addition {addition + 1}"))
                fleet.join()
                fleet.changed(SHARDS + addition + 1)
                _add(processes, fleet, directory)
                marks.append(((time.monotonic_ns() - began_ns) / 1e9, "done"))
            time.sleep(PAUSE_S)  # paces: the load
            feeder.finish.set()
            feeder.join()
            listener.ends_well(HANG_S)  # all is done
            counts = _counts(processes)
        finally:
            discard(processes)
        assert counts == feeder.sent, "words were lost, or counted twice"
        history = fleet.completed(recorder, registered)
    judged = judge(history)
    assert judged.ok, judged.said
    heard = [line for line in read(history) if line["kind"] == "heard"]
    return {
        "lines": _by_second(feeder.labelled, heard, began_ns), "marks": marks,
        "words": counts.total(), "judged": judged.said[-1],
    }  # fmt: skip


def _add(processes: list[Running], fleet: Fleet, directory: Path) -> None:
    """One more process of workers, which take part from then on."""
    first = len(processes) * WORKERS
    process = Running(
        "tests.elastic.counting", fleet.target, str(directory), str(first), str(WORKERS),
        errors=directory / f"workers-{first}.log",
    )  # fmt: skip
    processes.append(process)
    process.start()
    process.until_says("started")
    everyone = " ".join(map(str, range(first + WORKERS)))
    (directory / "workers.new").write_text(everyone)
    (directory / "workers.new").rename(directory / "workers")


def _counts(processes: list[Running]) -> Counter[str]:
    """Ends the workers, for which nothing is on its way any more; returns what they have counted."""
    counts: Counter[str] = Counter()
    for process in processes:
        process.tell("finish")
    for process in processes:
        process.ends_well()
        counts.update(json.loads(process.lines[-1][1]))
    return counts


def _by_second(
    labelled: list[tuple[int, int]], heard: list[dict[str, Any]], began_ns: int
) -> dict[str, list[tuple[float, float]]]:
    """Percentiles of the lines of each second."""
    said = sorted((line["at_ns"], line["min_time"]) for line in heard if line["segment"] is None)
    min_times = [min_time for _, min_time in said]
    seconds: dict[int, list[float]] = defaultdict(list)
    for slot, at_ns in labelled:
        known_ns = said[bisect_left(min_times, slot + 1)][0]
        seconds[(at_ns - began_ns) // 10**9].append((known_ns - at_ns) / 1e6)
    return {
        f"p{percent}": [
            (float(s), percentile(found, percent)) for s, found in sorted(seconds.items())
        ]
        for percent in (50, 99)
    }
