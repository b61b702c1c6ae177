"""What user code calls to acknowledge items: `acks.consume(...)`, `acks.create(...)`.

    from lowmark import acks

    @acks.operator("parse")
    def parse(batches):                        # for mapInArrow or mapInPandas
        for batch in batches:
            acks.consume("parse", batch["slot"], batch["ack"])
            yield ...

Where ack values come from: an item that was read has one already, from whoever created it (a column of a front's
rows, or of what the step before wrote). One that the code makes gets `lowmark.child_value(parent, operator, ordinal)`, or
`child_values` of arrays: the same code on the same item makes the same values again, and no two items share one. Files
that a tracked query writes or reads have values by their names, which are known when the batch has committed: the query
consumes and creates those by its tick. So acks are for items beside a query's own files, in other segments; a query that
acknowledged its own files too would count each twice.

An operator's acks are gathered while its code runs and handed to the host's local tracker as a whole:

- *in a micro-batch of a tracked query* (transactional): once for each task attempt, when the iterator
  has come to its end. They count when the batch commits, those of one attempt of each partition. An
  iterator that is not read to its end, or that fails, hands nothing over. The code must acknowledge
  the same items whenever it sees the same input.
- *in plain Python programs and long-running tasks* (eager): at the end of each step, which is one call
  of an operator's function, one batch that its iterator yields, or one `with acks.step():`. What a step
  consumes and creates becomes durable together (rule 1), before the step ends. A step that raises
  hands nothing over.

Exact where the code sees each item once: `mapInArrow`, `mapInPandas`. Scalar UDFs are side effects:
Spark decides how often, and for which rows, it evaluates them; they are made here as iterators, so that
there is an end of the partition, and as non-deterministic, so that Spark does not duplicate them.
`applyInPandas` has no end of a partition and is refused.
"""

from __future__ import annotations

import collections.abc
import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, ParamSpec, TypeVar

from local_tracker.core.merge import merge_cells
from local_tracker.worker import route
from local_tracker.worker.collector import Collector
from local_tracker.worker.handle import Handle
from local_tracker.worker.route import Route
from tracker.core.log import Grant
from tracker.core.model import Cells, Heartbeat, HoldMove
from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError, InvalidError

__all__ = [
    "Collector", "HandOverError", "Held", "InvalidError", "Recorded", "consume", "create", "current", "heartbeat", "hold",
    "holds", "join_front", "leave_front", "min_time", "operator", "pandas_udf_operator", "recording", "rounds", "step",
    "udf_operator",
]  # fmt: skip

_P = ParamSpec("_P")
_R = TypeVar("_R")

_current: ContextVar[Collector | None] = ContextVar("lowmark_collector", default=None)
_recorder: ContextVar[Recorded | None] = ContextVar("lowmark_recorder", default=None)


# --- acknowledging --------------------------------------------------------------------------------


def consume(segment: str, slots: Any, values: Any) -> None:
    """Acknowledges that items of a segment have been processed.

    slots: global times, integers; values: ack values, 64-bit integers (as int64, their bits count).
    An int and an int, an array and an array of one length, or one slot for an array of values; arrays
    are whatever NumPy reads: Series, Arrow arrays, lists. Raises InvalidError for anything else, or outside
    of operators and steps; HandOverError for an unknown segment.
    """
    current().consume(segment, slots, values)


def create(segment: str, slots: Any, values: Any) -> None:
    """Says that items have come into being that a segment will consume; arguments as in `consume`."""
    current().create(segment, slots, values)


def current() -> Collector:
    """The running operator or step, for code that acknowledges from threads of its own. Raises
    InvalidError outside of them."""
    collector = _current.get()
    if collector is None:
        raise InvalidError(
            "acks belong to a step: call them within a function decorated with acks.operator(...) or "
            "within `with acks.step():`; in a thread of your own, call the methods of acks.current()",
            Code.INVALID_ACKS,
        )
    return collector


