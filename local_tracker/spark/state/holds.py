"""The holds of a query whose state emits later, as the ticks of its batches make them and let go of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from local_tracker.spark.query.follow import Stopping
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.state.bounds import LogBounds, Running
from local_tracker.spark.state.entries import Entries, Told
from local_tracker.spark.state.recorded import StateRecord, Widest, text_of
from local_tracker.spark.state.rules import Later, StateKind, StatePlan, Window
from tracker.client import NodeClient
from tracker.client.state_names import UNKNOWN, UNSEEN, Bound, bound_of
from tracker.core.log import Joined
from tracker.core.model import HeldSlot, HoldMove, TickContent, Unit

if TYPE_CHECKING:  # it needs PySpark, and who follows from outside has none
    from local_tracker.spark.state.backlog import Backlog

_LOOK_AGAIN_S = 0.05
_COMMIT_TIMEOUT_S = 30.0

logger = logging.getLogger("lowmark.spark")


class Bounds(Protocol):
    """What is known of the event times in a query's state."""

    def told(self, batch: int) -> Told:
        """Of a batch that is over, from logs that may be purged later."""


class StateHolds:
    """What the state of one query holds. The tracker keeps it (`Joined.holds`); here it is known as of the last
    batch whose tick is durable, and what the tick of the one after it does. Thread-safe."""

    def __init__(
        self,
        bounds: Bounds,
        holds: Iterable[HeldSlot],
        last_batch: int,
        backlog: Backlog | None = None,
    ) -> None:
        """holds: of the node, as it joined. last_batch: the last one of the query that the tracker has, and
        that these are of. backlog: reads of many files in one batch how long each is in state."""
        self._bounds, self._backlog = bounds, backlog
        self._changed = threading.Condition()
        # All below is read and written while holding `_changed`.
        self._entries, self._last = Entries.found(holds), last_batch
        self._next: tuple[int, Entries, tuple[HoldMove, ...]] | None = None
        """A batch whose tick is on its way, the entries after it, and what it does to holds."""
        self._let_go: tuple[HoldMove, ...] = ()
        """What that tick lets go of beside, since min time had passed it."""

    @classmethod
    def of(
        cls,
        plan: StatePlan,
        log: CheckpointLog,
        joined: Joined,
        holds: Iterable[HeldSlot],
        untold: int = -1,
        running: Running | None = None,
        backlog: Callable[[Callable[[int], Bound | None]], Backlog] | None = None,
    ) -> StateHolds:
        """Of a query that has joined, by the plan that it is held by. holds: as `begin_state` gives them. untold:
        the last batch that is not to be told, where the tracker has none yet. running: the query, if it runs in
        this process; backlog: makes its `Backlog`."""
        last_batch = max(_told(log, joined), default=untold)
        held, unbounded = tuple(holds), (UNKNOWN, UNSEEN)
        is_unknown = any(bound_of(hold.name) in unbounded for hold in held)
        bounds = LogBounds(plan, log, running, last_batch, is_unknown)
        made = None if backlog is None else backlog(bounds.bound_of)
        return cls(bounds, held, last_batch, made)

    def told(self, batch: int) -> Told:
        """What is known of a batch that is over. Raises FilesError."""
        return self._bounds.told(batch)

    def tick(
        self,
        batch: int,
        labels: Sequence[Unit],
        allowed: Callable[[Sequence[Unit]], dict[int, int]],
        told: Told,
    ) -> None:
        """The tick of the batch after the last durable one is made; again, where it was refused. labels: what it
        consumed; allowed: the slots that some of it allows, in the segments that the query creates in. What it consumed
        may be covered by an entry that is there: the tick names that one again, and is refused where it has become
        late meanwhile."""
        parts: dict[Bound, list[Unit]] = {told.bound_ms: list(labels)}
        if self._backlog is not None:
            parts = self._backlog.by_bound(labels, told)
        others = [(bound, allowed(units)) for bound, units in parts.items()]
        with self._changed:
            entries, moves = self._entries.after({}, told, others)
            covers = self._entries.same(entries) if labels else ()
            self._next = batch, entries, (*moves, *covers)

    def let_go_late(self, min_times: Mapping[int, int]) -> bool:
        """A tick was refused: lets go of what min time has passed, in the one that is made in its place. Returns
        whether there is such. min_times: by segment number."""
        with self._changed:
            self._entries, moves = self._entries.in_time(min_times)
            self._let_go += moves
            return bool(moves)

    def moves(self, batch: int) -> tuple[HoldMove, ...]:
        """What the tick of a batch does to holds, as `tick` has found it."""
        with self._changed:
            assert self._next is not None and self._next[0] == batch, "its tick is made first"
            moves = self._next[2]
            anew = {move.name for move in moves}
            return (*moves, *(move for move in self._let_go if move.name not in anew))

    def durable(self, batch: int) -> None:
        """The tick of a batch is durable."""
        with self._changed:
            if self._next is not None and self._next[0] == batch:
                self._entries = self._next[1]
            self._next, self._let_go, self._last = None, (), max(batch, self._last)
            self._changed.notify_all()

    def labels(self, slots: Mapping[int, int]) -> dict[int, int]:
        """The slots under which the batch after the last durable one creates, by segment number; slots: what
        it consumed allows."""
        with self._changed:
            return self._entries.labels(slots)

    def wait_durable(self, batch: int, stopping: threading.Event) -> None:
        """Waits until the tick of a batch is durable; raises Stopping when the event is set meanwhile."""
        with self._changed:
            while self._last < batch:
                if stopping.is_set():
                    raise Stopping
                self._changed.wait(_LOOK_AGAIN_S)

    def emptied(self) -> tuple[HoldMove, ...]:
        """What lets go of all, where no tick is on its way."""
        with self._changed:
            return self._entries.emptied()


