"""A barrier: rows of tracked queries wait in it until min time has passed them, and go into a sink in order.

    with Barrier(
        "127.0.0.1:7070", "orders", "deliver", "orders-to-db", PostgresSink(dsn, "orders"), "/data/barrier",
        sources=[CommittedFiles("/data/out")], reader=RowReader(key="order_id"),
    ) as barrier:
        barrier.run()

The barrier is the node that consumes the units of its segment: a unit's rows are durable in its buffer before the
unit leaves the segment, so min time, which releases them, never passes a row that is not there. Rows are written
by (slot, key), those of one slot and key by the unit's ack value and their place in it. Each write is one
transaction of the sink, with the position in it: whoever is killed asks the sink how far it is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tracker.client.known import known_at
from tracker.client.node import NodeClient, segment_number
from tracker.client.subscriber import Subscriber
from tracker.consumers.barrier.ledger import LateRow, Ledger
from tracker.consumers.barrier.releasing import Releaser
from tracker.consumers.barrier.rows import Item, RowReader
from tracker.consumers.barrier.sink import OrderedSink, check_name
from tracker.consumers.barrier.sources import Source
from tracker.consumers.barrier.taking import LOOK_FIRST_S, Taker, taken_durably
from tracker.consumers.reorder import ReorderBuffer
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import FencedError, StateError

MAX_ROWS = 10_000_000
"""Rows that may wait before it pushes back, unless another limit is given."""
MAX_BYTES = 10 << 30
"""Bytes of their payloads and keys, as well."""
RESERVE = 2
"""Units that min time waits for are taken beyond these limits, up to so many times as much."""
NODE_PREFIX = "barrier-"
"""The node of a barrier: this and its name."""
_SETTLE_S = 30.0


@dataclass(frozen=True, slots=True)
class BarrierCounts:
    """Since the barrier began: units and rows that were taken, rows that were released; and now: rows that wait,
    and late ones that are kept beside."""

    units: int
    rows: int
    released: int
    waiting: int
    late: int


@dataclass(frozen=True, slots=True)
class BarrierOptions:
    """What is rare of a barrier. reader: how rows are read from the units of the sources. late_beside: keeps late rows
    (`late`) instead of ending with LateError. max_rows, max_bytes: may wait on disk before units are left where they
    are, which holds min time; those that min time waits for are taken up to RESERVE times that, and UnavailableError
    ends it."""

    reader: RowReader | None = None
    late_beside: bool = False
    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_BYTES


class Barrier:
    """A barrier over one segment of a pipeline, in a directory of its own. One thread uses it, in a `with`
    block."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str,
        name: str,
        sink: OrderedSink,
        directory: str | os.PathLike[str],
        *,
        sources: Sequence[Source] = (),
        options: BarrierOptions | None = None,
    ) -> None:
        """segment: the one that the units are created in; nobody else consumes them. name: of the barrier, for
        good: the sink keeps its position by it. directory: on a local disk, for the buffer."""
        options = options or BarrierOptions()
        check_name(name)
        self.name, self.pipeline, self.segment = name, pipeline, segment
        self._sink, self._sources, self._reader = sink, sources, options.reader
        self._late_beside = options.late_beside
        self._room = options.max_rows, options.max_bytes
        self._directory = Path(directory)
        self._known = known_at(self._directory / "known")
        self._node = NodeClient(target, pipeline, f"{NODE_PREFIX}{name}", known=self._known)
        self._subscriber = Subscriber(target, pipeline, [segment])
        self._news = threading.Event()
        self._min_time = self._min_time_of_all = LOWEST_SLOT
        self._deaf: Exception | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Barrier:
        """Raises StateError, FencedError, RefusedError,
        UnavailableError; a sink that is away is waited for by `step`."""
        with ExitStack() as stack:
            stack.callback(self._close_parts)
            self._directory.mkdir(parents=True, exist_ok=True)
            buffer = ReorderBuffer(
                self._directory / "buffer.db", self._room[0] * RESERVE, self._room[1] * RESERVE
            )
            self._buffer = stack.enter_context(buffer)
            self._ledger = Ledger(self._buffer, self.name, self.pipeline, self.segment)
            self._releaser = Releaser(self.name, self._buffer, self._sink)
            self._join()
            self._taker = Taker(
                self._node, self.segment, self._buffer, self._ledger, self._sources, self._reader,
                late_beside=self._late_beside, room=self._room,
            )  # fmt: skip
            self._taker.begin()
            threading.Thread(target=self._hear, name="lowmark-barrier", daemon=True).start()
            self._stack = stack.pop_all()
        return self

    def _join(self) -> None:
        """Becomes the barrier of its name, in the sink and at the tracker. Whoever is refused by one of them has
        ended nobody: both are asked before the sink is taken, which refuses before it is, and the join comes last."""
        is_known = self._known.read().incarnation > 0
        self._check_same(is_known)
        asked = self._node.check_join()
        segment_number(asked.spec, self.segment)
        taken_durably(asked, self._node.node_id, self._ledger, self._buffer)
        self._releaser.begin()
        joined = self._node.join()
        self._check_same(is_known)  # which it may have become just now
        # What another pipeline announces, that gets the name before anything was heard, releases nothing.
        self._subscriber.goes_on_since(joined.generation)

    def _check_same(self, is_known: bool) -> None:
        """Raises RefusedError where the pipeline was deleted of which rows wait, and another one has its name: by what that
        announces they are not complete. is_known: whether anything is recorded of the node; who removes that lets go of it."""
        if is_known and self._ledger.generation is not None:
            self._subscriber.goes_on_since(self._ledger.generation)
            self._subscriber.min_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _close_parts(self) -> None:
        self._subscriber.close()
        self._node.close()
        self._sink.close()

    def _hear(self) -> None:
        try:
            for update in self._subscriber.updates():
                self._check_generation()
                if update.segment is None:
                    self._min_time_of_all = max(self._min_time_of_all, update.min_time)
                elif update.segment == self.segment:
                    self._min_time = max(self._min_time, update.min_time)
                self._news.set()
        except Exception as error:
            self._deaf = error
            self._news.set()

    def _check_generation(self) -> None:
        """Raises FencedError behind a restart of the pipeline, which the node may hear of later: what is announced from then on says
        nothing of rows that were taken before."""
        generation = self._subscriber.heard_generation or 0
        if generation > self._node.joined.generation:
            raise FencedError(
                f"pipeline {self.pipeline!r} was restarted: generation {generation} has begun, and barrier {self.name!r} has not joined "
                "it; start it again"
            )

    def add(self, unit: str, rows: Iterable[Item]) -> bool:
        """Takes a unit of this program's own: (slot, key, payload) of each row, none below the unit's slot. The
        tick that created it in the segment is durable. The rows are durable on return, and the unit is consumed;
        said again after a kill it is taken once: False if it was taken before. Raises LateError, InvalidError,
        UnavailableError, LowmarkError if it is not open."""
        return self._taker.add(unit, rows)

    def step(self) -> bool:
        """Takes a part of what is there, and writes a part of what is complete; returns whether there was
        anything. Raises what `run` raises."""
        over = self._deaf or self._node.failure
        if over is not None:
            raise over
        min_time = self._min_time
        wrote = self._releaser.step(self._released_to(min_time))
        took = self._taker.step(min_time)
        self._node.report_waits(self._waits())
        return wrote or took

    def _released_to(self, min_time: int) -> int:
        """Up to where rows may be written. Behind a restart the segment's min time may be of the generation before, and the whole
        pipeline's is of this one in every segment: by that it is known what is made again of what waits, and by no more than that
        rows are written until it is. What a sink has that is away is not dropped."""
        if not self._ledger.is_in_doubt:
            return min_time
        safe = min(min_time, self._min_time_of_all)
        if self._releaser.is_open:
            self._ledger.drop_in_doubt(safe)
        return safe

    def run(self, timeout_s: float | None = None) -> bool:
        """Takes and releases until the pipeline's segment is complete and all is released: True; or for
        `timeout_s` seconds (None: for ever): False.

        A sink or tracker that is away is waited for. Raises FencedError, StateError, FencedError,
        RefusedError, LateError, InvalidError, UnavailableError, FilesError.
        """
        end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            self._news.clear()
            if self.step():
                continue
            if self._min_time == FOREVER and not len(self._buffer):
                self._taker.settle(_SETTLE_S)
                return True
            self._news.wait(min(LOOK_FIRST_S, max(0.0, end_s - time.monotonic())))
        return False

    @property
    def min_time(self) -> int:
        """Of the segment, as heard."""
        return self._min_time

    @property
    def counts(self) -> BarrierCounts:
        return BarrierCounts(
            self._ledger.count("units"), self._ledger.count("rows"), self._releaser.released,
            len(self._buffer), self._ledger.count_late(),
        )  # fmt: skip

    def late(self, *, drop: bool = False) -> list[LateRow]:
        """The late rows that are kept beside; and drops them, if so asked."""
        return self._ledger.late(drop=drop)

    def _waits(self) -> list[WaitCause]:
        causes = self._taker.waits()
        if self._releaser.away:
            causes.append(WaitCause(WaitKind.OTHER, f"its sink: {self._releaser.away}"))
        return causes


def late_rows(directory: str | os.PathLike[str], *, drop: bool = False) -> list[LateRow]:
    """The late rows that a barrier which does not run has kept beside, in its directory; and drops them, if so
    asked. Raises StateError if it runs, LowmarkError if there is none."""
    path = Path(directory) / "buffer.db"
    if not path.exists():
        raise StateError(f"{directory} is no directory of a barrier: it has no buffer.db")
    with ReorderBuffer(path) as buffer, buffer.transaction() as database:
        barrier, pipeline, segment = database.execute("SELECT * FROM whose").fetchone()
        return Ledger(buffer, barrier, pipeline, segment).late(drop=drop)
