"""The parts: what each worker does, and which tick says so.

    front --a file--> split --words--> count

A file is an item of segment `split`, under its name; a word is an item of segment `count`, under a
hash of its file's and its place in it. Every step commits one tick: what it took, and what it made.
"""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lowmark import Edge, FileFront, PipelineSpec, Subscriber, Update, embedded, slot_of
from lowmark.nodes import (
    DEFAULT_SLACK_NS,
    Cells,
    NodeClient,
    TickContent,
    Unit,
    child_values,
    slot_in_name,
    unit_name,
    unit_value,
)

SPLIT, COUNT = 0, 1
"""Numbers of the segments: their places in the pipeline."""


@dataclass(frozen=True)
class Word:
    """What `split` hands to `count`: a word with its label."""

    text: str
    slot: int
    value: int


Files = queue.SimpleQueue[Path | None]
Words = queue.SimpleQueue[Word | None]


def pipeline() -> PipelineSpec:
    """Two segments in a row, fed by one front from now on."""
    start = slot_of(time.time_ns(), DEFAULT_SLACK_NS)
    return PipelineSpec(
        "words", ("split", "count"), (Edge("split", "count"),), fronts=("reader",), start_slot=start
    )


def publish(target: str, directory: Path, lines: Iterable[str], files: Files) -> None:
    """The front: each line becomes a file under the slot of the moment at which it came in."""
    with FileFront(target, "words", "reader", "split", directory, format="json") as front:
        for line in lines:
            file = front.write([{"line": line}])
            assert file is not None
            files.put(file.path)
        front.leave()
    files.put(None)


def split(node: NodeClient, files: Files, words: Words) -> None:
    """A worker: takes a file, hands its words on."""
    for path in iter(files.get, None):
        unit = unit_name(str(path))
        slot = slot_in_name(unit)
        assert slot is not None
        texts = [word for row in path.open() for word in json.loads(row)["line"].split()]
        # The same file gives the same words the same values, however often it is read.
        values = child_values(unit_value(unit), "split", np.arange(len(texts)))
        node.commit(
            TickContent(
                consumed=Cells.of([(SPLIT, slot, unit_value(unit), 1)]),
                units_consumed=(Unit(SPLIT, unit, slot),),
                created=Cells.of((COUNT, slot, int(value), 1) for value in values),
            )
        ).result()
        for text, value in zip(texts, values.tolist(), strict=True):
            words.put(Word(text, slot, value))
    words.put(None)


def count(node: NodeClient, words: Words) -> Counter[str]:
    """A worker: takes words one by one; returns how often each came. Its commits overlap."""
    counts: Counter[str] = Counter()
    commits = []
    for word in iter(words.get, None):
        counts[word.text.lower().strip(".,!*-")] += 1
        consumed = Cells.of([(COUNT, word.slot, word.value, 1)])
        commits.append(node.commit(TickContent(consumed=consumed)))
    for commit in commits:
        commit.result()
    return counts


def follow(subscriber: Subscriber, show: Callable[[Update], None]) -> None:
    """Shows each news of min time, until the whole pipeline is complete."""
    for update in subscriber.updates():
        show(update)
        if update.segment is None and update.complete:
            return


def run(directory: Path, lines: Iterable[str], show: Callable[[Update], None]) -> Counter[str]:
    """Runs all of it with a tracker of its own; returns the counts once they are complete."""
    files: Files = queue.SimpleQueue()
    words: Words = queue.SimpleQueue()
    with embedded(shards=2) as tracker, ThreadPoolExecutor() as threads:
        tracker.register(pipeline())
        splitter, counter = tracker.node("words", "splitter"), tracker.node("words", "counter")
        splitter.join()
        counter.join()
        following = threads.submit(follow, tracker.subscriber("words"), show)
        parts = [
            threads.submit(publish, tracker.target, directory, lines, files),
            threads.submit(split, splitter, files, words),
        ]
        counts = threads.submit(count, counter, words)
        for part in parts:
            part.result()
        following.result()
        return counts.result()