def begin_state(
    plan: StatePlan,
    log: CheckpointLog,
    node: NodeClient,
    is_there: Callable[[int], bool] | None = None,
) -> list[HeldSlot]:
    """What a node holds that has joined, when its query is about to run by a plan, and what is to be known of that
    later is recorded. is_there: whether the query's sink has a batch; None where it is only followed. Raises
    FilesError, and as `NodeClient.commit`."""
    record = StateRecord(log)
    known, told = record.read(), _told(log, node.joined)
    if not known.plans and told:
        logger.warning(
            "query %r: from batch %d on what is in its state is held; what it absorbed before is not",
            node.node_id, max(told) + 1,
        )  # fmt: skip
    is_other = bool(known.plans) and known.plans[-1].text != text_of(plan)
    by_ms = Widest.of(plan, 0).span_ms if is_other and _moves_rows(plan) else 0
    rows_out_ms = plan.bound_ms if plan.kind is StateKind.BOUNDED else None
    if moves := Entries.found(_held(node)).later(by_ms, rows_out_ms):
        node.commit(TickContent(holds=moves)).result(_COMMIT_TIMEOUT_S)
    record.begun(known, plan, is_there)
    return _held(node)


def _moves_rows(plan: StatePlan) -> bool:
    """Whether rows that were absorbed by another plan wait by this one, as those of joins do, and of windows above
    windows; a row that is in its last window keeps the end that it has."""
    return any(
        any(isinstance(step, Later) for step in wait.steps)
        or sum(isinstance(step, Window) for step in wait.steps) > 1
        for wait in plan.waits
    )


def _held(node: NodeClient) -> list[HeldSlot]:
    return [HeldSlot(hold.name, hold.number, hold.slot, 0, 0) for hold in node.holds.values()]


def _told(log: CheckpointLog, joined: Joined) -> list[int]:
    """The last batch of the query that the tracker has, if it has any."""
    return [batch.id for batch in joined.last_batches if batch.scope == log.query_id]
