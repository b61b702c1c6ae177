"""The log of one process: what is appended, what is durable by now, and the numbers of its home log.

A record takes effect when it is durable, in the order in which it was appended (promise 2). What was
appended and is not durable yet is looked at before more is decided, so nothing is decided twice.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tracker.core.log import (
    Append,
    Effect,
    Entry,
    HomeEntry,
    KeyClosed,
    KeyOpened,
    Pinned,
    PipelineChanged,
    PipelineDeleted,
    PipelineRestarted,
    Record,
)
from tracker.core.log.records import EVERY, changes_min_times_of
from tracker.core.log.sizes import record_bytes
from tracker.core.model import durable as d

OfOne = TypeVar("OfOne", KeyClosed, KeyOpened, PipelineChanged, PipelineRestarted, PipelineDeleted)


@dataclass(eq=False)
class Journal:
    """Positions of records count from 1 over the log's whole life, and so do entries of the home log.

    Invariant: committed <= position, home_last <= home_appended.
    """

    _effects: list[Effect]
    position: int = d.follows("`committed`", ahead=True, default=0)
    """Of the record that was appended last."""
    committed: int = d.survives({"position": d.AS_IT_IS}, own=True, default=0)
    """Of the last record that is durable and has taken effect."""
    home_appended: int = d.follows("`home_last`", ahead=True, default=0)
    """The number of the home log's last entry, durable or not."""
    home_last: int = d.survives(own=True, default=0)
    """The number of its last durable entry."""
    pending: deque[tuple[int, Record, Hashable | None]] = d.follows(
        "what is appended", deque, ahead=True
    )
    """Records that are not durable: position, record, and the request that waits for it."""
    pending_bytes: int = d.follows("`pending`", ahead=True, default=0)
    """About what these take."""
    _sizes: deque[int] = d.follows("`pending`", deque, ahead=True)
    """... and each of them."""
    _changing: Counter[str] = d.follows("`pending`", Counter, ahead=True)
    """By pipeline, or EVERY, how many of them may change what can be announced of it."""
    unix_ms: int = d.forgotten("it is of the event that is being handled", default=0)
    """The wall clock at that event; 0 where nobody says it. It decides nothing."""

    def append(
        self, record: Record, request: Hashable | None = None, *, can_wait: bool = False
    ) -> None:
        """Asks for a record to be made durable; the request is answered when it is. can_wait: nobody waits
        for it."""
        self.position += 1
        self.pending.append((self.position, record, request))
        size = record_bytes(record)
        self._sizes.append(size)
        self.pending_bytes += size
        if (changed := changes_min_times_of(record)) is not None:
            self._changing[changed] += 1
        self._effects.append(Append(self.position, record, can_wait))

    def append_home(self, entry: Entry, request: Hashable | None = None) -> None:
        """Appends the next entry of this shard's home log."""
        self.home_appended += 1
        self.append(HomeEntry(self.home_appended, entry), request)

    def answer_last(self, request: Hashable) -> None:
        """Answers a request with None when the record that was appended last is durable."""
        position, record, _ = self.pending.pop()
        self.pending.append((position, record, request))

    def pending_entries(self) -> Iterator[Entry]:
        """The own home log's entries that are not durable, newest first."""
        for _, record, _ in reversed(self.pending):
            if isinstance(record, HomeEntry):
                yield record.entry

    def has_pending_changes(self, pipeline: str) -> bool:
        """Whether a record that is not durable may change what can be announced of a pipeline."""
        return bool(self._changing[EVERY] or self._changing[pipeline])

    def has_pending_pins(self) -> bool:
        """Whether a pin is not durable."""
        return any(isinstance(record, Pinned) for _, record, _ in self.pending)

    def pending_of(self, kind: type[OfOne], pipeline: str) -> Iterator[OfOne]:
        """Those of a kind that are of one pipeline, newest first."""
        for entry in self.pending_entries():
            if isinstance(entry, kind) and entry.pipeline == pipeline:
                yield entry

    def commit(self, position: int) -> Iterator[tuple[Record, Hashable | None]]:
        """The records that are durable by now and have not taken effect, one after the other."""
        while self.pending and self.pending[0][0] <= position:
            self.committed, record, request = self.pending.popleft()
            self.pending_bytes -= self._sizes.popleft()
            if (changed := changes_min_times_of(record)) is not None:
                self._changing[changed] -= 1
                if not self._changing[changed]:
                    del self._changing[changed]
            yield record, request

    def apply_home(self, number: int) -> None:
        """An entry of the home log takes effect."""
        self.home_last = number

    def replayed(self, position: int) -> None:
        """Recovery has applied the record at this position."""
        self.committed = position

    def restored(self) -> None:
        """All that the log has was applied: what comes next follows it."""
        self.position, self.home_appended = self.committed, self.home_last

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        assert self.committed <= self.position
        assert self.home_last <= self.home_appended
        assert self.pending_bytes == sum(self._sizes) and len(self._sizes) == len(self.pending)