@contextmanager
def step(name: str = "step") -> Iterator[Collector]:
    """One whole step of a plain Python program: its acks become durable together, when the block ends
    well. Raises HandOverError; after code `deadline` or `unreachable` they may still become so."""
    destination = _destination()
    if destination.task is not None:
        raise InvalidError(
            f"step {name!r}: acks of a micro-batch are handed over by operators, at the end of a "
            f"partition; decorate the function with acks.operator(...)",
            Code.INVALID_ACKS,
        )
    collector = Collector(name, destination.segment_number)
    with _as_current(collector):
        yield collector
    _hand_over(destination, collector)


# --- holding time ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Held:
    """Time that a long task holds, by the local tracker's node: min time of a segment does not pass its slot.

    In a step, what is done with it becomes durable together with the step's acks; outside of steps it is a
    step of its own, durable on return. As a context it is let go of at the end of a block that ends well; one
    that raises leaves it to whoever does the work again, and finds it in `holds()`.
    """

    segment: str
    name: str
    slot: int

    def move_to(self, slot: int) -> None:
        """Moves it up. Raises InvalidError for a slot below the one where it stands; HandOverError."""
        stands, step_of = self.slot, _current.get()
        if step_of is not None and (moved := step_of.held_at(self.name)) is not None:
            stands = moved
        if slot < stands:
            raise InvalidError(
                f"hold {self.name!r} stands at slot {stands} of segment {self.segment!r}, and cannot move "
                f"back to {slot}: a hold only moves up",
                Code.INVALID_ACKS,
            )
        _hold(self.segment, slot, self.name)
        if step_of is None:
            self._stands(slot)
        else:  # a step that fails has not moved it
            step_of.then(functools.partial(self._stands, slot))

    def _stands(self, slot: int) -> None:
        self.slot = slot

    def release(self) -> None:
        """Lets go of it; once more changes nothing. Raises HandOverError."""
        if self.slot != FOREVER:
            self.move_to(FOREVER)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.release()


def hold(segment: str, slot: int, name: str) -> Held:
    """Holds a slot of a segment from the running step on, which consumes what the hold stands for:

        with acks.step():
            acks.consume("parse", slot, value)
            held = acks.hold("parse", slot, "job 7")
        with held:
            ...                                # hours of work
            with acks.step():
                acks.create("index", slot, results)

    name: the hold's own on this host, the same when the work is done again. Not in micro-batches. Raises
    InvalidError, HandOverError.
    """
    _hold(segment, slot, name)
    return Held(segment, name, slot)


def holds() -> dict[str, Held]:
    """What the local tracker's node holds, by name, as far as it is durable: also what programs have held that
    are gone. Raises HandOverError."""
    handle = _handle()
    return {
        each.name: Held(handle.segment_name(each.segment), each.name, each.slot)
        for each in handle.holds()
    }


def _hold(segment: str, slot: int, name: str) -> None:
    collector = _current.get()
    if collector is not None:
        collector.hold(segment, slot, name)
        return
    with step(f"hold {name!r}") as alone:
        alone.hold(segment, slot, name)


# --- operators ------------------------------------------------------------------------------------


