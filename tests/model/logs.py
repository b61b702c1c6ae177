"""What home logs tell of shards that come and go, and what must hold by that.

Where shards stay, it is a matter of arithmetic which entry of which home log carries a tick, and which shard has its cells. Here
it is not, so a state has the logs themselves, as far as the invariants ask for them, and everything is told by them and the script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.model.invariants import Violation
from tests.model.script import FIRST_TICK, NODE_IDS, PIPELINE, Item, System
from tests.model.transitions import Facts, Logged
from tracker.core.cut.graph import SegmentGraph
from tracker.core.model.slots import FOREVER

Log = tuple[Logged, ...]
GRAPH = SegmentGraph(PIPELINE)


class Logs:
    """What is durable of home logs, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Log, int] = {(): 0}
        self._logs: list[Log] = [()]

    def __getitem__(self, number: int) -> Log:
        return self._logs[number]

    def longer(self, number: int, more: Log) -> int:
        """The number of a log with so much more."""
        log = self._logs[number] + more
        if log not in self._numbers:
            self._numbers[log] = len(self._logs)
            self._logs.append(log)
        return self._numbers[log]


def check_cut(facts: Mapping[int, Facts], logs: Sequence[Log]) -> None:
    """What the processes must hold together: M is a cut of whole steps, and no shard that counts in it is behind it. What was logged
    before a shard has joined has no part for it."""
    for shard, each in facts.items():
        for home, number in enumerate(each.cut):
            for other in each.membership.members & facts.keys():
                has = max(facts[other].applied[home], _joined_at(other, logs[home]))
                if has < number:
                    raise Violation(
                        f"shard {shard} takes entry {number} of home {home} for applied by all, "
                        f"but shard {other} has applied {has}"
                    )
        for node in range(len(NODE_IDS)):
            inside = sorted(tick for of, tick in ticks_in(logs, each.cut) if of == node)
            first = 1 - FIRST_TICK[node]
            if inside != [*range(first, first + len(inside))]:
                raise Violation(f"M of shard {shard} has ticks {inside} of node {node}")


def _joined_at(shard: int, log: Log) -> int:
    """The number of the entry by which a shard has joined; 0 where this log has none."""
    return next((n for n, entry in enumerate(log, 1) if entry.joined == shard), 0)


def ticks_in(logs: Sequence[Log], vector: Sequence[int]) -> set[tuple[int, int]]:
    """The ticks inside of a vector."""
    return {
        entry.tick
        for log, number in zip(logs, vector, strict=True)
        for entry in log[:number]
        if entry.tick is not None
    }


def check_cells(
    shard: int, facts: Facts, logs: Sequence[Log], system: System, items: tuple[Item, ...]
) -> None:
    """A shard's cells are what the entries in its vector have for it, and nothing else."""
    if facts.said is None:
        return
    tables = {0: system.routing} | {
        entry.table.version: entry.table for log in logs for entry in log if entry.table is not None
    }
    due: Counter[tuple[int, int]] = Counter()
    for home, (log, number) in enumerate(zip(logs, facts.applied, strict=True)):
        table = system.routing
        for entry in log[:number]:
            if entry.activates is not None:
                table = tables[entry.activates]
            for segment, slot, checksum in entry.cells:
                if shard in (home, table.owner(slot, "p")):
                    due[segment, slot] ^= checksum
            for item in _touched(entry, items):
                if table.owner(item.slot, "p") == shard:
                    due[item.segment, item.slot] ^= system.value(item)
    if facts.cells != {cell: checksum for cell, checksum in due.items() if checksum}:
        raise Violation(
            f"shard {shard} has applied {facts.applied} and holds {facts.cells}, due is {dict(due)}"
        )


def _touched(entry: Logged, items: tuple[Item, ...]) -> Iterator[Item]:
    """The items that an entry creates or consumes."""
    if entry.tick is not None:
        for item in items:
            for by in (item.created, item.consumed):
                if by == entry.tick:
                    yield item


def check_visible(shard: int, facts: Facts, logs: Sequence[Log], items: tuple[Item, ...]) -> None:
    """What is in flight at M can be seen there: no candidate passes it."""
    inside = ticks_in(logs, facts.cut)
    for item in items:
        if item.created not in inside or item.consumed in inside:
            continue
        for segment, candidate in enumerate(facts.candidates):
            distance = GRAPH.distance(item.segment, segment)
            if candidate is not None and distance != FOREVER and candidate > item.slot + distance:
                raise Violation(
                    f"shard {shard} could announce {candidate} for segment {segment}: the item at "
                    f"slot {item.slot} of segment {item.segment} is in flight at its M {facts.cut}"
                )
