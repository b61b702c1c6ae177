"""The sample pipeline of `lowmark dev`: a shop whose orders are parsed and loaded, most of them quickly.

    front shop --order--> parse --order--> load

The front lets some orders in at each of its turns. Now and then the parser meets one that takes it seconds: min time
stands, lag grows, and both recover when it has caught up. Orders are in memory alone; an earlier run's, which nobody
has any more, are dropped by beginning the pipeline anew.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tracker.client.embedded import EmbeddedTracker
from tracker.client.node import NodeClient
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    NodeKind,
    PipelineSpec,
    RefusalCode,
    TickContent,
)
from tracker.core.model.ack_values import child_value, root_value
from tracker.core.model.slots import DEFAULT_SLACK_NS, slot_of
from tracker.errors import LowmarkError, RefusedError

NAME, FRONT = "sample", "shop"
PARSE, LOAD = 0, 1
"""Numbers of the segments: their places in the pipeline."""
TURN_S = 0.25
MAX_ORDERS_PER_TURN = 3
WORK_S = 0.03
"""How long an ordinary order takes a worker."""
SLOW_EVERY = 150
"""Of so many orders one is slow: about two a minute."""
SLOW_S = 5.0
MAX_WAITING = 1_000
"""Orders between two workers; at the limit the one before waits, and so the front does in the end."""
LOOK_S = 0.5
"""How often one who waits for room, or for orders, looks whether it is to end."""


@dataclass(frozen=True, slots=True)
class Order:
    """An item on its way: its label, and its number from 0."""

    number: int
    slot: int
    value: int


Orders = queue.Queue[Order]


class Sample:
    """The pipeline's front and workers, each a thread with a node of its own. `close` ends them."""

    def __init__(self, tracker: EmbeddedTracker, failed: Callable[[Exception], object]) -> None:
        """Registers the pipeline, or begins it anew, and starts. failed: is called once, from a thread of the
        sample, if it can't go on; the tracker does. Raises LowmarkError."""
        self._ending = threading.Event()
        self._failed = failed
        self._failing = threading.Lock()
        _begin(tracker)
        nodes = {
            name: tracker.node(NAME, name, kind)
            for name, kind in (
                (FRONT, NodeKind.FRONT),
                ("parser", NodeKind.OTHER),
                ("loader", NodeKind.OTHER),
            )
        }
        for node in nodes.values():
            node.join()
        parsing, loading = Orders(MAX_WAITING), Orders(MAX_WAITING)
        jobs: list[Callable[[], None]] = [
            lambda: self._let_in(nodes[FRONT], parsing),
            lambda: self._work(nodes["parser"], PARSE, parsing, loading),
            lambda: self._work(nodes["loader"], LOAD, loading, None),
        ]
        self._threads = [
            threading.Thread(target=self._guarded, args=(job,), name=f"lowmark-sample-{name}", daemon=True)
            for name, job in zip(nodes, jobs, strict=True)
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Returns when its threads have ended. What is on its way stays open."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except LowmarkError as error:
            with self._failing:
                first = not self._ending.is_set()
                self._ending.set()
            if first:
                self._failed(error)

    def _let_in(self, node: NodeClient, parsing: Orders) -> None:
        """The front: creates the orders of a turn, then promises to label nothing earlier any more."""
        chance = random.Random(NAME)
        # The front's numbers begin anew with each run; its values must not.
        identity = f"{FRONT}/{node.joined.key.incarnation}"
        slot = node.join_front(FRONT, "parse").slot
        number = 0
        while not self._ending.wait(TURN_S):
            slot = max(slot, slot_of(time.time_ns(), DEFAULT_SLACK_NS))
            numbers = range(number, number + chance.randint(0, MAX_ORDERS_PER_TURN))
            number = numbers.stop
            orders = [Order(n, slot, root_value(identity, 0, n)) for n in numbers]
            # What is created goes before the promise that nothing earlier follows.
            node.commit(TickContent(created=_cells(PARSE, orders)))
            node.commit(TickContent(heartbeats=(Heartbeat(FRONT, slot),))).result()
            for order in orders:
                self._hand_on(parsing, order)

    def _work(self, node: NodeClient, segment: int, orders: Orders, then: Orders | None) -> None:
        """A worker: takes an order out of its segment, and puts what follows into the next, by one tick."""
        while (order := self._next(orders)) is not None:
            is_slow = segment == PARSE and order.number % SLOW_EVERY == SLOW_EVERY - 1
            if self._ending.wait(SLOW_S if is_slow else WORK_S):
                return
            after = Order(order.number, order.slot, child_value(order.value, "parse", 0))
            created = _cells(LOAD, [after]) if then is not None else Cells.empty()
            content = TickContent(consumed=_cells(segment, [order]), created=created)
            node.commit(content).result()
            if then is not None:
                self._hand_on(then, after)

    def _next(self, orders: Orders) -> Order | None:
        """The next order; None when the sample ends."""
        while not self._ending.is_set():
            try:
                return orders.get(timeout=LOOK_S)
            except queue.Empty:
                continue
        return None

    def _hand_on(self, orders: Orders, order: Order) -> None:
        while not self._ending.is_set():
            try:
                return orders.put(order, timeout=LOOK_S)
            except queue.Full:
                continue


def _begin(tracker: EmbeddedTracker) -> None:
    """Registers the pipeline, which begins now. Where it is there, of an earlier run with the same data, it begins
    anew: what was on its way is dropped."""
    spec = PipelineSpec(
        NAME, ("parse", "load"), (Edge("parse", "load"),), fronts=(FRONT,),
        start_slot=slot_of(time.time_ns(), DEFAULT_SLACK_NS),
    )  # fmt: skip
    with tracker.admin() as admin:
        try:
            before = admin.pipeline(NAME)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                raise
            admin.register(spec)
            return
        admin.restart(NAME, before.state.generation)


def _cells(segment: int, orders: list[Order]) -> Cells:
    return Cells.of([(segment, order.slot, order.value, 1) for order in orders])
