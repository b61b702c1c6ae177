"""`lowmark barrier run`, which writes down what it hears of min time before it acts on it.

    python -m tests.barrier.barrier_process FAULT HEARD ARGUMENTS...

FAULT is empty, or plants one: early (releases a second ahead of min time), lost (a row of a chunk now and then
does not get into the buffer), double (it gets there twice), order (the ends of each piece change places: there may
be few).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.cluster.told import end_with_parent
from tracker import cli
from tracker.client.subscriber import Subscriber
from tracker.client.updates import Update
from tracker.consumers.barrier.ledger import Ledger, Unit
from tracker.consumers.barrier.releasing import Releaser
from tracker.consumers.barrier.rows import Item
from tracker.consumers.reorder import Released, ReorderBuffer
from tracker.core.model.slots import FOREVER

AHEAD_SLOTS = 100
EVERY = 5
"""One in so many is spoilt."""
_calls = [0]


def write_down_what_is_heard(path: Path) -> None:
    updates = Subscriber.updates
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - until the process ends

    def heard(subscriber: Subscriber) -> Iterator[Update]:
        for update in updates(subscriber):
            line = {
                "kind": "heard", "subscriber": f"barrier-{os.getpid()}", "segment": update.segment,
                "min_time": update.min_time, "at_ns": time.monotonic_ns(),
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
            file.flush()
            yield update

    Subscriber.updates = heard  # type: ignore[method-assign,assignment]


def release_early() -> None:
    step = Releaser.step

    def early(releaser: Releaser, min_time: int) -> bool:
        ahead = 0 <= min_time < FOREVER - AHEAD_SLOTS
        return step(releaser, min_time + AHEAD_SLOTS if ahead else min_time)

    Releaser.step = early  # type: ignore[method-assign,assignment]


def lose_rows() -> None:
    add = Ledger.add

    def lost(
        ledger: Ledger, unit: Unit, chunk: Sequence[Item], late: Sequence[tuple[int, Item]]
    ) -> None:
        add(ledger, unit, chunk[1:] if _is_due() else chunk, late)

    Ledger.add = lost  # type: ignore[method-assign,assignment]


def double_rows() -> None:
    add = ReorderBuffer.add

    def doubled(
        buffer: ReorderBuffer, items: Sequence[Item], origin: int = 0, first: int = 0
    ) -> None:
        add(buffer, items, origin, first)
        if _is_due():
            add(buffer, items[:1], origin, first + 1_000_000)

    ReorderBuffer.add = doubled  # type: ignore[method-assign,assignment]


def change_places() -> None:
    first = ReorderBuffer.release_some

    def misplaced(
        buffer: ReorderBuffer, min_time: int, write: Callable[[Sequence[Released]], object]
    ) -> int:
        def changed(rows: Sequence[Released]) -> None:
            *between, last = rows[1:] or (rows[0],)
            if between:
                begin = rows[0]
                rows = [replace(last, position=begin.position), *between, replace(begin, position=last.position)]  # fmt: skip
            write(rows)

        return first(buffer, min_time, changed)

    ReorderBuffer.release_some = misplaced  # type: ignore[method-assign,assignment]


def _is_due() -> bool:
    _calls[0] += 1
    return _calls[0] % EVERY == 0


FAULTS: dict[str, Callable[[], None]] = {
    "early": release_early, "lost": lose_rows, "double": double_rows, "order": change_places,
}  # fmt: skip


def main(fault: str, heard: str, *arguments: str) -> None:
    end_with_parent()
    write_down_what_is_heard(Path(heard))
    if fault:
        FAULTS[fault]()
    sys.argv = ["lowmark", *arguments]
    cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
