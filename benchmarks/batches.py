"""The evaluation's dataflow as tracked Spark queries, in simulation: what they send for each item.

A query takes all files that are there when its batch begins, and makes one file of them when it ends; its tick
takes what the batch has read and gives what it has made, at the lowest slot of what it has read: the rule by
which ticks of batches are composed (`local_tracker/spark/query/compose.py`). A query is one node, whatever it
re-partitions within; or each re-partition is a query of its own, which reads the files of the one before.
The front writes a file for each item. The tracker is production code; Spark is not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from benchmarks.evaluation import ITEM_NS
from benchmarks.simulated import NETWORK_NS, SLOT_NS, Node, World
from tracker.core.model import Cells, FrontJoin, Heartbeat, TickContent
from tracker.core.model.ack_values import child_value, root_value

File = tuple[int, int]
"""Slot and ack value of a file."""


class Chain(World):
    """So many queries, one after the other; each begins a batch every `every_ns`, if there is a file."""

    def __init__(self, shards: int, queries: int, every_ns: int) -> None:
        super().__init__(shards, tuple(f"s{n}" for n in range(queries + 1)))
        self._queries, self._every_ns = queries, every_ns
        self._files: list[list[File]] = [[] for _ in range(queries + 1)]
        """By segment: files that no batch has taken yet; the last query's are nobody's."""
        self._nodes_of: list[Node] = []

    def run(self, items: int) -> Counter[str]:
        """What is sent from the first item until the last is complete, in the last query's input too."""
        self.begin()
        front = self.join("front")
        self._nodes_of = [self.join(f"query{n}") for n in range(self._queries)]
        front.commit(TickContent(joins=(FrontJoin("front", 0),)))
        self.run_until(lambda: front.granted)
        self.counted.clear()
        began = self.now
        for item in range(items):
            self.at(began + item * ITEM_NS, partial(self._enter, front, item))
        for query in range(self._queries):
            begins = began + (query + 1) * self._every_ns // self._queries
            self.at(begins, partial(self._begin, query))
        ends = (began + items * ITEM_NS) // SLOT_NS + 1
        self.at(ends * SLOT_NS, lambda: self._promise(front, ends))
        self.until_complete(ends)
        return self.counted

    def _enter(self, front: Node, item: int) -> None:
        slot, value = self.now // SLOT_NS, root_value("front", item, 0)
        front.commit(
            TickContent(
                created=Cells.of([(0, slot, value, 1)]), heartbeats=(Heartbeat("front", slot),)
            )
        )
        self._files[0].append((slot, value))

    def _promise(self, front: Node, slot: int) -> None:
        front.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))

    def _begin(self, query: int) -> None:
        """A batch takes what there is; it is over, and committed, when the next may begin."""
        taken, self._files[query] = self._files[query], []
        self.at(self.now + self._every_ns, lambda: self._end(query, taken))

    def _end(self, query: int, taken: Sequence[File]) -> None:
        if taken:
            slot = min(slot for slot, _ in taken)
            content = TickContent(
                consumed=Cells.of((query, slot, value, 1) for slot, value in taken)
            )
            if query + 1 < self._queries:
                made = (slot, child_value(min(taken)[1], f"query{query}", 0))
                content.created = Cells.of([(query + 1, *made, 1)])
                self.at(self.now + NETWORK_NS, lambda: self._files[query + 1].append(made))
            self._nodes_of[query].commit(content)
        self._begin(query)
