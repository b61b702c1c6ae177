"""Gathers the acks of one operator, or of one step, and checks them as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local_tracker.core.merge import merge_acks, merge_cells
from local_tracker.worker.protocol import MAX_CELLS
from tracker.core.model import Cells, HoldMove
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.errors import Code, HandOverError, InvalidError

_MERGE_AT_ACKS = 1 << 20
"""So many acks of one segment are merged before more are kept."""


class _Acks:
    """Acks of one segment in one direction: merged cells, arrays, and single acks not merged yet."""

    def __init__(self, segment: int) -> None:
        self._segment = segment
        self._cells = Cells.empty()
        self._arrays: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []
        self._slots: list[int] = []
        self._values: list[int] = []
        self._pending = 0

    def add_one(self, slot: int, value: int) -> None:
        self._slots.append(slot)
        self._values.append(value)
        self._count(1)

    def add_many(self, slots: NDArray[np.int64], values: NDArray[np.uint64]) -> None:
        self._arrays.append((slots, values))
        self._count(len(slots))

    def _count(self, acks: int) -> None:
        self._pending += acks
        if self._pending >= _MERGE_AT_ACKS:
            self.merged()

    def merged(self) -> Cells:
        """One cell for each slot."""
        if self._slots:
            single = np.array(self._slots, np.int64), np.array(self._values, np.uint64)
            self._arrays.append(single)
        parts = [merge_acks(self._segment, slots, values) for slots, values in self._arrays]
        self._slots, self._values, self._arrays, self._pending = [], [], [], 0
        if parts:
            self._cells = merge_cells(Cells.concatenate([self._cells, *parts]))
        return self._cells


class Collector:
    """Acks of one operator. Its methods may be called from several threads."""

    def __init__(self, name: str, segment_number: Callable[[str], int]) -> None:
        """name: the operator's, for errors. segment_number: a segment's number; raises
        HandOverError for an unknown name."""
        self.name = name
        self._segment_number = segment_number
        self._lock = threading.Lock()
        self._created: dict[str, _Acks] = {}
        self._consumed: dict[str, _Acks] = {}
        self._holds: dict[str, HoldMove] = {}
        self._then: list[Callable[[], None]] = []

    def create(self, segment: str, slots: Any, values: Any) -> None:
        """See `local_tracker.acks.create`."""
        self._add(self._created, segment, slots, values)

    def consume(self, segment: str, slots: Any, values: Any) -> None:
        """See `local_tracker.acks.consume`."""
        self._add(self._consumed, segment, slots, values)

    def hold(self, segment: str, slot: Any, name: str) -> None:
        """See `local_tracker.acks.hold`; at FOREVER it is let go of."""
        if not isinstance(name, str) or not name:
            raise self._error(f"a hold is named by a text that is not empty, not by {name!r}")
        if slot != FOREVER:
            slot = self._slot(slot)
        move = HoldMove(name, self._segment_number(segment), slot)
        with self._lock:
            self._holds[name] = move

    def held_at(self, name: str) -> int | None:
        """Where a hold is to stand after this step; None where that does not move it."""
        with self._lock:
            return self._holds[name].slot if name in self._holds else None

    def then(self, told: Callable[[], None]) -> None:
        """Calls this once what the step does is handed over."""
        with self._lock:
            self._then.append(told)

    def take_then(self) -> list[Callable[[], None]]:
        with self._lock:
            then, self._then = self._then, []
        return then

    def take_holds(self) -> tuple[HoldMove, ...]:
        """Where each hold came to since the last time."""
        with self._lock:
            holds, self._holds = tuple(self._holds.values()), {}
        return holds

    def take(self) -> tuple[Cells, Cells]:
        """(created, consumed) since the last time, merged. Raises HandOverError if that is more than
        can be handed over at once."""
        with self._lock:
            created, consumed = (
                Cells.concatenate(acks.merged() for acks in kept.values())
                for kept in (self._created, self._consumed)
            )
            self._created, self._consumed = {}, {}
        for what, cells in (("created", created), ("consumed", consumed)):
            if len(cells) > MAX_CELLS:
                raise HandOverError(
                    f"operator {self.name!r} {what} items in {len(cells)} different cells (segment "
                    f"and slot) at once; the limit is {MAX_CELLS}: make the batches smaller, use more "
                    f"partitions, or register the pipeline with a wider slack",
                    Code.REFUSED_FULL,
                )
        return created, consumed

    def _add(self, kept: dict[str, _Acks], segment: str, slots: Any, values: Any) -> None:
        if type(slots) is int and type(values) is int:
            one = self._slot(slots), self._value(values)
            with self._lock:
                self._acks(kept, segment).add_one(*one)
            return
        arrays = self._arrays(slots, values)
        if len(arrays[0]):
            with self._lock:
                self._acks(kept, segment).add_many(*arrays)

    def _acks(self, kept: dict[str, _Acks], segment: str) -> _Acks:
        acks = kept.get(segment)
        if acks is None:
            acks = kept[segment] = _Acks(self._segment_number(segment))
        return acks

    def _slot(self, slot: int) -> int:
        if not LOWEST_SLOT <= slot <= HIGHEST_SLOT:
            raise self._error(f"slot {slot} is not within {LOWEST_SLOT} to {HIGHEST_SLOT}")
        return slot

    def _value(self, value: int) -> int:
        if not -(2**63) <= value < 2**64:
            raise self._error(f"the ack value {value} does not fit 64 bits")
        if value == 0:
            raise self._error(
                "an ack value is 0, which would leave no trace; hash where it is from"
            )
        return value % 2**64

    def _arrays(self, slots: Any, values: Any) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        slot_array = self._integers("slots", slots)
        value_array = self._integers("ack values", values)
        if slot_array.ndim == 1 and value_array.ndim == 1 and len(slot_array) != len(value_array):
            raise self._error(
                f"{len(slot_array)} slots do not go with {len(value_array)} ack values: give one of "
                f"each for every item, or one slot for all"
            )
        if value_array.ndim == 0 and slot_array.ndim == 1:
            raise self._error(
                f"one ack value does not go with {len(slot_array)} slots: every item has its own"
            )
        if len(value_array := np.atleast_1d(value_array)) == 0:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        if int(slot_array.max()) > HIGHEST_SLOT:
            raise self._error(f"a slot is above {HIGHEST_SLOT}, the highest")
        if not value_array.all():
            raise self._error(
                "an ack value is 0, which would leave no trace; hash where it is from"
            )
        # Copies, since whoever called may use its arrays again; int64 values keep their bits.
        wide = np.broadcast_to(slot_array.astype(np.int64), value_array.shape)
        return wide, value_array.astype(np.uint64)

    def _integers(self, what: str, given: Any) -> NDArray[Any]:
        # As they are: NumPy would make floats of Python ints such as 2**63 beside -1.
        plain = isinstance(given, (int, list, tuple)) and not isinstance(given, bool)
        array = np.asarray(given, object if plain else None)
        if array.size == 0 and array.ndim == 1:
            return np.empty(0, np.int64)
        if array.dtype == object:
            array = self._from_objects(what, array)
        if array.dtype.kind not in "iu":
            raise self._error(
                f"{what} of type {array.dtype} are not integers (missing values make a column of "
                f"integers one of floats: leave such rows out)"
            )
        if array.ndim > 1:
            raise self._error(f"{what} have {array.ndim} dimensions, not one")
        return array

    def _from_objects(self, what: str, array: NDArray[Any]) -> NDArray[Any]:
        numbers = [int(n) if isinstance(n, np.integer) else n for n in array.reshape(-1).tolist()]
        if not all(type(number) is int and -(2**63) <= number < 2**64 for number in numbers):
            raise self._error(f"{what} are not all integers of 64 bits")
        if what == "slots":
            slots = np.array([self._slot(number) for number in numbers], np.int64)
            return slots.reshape(array.shape)
        words = np.array([number % 2**64 for number in numbers], np.uint64)
        return words.reshape(array.shape)

    def _error(self, message: str) -> InvalidError:
        return InvalidError(f"operator {self.name!r}: {message}", Code.INVALID_ACKS)
