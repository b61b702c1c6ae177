"""Taking units into the buffer: found, resolved, read in parts, consumed; in the order of their slots."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

from tracker.client.node import NodeClient
from tracker.consumers.barrier.ledger import Ledger, Unit
from tracker.consumers.barrier.rows import Item, RowReader, chunks, skipped
from tracker.consumers.barrier.sources import Source
from tracker.consumers.reorder import ReorderBuffer
from tracker.core.log import Joined
from tracker.core.model import Batch, Cells, TickContent
from tracker.core.model import Unit as UnitName
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import slot_in_name
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import Code, LateError, LowmarkError, StateError, UnavailableError
from tracker.files import AwayError, FilesError

SCOPE = "barrier"
"""Of the ticks' idempotence keys: the numbers of units."""
ASKED_AT_ONCE = 1_000
"""Units whose slots are asked for by one call."""
UNRESOLVED_AFTER_S = 1.0
"""A unit that the tracker does not know for so long is reported."""
MAX_TICKS_UNDER_WAY = 1_000
"""Units whose ticks are not durable yet; no more are taken until some are."""
LOOK_FIRST_S, LOOK_MOST_S = 0.02, 1.0
"""How long is waited between two looks at the sources: at first, doubled with each look in vain, at most."""


def taken_durably(joined: Joined, node_id: str, ledger: Ledger, buffer: ReorderBuffer) -> int:
    """How many units of a barrier the tracker has as taken. joined: what it has answered the node, or would answer
    it. Raises StateError if it has more than the buffer."""
    durable = max((batch.id for batch in joined.last_batches if batch.scope == SCOPE), default=0)
    if durable > ledger.last_number:
        raise StateError(
            f"the tracker has {durable} units as taken by node {node_id!r}, and {buffer.path} "
            f"has {ledger.last_number}: rows of the others were in a newer buffer; bring that one back"
        )
    return durable


