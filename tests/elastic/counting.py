"""Workers of the word count by hand, some in one process: lines in, words exchanged, words counted.

    python -m tests.elastic.counting TARGET DIRECTORY FIRST COUNT

Each worker has a socket in DIRECTORY. A line goes to one of them, which sends its words to those that
count them, by hash over the workers that DIRECTORY/workers names at that moment; all of a line's words
for one worker are one item. Says `started`; a line `finish` lets all that is there be done, and then says
the counts, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.cluster.steps import Item, Steps
from tests.cluster.told import told_to_finish
from tests.waits import HANG_S
from tracker.client import NodeClient

PIPELINE = "original"
FLUSH_S = 0.005
"""What has come in such a time is one step."""
BYTES = 1 << 20


def workers(directory: Path) -> list[int]:
    """Those that take part now."""
    return list(map(int, (directory / "workers").read_text().split()))


def address(directory: Path, worker: int) -> str:
    return str(directory / f"{worker}.sock")


class Worker(threading.Thread):
    """One worker: a node of the pipeline."""

    def __init__(self, target: str, directory: Path, number: int, steps: Steps) -> None:
        super().__init__(name=f"worker-{number}")
        self.counts: Counter[str] = Counter()
        self.finish = threading.Event()
        self._directory, self._steps = directory, steps
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BYTES)
        self._socket.bind(address(directory, number))
        self._node = NodeClient(target, PIPELINE, self.name)
        self._node.join(HANG_S)

    def run(self) -> None:
        while True:
            taken = self._take()
            if taken:
                self._work(taken)
            elif self.finish.is_set():
                break
        self._node.leave(HANG_S)
        self._socket.close()

    def _take(self) -> list[dict[str, Any]]:
        """All that has come, after a short while."""
        time.sleep(FLUSH_S)  # paces: the load
        taken = []
        while True:
            try:
                taken.append(json.loads(self._socket.recv(BYTES, socket.MSG_DONTWAIT)))
            except BlockingIOError:
                return taken

    def _work(self, taken: list[dict[str, Any]]) -> None:
        """One step: lines become words on their way, words are counted. What is sent is sent before the
        step is committed, as a front's items are; so min time never overtakes it."""
        created: list[Item] = []
        consumed: list[Item] = []
        everyone = workers(self._directory)
        for message in taken:
            segment, slot, name, words = (message[k] for k in ("segment", "slot", "name", "words"))
            consumed.append((segment, slot, name))
            if segment == "words":
                self.counts.update(words)
                continue
            parts: dict[int, list[str]] = defaultdict(list)
            for word in words:
                parts[everyone[crc32(word.encode()) % len(everyone)]].append(word)
            for worker, part in parts.items():
                item: Item = ("words", slot, f"{name}>{worker}")
                created.append(item)
                send(self._socket, address(self._directory, worker), item, part)
        self._steps.commit(self._node, created, consumed)


def send(sender: socket.socket, to: str, item: Item, words: list[str]) -> None:
    segment, slot, name = item
    message = {"segment": segment, "slot": slot, "name": name, "words": words}
    sender.sendto(json.dumps(message).encode(), to)


def main(target: str, directory: str, first: str, count: str) -> int:
    path, finish = Path(directory), told_to_finish()
    steps = Steps(path / "parts" / f"workers-{first}.jsonl")
    numbers = range(int(first), int(first) + int(count))
    all_workers = [Worker(target, path, number, steps) for number in numbers]
    for worker in all_workers:
        worker.start()
    print("started", flush=True)
    finish.wait()
    for worker in all_workers:
        worker.finish.set()
    for worker in all_workers:
        worker.join()
    steps.close()
    for failure in steps.failures:
        print(failure, file=sys.stderr)
    print(json.dumps(sum((worker.counts for worker in all_workers), Counter())), flush=True)
    return 1 if steps.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
