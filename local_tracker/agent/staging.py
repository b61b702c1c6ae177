"""Staging the contributions of task attempts (transactional): several in one call, each once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from local_tracker.agent.stats import Stats
from local_tracker.agent.uplink import Uplink
from local_tracker.worker.protocol import Deadline, HandedOver
from tracker.errors import Code, HandOverError

MAX_REMEMBERED = 100_000
"""Hand-overs whose marks are remembered, to tell a repeat from a second one."""
MAX_NODES = 1_000
MAX_CONTRIBUTIONS_PER_CALL = 256
MAX_CELLS_PER_CALL = 131_072


@dataclass(slots=True)
class _Waiting:
    contributions: Sequence[HandedOver]
    deadline: Deadline
    done: Future[None] = field(default_factory=Future)

    def cells(self) -> int:
        return sum(
            len(h.contribution.created) + len(h.contribution.consumed) for h in self.contributions
        )


@dataclass(slots=True)
class _Lane:
    """What waits for the home of one node. Whoever holds `sending` sends for all who wait."""

    sending: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[_Waiting] = field(default_factory=deque)


class Stager:
    """Passes contributions on and returns when they are durable. Thread-safe."""

    def __init__(self, uplink: Uplink, stats: Stats | None = None) -> None:
        self._uplink = uplink
        self._stats = stats or Stats()
        self._lock = threading.Lock()
        self._lanes: defaultdict[str, _Lane] = defaultdict(_Lane)
        self._marks: OrderedDict[tuple[object, ...], str] = OrderedDict()

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        """Returns when all are durable. Raises HandOverError, TimeoutError."""
        waiting = _Waiting(contributions, deadline)
        with self._lock:
            for handed in contributions:
                self._check_first(node_id, handed)
            lane = self._lane(node_id)
            lane.waiting.append(waiting)
        if not lane.sending.acquire(timeout=deadline.left_s()):
            deadline.left_s()
            raise TimeoutError(f"other contributions for node {node_id!r} are not staged yet")
        try:
            while not waiting.done.done():
                self._send(node_id, self._next_group(lane))
        finally:
            lane.sending.release()
        waiting.done.result()

    def _check_first(self, node_id: str, handed: HandedOver) -> None:
        contribution = handed.contribution
        key = (node_id, *contribution.key)
        mark = self._marks.setdefault(key, handed.nonce)
        if mark != handed.nonce:
            raise HandOverError(
                f"operator {contribution.operator!r} handed over twice in one task attempt (batch "
                f"{contribution.batch}, stage {contribution.stage}, partition "
                f"{contribution.partition} of query {contribution.query!r}): its acks would count "
                f"for rows it saw twice, or not; give each use of it a name of its own",
                Code.REFUSED_CONFLICT,
            )
        while len(self._marks) > MAX_REMEMBERED:
            self._marks.popitem(last=False)

    def _next_group(self, lane: _Lane) -> list[_Waiting]:
        """What goes into the next call: the first who waits, and all who fit in beside it."""
        with self._lock:
            group = [lane.waiting.popleft()]
            cells, contributions = group[0].cells(), len(group[0].contributions)
            while lane.waiting:
                cells += lane.waiting[0].cells()
                contributions += len(lane.waiting[0].contributions)
                if cells > MAX_CELLS_PER_CALL or contributions > MAX_CONTRIBUTIONS_PER_CALL:
                    break
                group.append(lane.waiting.popleft())
            return group

    def _lane(self, node_id: str) -> _Lane:
        if node_id not in self._lanes and len(self._lanes) >= MAX_NODES:
            raise HandOverError(
                f"contributions for node {node_id!r}: this local tracker has staged for {MAX_NODES} "
                f"nodes, the limit; start one for each application",
                Code.REFUSED_FULL,
            )
        return self._lanes[node_id]

    def _send(self, node_id: str, group: list[_Waiting]) -> None:
        # Who has less time than others of the group gives up by itself.
        deadline = max((waiting.deadline for waiting in group), key=Deadline.end)
        try:
            together = [handed for waiting in group for handed in waiting.contributions]
            start = time.monotonic()
            self._uplink.stage(node_id, together, deadline)
            self._stats.staged(len(together), time.monotonic() - start)
        except HandOverError as error:
            if len(group) > 1 and error.code != Code.HAND_OVER_UNREACHABLE:
                # One of them was refused, and all with it: each by itself, to find out which.
                for waiting in group:
                    self._send(node_id, [waiting])
                return
            _settle(group, error)
        except BaseException as error:
            _settle(group, error)
        else:
            _settle(group, None)


def _settle(group: list[_Waiting], error: BaseException | None) -> None:
    for waiting in group:
        if error is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(error)