class Taker:
    """What of a barrier takes units. One thread uses it."""

    def __init__(
        self,
        node: NodeClient,
        segment: str,
        buffer: ReorderBuffer,
        ledger: Ledger,
        sources: Sequence[Source],
        reader: RowReader | None,
        *,
        late_beside: bool,
        room: tuple[int, int],
    ) -> None:
        """room: rows and bytes that may wait before it pushes back."""
        self._node, self._segment, self._number = node, segment, node.segment(segment)
        self._buffer, self._ledger, self._sources = buffer, ledger, sources
        self._reader, self._late_beside, self._room = reader, late_beside, room
        self._open: tuple[str, Iterator[list[Item]]] | None = None
        self._ticks: deque[tuple[int, Future[int]]] = deque()
        self._look_s, self._pause_s = 0.0, LOOK_FIRST_S
        self._asked_up_to = -(2**63)
        self._unresolved_since_s: float | None = None
        self._unresolved: list[str] = []
        self._away, self._again_s = "", 0.0
        """Why a store cannot be read at the moment; and until when it is not asked."""
        self.is_full = False
        """Whether a unit waits for room."""

    def begin(self) -> None:
        """Goes on where an earlier process was. The node has joined. Raises StateError if the tracker has more
        of this barrier than the buffer."""
        joined = self._node.joined
        durable = taken_durably(joined, self._node.node_id, self._ledger, self._buffer)
        self._ledger.begin_generation(joined.generation, joined.replay_from, durable)
        self._ledger.consumed(durable)
        for number, unit in self._ledger.due(durable):
            self._consume(number, unit)

    def step(self, min_time: int) -> bool:
        """Does a part of what is to be done, a chunk of rows at most; returns whether there was anything."""
        settled = self._settle()
        if time.monotonic() < self._again_s:
            return settled
        try:
            looked = self._look()
            took = self._take(min_time)
        except AwayError as error:
            self._away = str(error)
            self._again_s = time.monotonic() + LOOK_MOST_S
            return settled
        self._away = ""
        return took or looked or settled

    def add(self, name: str, items: Iterable[Item]) -> bool:
        """Takes one unit whose rows are at hand. It must be open in the segment, which the tick that creates
        it says; returns False, and takes no row, if it was taken before."""
        if self._ledger.is_taken(name):
            return False
        slots = self._slots_of([name])
        if name not in slots:
            raise LowmarkError(
                f"unit {name!r} is not open in segment {self._segment!r}: commit the tick that creates it, and "
                "wait until it is durable, before its rows are added"
            )
        self._ledger.resolved(slots.items())
        unit = self._ledger.unit(name)
        is_new = not unit.was_taken
        for chunk in chunks(skipped(items, unit.rows), name) if is_new else ():
            self._put(unit, chunk)
            unit = self._ledger.unit(name)
        self._consume(self._ledger.whole(unit), unit)
        return is_new

    def waits(self) -> list[WaitCause]:
        """What it waits for, for people."""
        causes = []
        if self._away:
            causes.append(WaitCause(WaitKind.OTHER, f"its files: {self._away}", self._number))
        since_s = self._unresolved_since_s
        if since_s is not None and time.monotonic() - since_s > UNRESOLVED_AFTER_S:
            names = ", ".join(name.rpartition("/")[2] for name in self._unresolved[:3])
            text = f"{len(self._unresolved)} files that no tick has created, such as {names}"
            causes.append(WaitCause(WaitKind.UNKNOWN_ITEMS, text, self._number))
        if self.is_full:
            text = (
                f"room: {len(self._buffer)} rows of {self._buffer.held_bytes} bytes wait in {self._buffer.path}, the "
                f"limits are {self._room[0]} and {self._room[1]}; find out what holds min time back, or allow more"
            )
            causes.append(WaitCause(WaitKind.OTHER, text, self._number))
        return causes

    def _look(self) -> bool:
        """Looks for new units, and for the slots of those that were found."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return False
        new = 0
        for source in self._sources:
            for found in source.after(self._ledger.cursors(source.name)):
                new += self._ledger.found(source.name, found)
        resolved = self._resolve()
        self._pause_s = LOOK_FIRST_S if new or resolved else min(2 * self._pause_s, LOOK_MOST_S)
        self._look_s = time.monotonic() + self._pause_s
        return bool(resolved)

    def _resolve(self) -> int:
        asked = self._ledger.unresolved(ASKED_AT_ONCE, self._asked_up_to)
        self._asked_up_to = asked[-1][0] if len(asked) == ASKED_AT_ONCE else -(2**63)
        if not asked:
            self._unresolved, self._unresolved_since_s = [], None
            return 0
        names = [name for _, name, _ in asked]
        try:
            slots = self._slots_of(names)
        except UnavailableError:
            return 0
        self._ledger.resolved(slots.items())
        self._unresolved = [name for _, name, is_missed in asked if is_missed and name not in slots]
        if not self._unresolved or slots:
            self._unresolved_since_s = None
        if self._unresolved and self._unresolved_since_s is None:
            self._unresolved_since_s = time.monotonic()
        return len(slots)

    def _slots_of(self, names: Sequence[str]) -> dict[str, int]:
        """Of units whose names say them, as those of fronts' files do, and of those that are open."""
        told = {name: slot for name in names if (slot := slot_in_name(name)) is not None}
        asked = [name for name in names if name not in told]
        return told | (self._node.resolve_units(self._segment, asked) if asked else {})

    def _take(self, min_time: int) -> bool:
        """Puts the next part of the lowest unit into the buffer."""
        unit = self._ledger.lowest()
        # What min time waits for is taken in any case: nothing would be released otherwise.
        needs_room = unit is not None and not unit.was_taken and unit.slot > min_time
        self.is_full = needs_room and not self._has_room()
        if unit is None or self.is_full or len(self._ticks) >= MAX_TICKS_UNDER_WAY:
            return False
        if unit.was_taken:
            self._consume(self._ledger.whole(unit), unit)
            return True
        if self._open is None or self._open[0] != unit.name:
            self._open = (unit.name, self._chunks(unit))
        chunk = self._next_chunk(unit)
        if chunk:
            self._put(unit, chunk)
        else:
            self._open = None
            self._consume(self._ledger.whole(unit), unit)
        return True

    def _next_chunk(self, unit: Unit) -> list[Item]:
        """Empty at the end."""
        assert self._open is not None
        try:
            return next(self._open[1], [])
        except Exception:
            self._open = None
            raise

    def _chunks(self, unit: Unit) -> Iterator[list[Item]]:
        if self._reader is None:
            raise FilesError(f"{unit.name} cannot be read: the barrier was given no reader of rows")
        return chunks(skipped(self._reader.items(unit.name, unit.slot), unit.rows), unit.name)

    def _put(self, unit: Unit, chunk: Sequence[Item]) -> None:
        # A row below its unit's slot may be below min time at any moment, whatever it is now.
        floor = max(self._buffer.released_below, unit.slot)
        late = [(unit.rows + i, item) for i, item in enumerate(chunk) if item[0] < floor]
        if late and not self._late_beside:
            slot, key, _ = late[0][1]
            raise LateError(
                f"{len(late)} rows of {unit.name} are late, such as {key!r} at slot {slot}: everything below "
                f"{self._buffer.released_below} was released, and the file is of slot {unit.slot}; keep them beside "
                "the sink (--set late=beside)",
                Code.LATE_ROWS,
            )
        self._ledger.add(unit, [item for item in chunk if item[0] >= floor], late)

    def _has_room(self) -> bool:
        rows, size = self._room
        return len(self._buffer) < rows and self._buffer.held_bytes < size

    def _consume(self, number: int, unit: Unit) -> None:
        """All rows are durable in the buffer: the unit may leave the segment."""
        content = TickContent(
            consumed=Cells.of([(self._number, unit.slot, unit_value(unit.name), 1)]),
            batch=Batch(SCOPE, number, unit_value(unit.name).to_bytes(8)),
            units_consumed=(UnitName(self._number, unit.name, unit.slot),),
        )
        self._ticks.append((number, self._node.commit(content)))

    def settle(self, timeout_s: float) -> None:
        """Returns when all units that are whole have left the segment. Raises what `NodeClient.flush` raises."""
        self._node.flush(timeout_s)
        self._settle()

    def _settle(self) -> bool:
        """Forgets units whose ticks are durable. Raises what refused one."""
        number = 0
        while self._ticks and self._ticks[0][1].done():
            number, future = self._ticks.popleft()
            future.result()
        if number:
            self._ledger.consumed(number)
        return number > 0