def operator(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorates a function whose code acknowledges: one from an iterator of batches to an iterator of
    batches (for `mapInArrow`, `mapInPandas`, iterator pandas UDFs), or outside of micro-batches any.

    name: the operator's, the same in all runs; each use of one in a query needs its own.
    """
    _check_name(name)

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        call = _Operator(name, function)

        # A plain function, since Spark looks at its arguments; it holds nothing of this module but
        # `call`, whose class is found by name where it is unpickled.
        @functools.wraps(function)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return call(*args, **kwargs)

        return run

    return decorate


def pandas_udf_operator(name: str, return_type: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a function from Series to a Series and makes it a non-deterministic pandas UDF (of
    the iterator kind). Its acks are side effects: exact only where Spark evaluates each row once."""
    _check_name(name)

    def decorate(function: Callable[..., Any]) -> Any:
        functions: Any = importlib.import_module("pyspark.sql.functions")
        series = importlib.import_module("pandas").Series
        run = _iterator_function(function, _Operator(name, _EachBatch(function)), series)
        return functions.pandas_udf(run, return_type).asNondeterministic()

    return decorate


def udf_operator(name: str, return_type: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a function of one row's values and makes it a non-deterministic UDF, evaluated row by
    row over Arrow batches (structs arrive as dicts). Its acks are side effects: exact only where
    Spark evaluates each row once."""
    _check_name(name)

    def decorate(function: Callable[..., Any]) -> Any:
        functions: Any = importlib.import_module("pyspark.sql.functions")
        types: Any = importlib.import_module("pyspark.sql.types")
        array = importlib.import_module("pyarrow").Array
        # Read here, since workers cannot read a type that is written as text.
        is_text = isinstance(return_type, str)
        parse = types._parse_datatype_string  # noqa: SLF001
        data_type = parse(return_type) if is_text else return_type
        run = _iterator_function(function, _Operator(name, _EachRow(function, data_type)), array)
        return functions.arrow_udf(run, data_type).asNondeterministic()

    return decorate


class _Operator:
    """Runs an operator's function and hands over what it acknowledged."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        destination = _destination()
        collector = Collector(self._name, destination.segment_number)
        with _as_current(collector):
            result = self._function(*args, **kwargs)
        if isinstance(result, Iterator):
            return self._drive(result, collector, destination)
        if destination.task is not None:
            raise InvalidError(
                f"operator {self._name!r} got one batch, not the iterator of a whole partition: there "
                f"is no end at which its acks could be handed over; use mapInArrow or mapInPandas, or "
                f"acks.pandas_udf_operator or acks.udf_operator for scalar UDFs",
                Code.INVALID_ACKS,
            )
        _hand_over(destination, collector)
        return result

    def _drive(
        self, results: Iterator[Any], collector: Collector, destination: Recorded | Route | _Nowhere
    ) -> Iterator[Any]:
        while True:
            with _as_current(collector):
                try:
                    result = next(results)
                except StopIteration:
                    break
            yield result
            if destination.task is None:
                # Whoever asks for the next has taken this one: a step is over.
                _hand_over(destination, collector)
        _hand_over(destination, collector)


class _EachBatch:
    """Applies a function of columns to each batch of an iterator UDF."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield self._function(*batch) if isinstance(batch, tuple) else self._function(batch)


class _EachRow:
    """Applies a function of values to each row of the Arrow batches of an iterator UDF."""

    def __init__(self, function: Callable[..., Any], return_type: Any) -> None:
        self._function, self._return_type = function, return_type

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        pyarrow: Any = importlib.import_module("pyarrow")
        types: Any = importlib.import_module("pyspark.sql.pandas.types")
        arrow_type = types.to_arrow_type(self._return_type, timezone="UTC")
        for batch in batches:
            columns = batch if isinstance(batch, tuple) else (batch,)
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            yield pyarrow.array([self._function(*row) for row in rows], arrow_type)


# --- fronts and min time --------------------------------------------------------------------------


def min_time(segment: str | None = None) -> int:
    """Min time of a segment, or of the whole pipeline: a slot, exclusive, as the host's local tracker
    has heard it last. Raises HandOverError."""
    return _handle().min_time(segment)


def rounds() -> Rounds:
    """How the pipeline's slots are packed: `acks.rounds().next_round(slot)` is the slot of what goes round a loop
    once more. Raises HandOverError."""
    return _handle().rounds()


def join_front(front: str, segment: str) -> Grant:
    """Begins a front that feeds a segment, as one of the eager local tracker's node; returns when it
    may label, from the slot of the grant on. Raises HandOverError."""
    return _handle().join_front(front, segment)


def heartbeat(front: str, slot: int) -> None:
    """A front's promise that it will label nothing below a slot; durable on return. What it created
    below must have been handed over before. Raises HandOverError."""
    promise = (Heartbeat(front, slot),)
    _handle().step(Cells.empty(), Cells.empty(), promise, f"the promise of front {front!r}")


def leave_front(front: str) -> None:
    """Ends a front, after its last items have been handed over. Raises HandOverError."""
    _handle().leave_front(front)


# --- where acks go --------------------------------------------------------------------------------


@dataclass(eq=False)
class Recorded:
    """What `recording()` has kept: one cell for each (segment, slot) that operators and steps created
    and consumed; `segments` gives names to the numbers, in the order in which they were first used."""

    segments: list[str]
    created: Cells
    consumed: Cells
    holds: dict[str, HoldMove] = field(default_factory=dict)
    """By name where holds stand that were not let go of."""
    task: ClassVar[None] = None

    def segment_number(self, name: str) -> int:
        if name not in self.segments:
            self.segments.append(name)
        return self.segments.index(name)

    def hand_over(
        self, operator: str, created: Cells, consumed: Cells, holds: tuple[HoldMove, ...] = ()
    ) -> None:
        self.created = merge_cells(Cells.concatenate([self.created, created]))
        self.consumed = merge_cells(Cells.concatenate([self.consumed, consumed]))
        for move in holds:
            self.holds[move.name] = move
            if move.slot == FOREVER:
                del self.holds[move.name]


@contextmanager
def recording() -> Iterator[Recorded]:
    """For tests of user code: within the block acks go nowhere but into what is returned."""
    recorded = Recorded([], Cells.empty(), Cells.empty())
    token = _recorder.set(recorded)
    try:
        yield recorded
    finally:
        _recorder.reset(token)


class _Nowhere:
    """Where acks go that are turned off."""

    task = None

    def segment_number(self, name: str) -> int:
        return 0

    def hand_over(
        self, operator: str, created: Cells, consumed: Cells, holds: tuple[HoldMove, ...] = ()
    ) -> None:
        return None


def _destination() -> Recorded | Route | _Nowhere:
    """Where the acks of one operator or step go: decided when it begins."""
    return _recorder.get() or route.current() or _Nowhere()


def _hand_over(destination: Recorded | Route | _Nowhere, collector: Collector) -> None:
    """Hands over what an operator or step has acknowledged, and holds, since the last time."""
    holds = collector.take_holds()
    if holds and destination.task is not None:
        raise InvalidError(
            f"operator {collector.name!r} holds time in a micro-batch, whose tasks may run again: hold it in "
            "plain Python programs and long-running tasks (mode eager)",
            Code.INVALID_ACKS,
        )
    then = collector.take_then()
    destination.hand_over(collector.name, *collector.take(), holds)
    for told in then:
        told()


def _handle() -> Handle:
    destination = _destination()
    if not isinstance(destination, Route):
        raise InvalidError(
            "there is no local tracker: LOWMARK_MODE is off, or acks are recorded",
            Code.INVALID_SETTINGS,
        )
    return destination.handle


@contextmanager
def _as_current(collector: Collector) -> Iterator[None]:
    token = _current.set(collector)
    try:
        yield
    finally:
        _current.reset(token)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidError(
            f"an operator is named by a text that is not empty, not by {name!r}", Code.INVALID_ACKS
        )


def _iterator_function(function: Callable[..., Any], call: _Operator, column: Any) -> Any:
    """A plain function with the name and documentation of `function` and, by its annotations, which
    Spark goes by, from an iterator of `column`s to another."""

    @functools.wraps(function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        return call(batches)

    del run.__wrapped__
    columns = collections.abc.Iterator[column]
    run.__annotations__ = {"batches": columns, "return": columns}
    return run
