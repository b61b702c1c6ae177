"""Stateful operators, each with a dumb account of what it finds and of how long it must wait for that.

A result has a name, and the numbers of the rows that it contains: so the files that a sink has committed say
of each row when what came of it left the state. `finds` says the same of all rows at once, as a program without
state would; `until_ms` is the watermark with which nothing is left to come of a row. Neither is of the code that
is being judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.spark_matrix.events import Event

if TYPE_CHECKING:  # older versions of PySpark have none
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

DELAY_MS = 5_000
WINDOW_MS = 10_000
SLIDE_MS = 5_000
OUTER_MS = 20_000
GAP_MS = 5_000
WITHIN_MS = 10_000
"""How much later the right side of a join may be."""
SPAN_MS = 10_000
"""How long the Python state keeps a key after its first row."""
CLOCK_MS = 4_000
"""How long Python state that goes by the clock keeps a key."""
TTL_MS = 2_000
"""How much longer what its code does not clear."""
STRICT_MS = 1
"""What is dropped from state when the watermark has passed its time, and not when it is there."""

RESULT_SCHEMA = "result string, rows array<long>"

Frames: TypeAlias = Mapping[str, DataFrame]
Results: TypeAlias = dict[str, frozenset[int]]


@dataclass(frozen=True)
class Operator:
    """inputs: its fronts. build: its frame, of columns `result` and `rows`, from theirs with watermarks. until_ms: of
    a row among all rows, the watermark by which all has left the state that it is in. span_ms, delay_ms, ahead_ms: what
    its user says (`HeldFor`) of how long it keeps rows, where no plan does. state_store: the provider of its state, where it must be another than
    the session's. by_clock: of the time of batches, not of events, is how long it keeps rows after the batch that took
    them, `CLOCK_MS`."""

    name: str
    build: Callable[[Frames], DataFrame]
    finds: Callable[[Sequence[Event]], Results]
    until_ms: Callable[[Event, Sequence[Event]], int]
    inputs: tuple[str, ...] = ("rows",)
    mode: str = "append"
    span_ms: int | None = None
    delay_ms: int = DELAY_MS
    ahead_ms: int | None = None
    state_store: str = ""
    by_clock: bool = False

    @property
    def waits(self) -> bool:
        """Whether it emits later what it has taken."""
        return self.mode == "append" and self.name not in ("distinct", "distinct-within")


def timed(frame: DataFrame) -> DataFrame:
    """With event times and a watermark."""
    at = F.timestamp_millis(F.col("at_ms"))
    return frame.withColumn("at", at).withWatermark("at", f"{DELAY_MS} milliseconds")


def _rows(column: str = "row") -> Column:
    return F.sort_array(F.collect_list(column)).alias("rows")


def _result(window: str = "window") -> Column:
    begin, end = (F.unix_millis(F.col(f"{window}.{side}")) for side in ("start", "end"))
    return F.concat_ws("-", begin.cast("string"), end.cast("string")).alias("result")


def _millis(milliseconds: int) -> str:
    return f"{milliseconds} milliseconds"


def _down(moment_ms: int, width_ms: int) -> int:
    return moment_ms // width_ms * width_ms


def _grouped(pairs: Iterable[tuple[str, int]]) -> Results:
    found: dict[str, set[int]] = defaultdict(set)
    for name, row in pairs:
        found[name].add(row)
    return {name: frozenset(rows) for name, rows in found.items()}


# --- windows --------------------------------------------------------------------------------------


def _windowed(frame: DataFrame, window: Column) -> DataFrame:
    return frame.groupBy(window.alias("window")).agg(_rows()).select(_result(), "rows")


def _tumbling(frames: Frames) -> DataFrame:
    return _windowed(frames["rows"], F.window("at", _millis(WINDOW_MS)))


def _tumbling_union(frames: Frames) -> DataFrame:
    both = frames["left"].unionByName(frames["right"])
    return _windowed(both, F.window("at", _millis(WINDOW_MS)))


def _in_tumbling(events: Sequence[Event], width_ms: int = WINDOW_MS) -> Results:
    begins = [(_down(e.at_ms, width_ms), e.row) for e in events]
    return _grouped((f"{begin}-{begin + width_ms}", row) for begin, row in begins)


def _end(event: Event, _: Sequence[Event]) -> int:
    return _down(event.at_ms, WINDOW_MS) + WINDOW_MS


TUMBLING = Operator("tumbling", _tumbling, _in_tumbling, _end)
UNION = Operator("union", _tumbling_union, _in_tumbling, _end, ("left", "right"))


def _in_sliding(events: Sequence[Event]) -> Results:
    return _grouped(
        (f"{begin}-{begin + WINDOW_MS}", e.row)
        for e in events
        for begin in range(_down(e.at_ms, SLIDE_MS), e.at_ms - WINDOW_MS, -SLIDE_MS)
    )


SLIDING = Operator(
    "sliding",
    lambda frames: _windowed(frames["rows"], F.window("at", _millis(WINDOW_MS), _millis(SLIDE_MS))),
    _in_sliding,
    lambda event, _: _down(event.at_ms, SLIDE_MS) + WINDOW_MS,
)

AT = Operator(
    "at",
    lambda frames: frames["rows"].groupBy("at").agg(_rows()).select(
        F.unix_millis("at").cast("string").alias("result"), "rows"
    ),
    lambda events: _grouped((str(e.at_ms), e.row) for e in events),
    lambda event, _: event.at_ms,
)  # fmt: skip


def _chain(frames: Frames) -> DataFrame:
    inner = frames["rows"].groupBy(F.window("at", _millis(WINDOW_MS))).agg(_rows())
    outer = inner.groupBy(F.window(F.window_time("window"), _millis(OUTER_MS)).alias("outer"))
    gathered = outer.agg(F.sort_array(F.flatten(F.collect_list("rows"))).alias("rows"))
    return gathered.select(_result("outer"), "rows")


CHAIN = Operator(
    "chain",
    _chain,
    lambda events: _in_tumbling(events, OUTER_MS),
    lambda event, _: _down(event.at_ms, OUTER_MS) + OUTER_MS,
)


def _sessions(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of each session of each key."""
    open_by_key: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda e: e.at_ms):
        session = open_by_key.get(event.key)
        if session is not None and event.at_ms < session[-1].at_ms + GAP_MS:
            session.append(event)
        else:
            if session is not None:
                yield session
            open_by_key[event.key] = [event]
    yield from open_by_key.values()


def _session(frames: Frames) -> DataFrame:
    window = F.session_window("at", _millis(GAP_MS)).alias("window")
    named = F.concat_ws(":", F.col("key").cast("string"), _result()).alias("result")
    return frames["rows"].groupBy(window, "key").agg(_rows()).select(named, "rows")


def _session_end(event: Event, events: Sequence[Event]) -> int:
    return next(s[-1].at_ms for s in _sessions(events) if event in s) + GAP_MS


SESSION = Operator(
    "session",
    _session,
    lambda events: {
        f"{s[0].key}:{s[0].at_ms}-{s[-1].at_ms + GAP_MS}": frozenset(e.row for e in s)
        for s in _sessions(events)
    },
    _session_end,
)

# --- joins ----------------------------------------------------------------------------------------


def _joined(frames: Frames, how: str) -> DataFrame:
    left = frames["left"].select("at", "key", "row")
    right = frames["right"].select(
        F.col("at").alias("later"), F.col("key").alias("its_key"), F.col("row").alias("its_row")
    )
    soon = F.expr(f"later >= at AND later <= at + INTERVAL {WITHIN_MS // 1_000} SECONDS")
    return left.join(right, (F.col("key") == F.col("its_key")) & soon, how)


def _pairs(frames: Frames, how: str) -> DataFrame:
    both = F.array_compact(F.array("row", "its_row"))
    name = F.concat_ws("+", F.col("row").cast("string"), F.col("its_row").cast("string"))
    return _joined(frames, how).select(name.alias("result"), both.alias("rows"))


def _matches(events: Sequence[Event]) -> list[tuple[Event, Event]]:
    return [
        (left, right)
        for left in events if left.front == "left"
        for right in events if right.front == "right"
        if left.key == right.key and left.at_ms <= right.at_ms <= left.at_ms + WITHIN_MS
    ]  # fmt: skip


def _in_pairs(events: Sequence[Event]) -> Results:
    return {f"{a.row}+{b.row}": frozenset((a.row, b.row)) for a, b in _matches(events)}


def _alone(events: Sequence[Event], side: str) -> Results:
    """The rows of a side that have no partner."""
    matched = {event.row for both in _matches(events) for event in both}
    alone = (e.row for e in events if e.front == side and e.row not in matched)
    return {str(row): frozenset([row]) for row in alone}


def _in_outer(events: Sequence[Event]) -> Results:
    return _in_pairs(events) | _alone(events, "left")


def _match_over(event: Event, _: Sequence[Event]) -> int:
    within = WITHIN_MS if event.front == "left" else 0
    return event.at_ms + within + STRICT_MS


_SIDES = ("left", "right")
INNER = Operator("inner", lambda frames: _pairs(frames, "inner"), _in_pairs, _match_over, _SIDES)
OUTER = Operator("outer", lambda frames: _pairs(frames, "left"), _in_outer, _match_over, _SIDES)
RIGHT = Operator(
    "right",
    lambda frames: _pairs(frames, "right"),
    lambda events: _in_pairs(events) | _alone(events, "right"),
    _match_over,
    _SIDES,
)
FULL = Operator(
    "full",
    lambda frames: _pairs(frames, "full"),
    lambda events: _in_pairs(events) | _alone(events, "left") | _alone(events, "right"),
    _match_over,
    _SIDES,
)


def _join_window(frames: Frames) -> DataFrame:
    window = F.window("at", _millis(WINDOW_MS)).alias("window")
    both = F.sort_array(F.array_distinct(F.flatten(F.collect_list(F.array("row", "its_row")))))
    grouped = _joined(frames, "inner").groupBy(window).agg(both.alias("rows"))
    return grouped.select(_result(), "rows")


def _in_join_window(events: Sequence[Event]) -> Results:
    begins = [(_down(left.at_ms, WINDOW_MS), left, right) for left, right in _matches(events)]
    return _grouped(
        (f"{begin}-{begin + WINDOW_MS}", event.row)
        for begin, *both in begins
        for event in both
    )  # fmt: skip


JOIN_WINDOW = Operator(
    "join-window",
    _join_window,
    _in_join_window,
    lambda event, events: _end(event, events) + WITHIN_MS + STRICT_MS,
    _SIDES,
)

# --- state of Python code -------------------------------------------------------------------------


def _kept(frames: Frames) -> DataFrame:
    """Keeps the rows of a key until the watermark has passed the first by `SPAN_MS`."""
    span_ms = SPAN_MS

    def keep(key: Any, batches: Any, state: Any) -> Any:
        import pandas as pd

        if state.hasTimedOut:
            until_ms, rows = state.get
            state.remove()
            yield pd.DataFrame({"result": [f"{key[0]}:{until_ms}"], "rows": [rows]})
            return
        until_ms, rows = state.get if state.exists else (None, "")
        found = pd.concat(list(batches))
        if until_ms is None:
            until_ms = int(found["at_ms"].min()) + span_ms
        state.update((until_ms, ",".join(filter(None, [rows, *map(str, found["row"])]))))
        state.setTimeoutTimestamp(until_ms)

    kept = frames["rows"].groupBy("key").applyInPandasWithState(
        keep, "result string, rows string", "until_ms long, rows string", "append", "EventTimeTimeout"
    )  # fmt: skip
    return kept.select("result", F.split("rows", ",").cast("array<long>").alias("rows"))


def _firsts(events: Sequence[Event]) -> dict[int, tuple[int, frozenset[int]]]:
    """By key: the first event time, and all rows. No key is seen again once it was let go of."""
    keys: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        keys[event.key].append(event)
    return {
        key: (min(e.at_ms for e in found), frozenset(e.row for e in found))
        for key, found in keys.items()
    }


PYTHON = Operator(
    "python",
    _kept,
    lambda events: {
        f"{key}:{first + SPAN_MS}": rows for key, (first, rows) in _firsts(events).items()
    },
    lambda event, events: _firsts(events)[event.key][0] + SPAN_MS + STRICT_MS,
    span_ms=SPAN_MS,
)


def _timers(frames: Frames) -> DataFrame:
    """As `_kept`, by a timer of event time."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    span_ms = SPAN_MS

    class Keep(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._kept = handle.getValueState("kept", "until_ms long, rows string")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import pandas as pd

            found = pd.concat(list(rows))
            until_ms, before = self._kept.get() if self._kept.exists() else (None, "")
            if until_ms is None:
                until_ms = int(found["at_ms"].min()) + span_ms
                self._handle.registerTimer(until_ms)
            self._kept.update((until_ms, ",".join(filter(None, [before, *map(str, found["row"])]))))
            yield pd.DataFrame({"result": [], "rows": []}, dtype="object")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            import pandas as pd

            until_ms, rows = self._kept.get()
            self._kept.clear()
            yield pd.DataFrame({"result": [f"{key[0]}:{until_ms}"], "rows": [rows]})

        def close(self) -> None:
            pass

    kept = frames["rows"].groupBy("key").transformWithStateInPandas(
        Keep(), "result string, rows string", "append", "EventTime"
    )  # fmt: skip
    return kept.select("result", F.split("rows", ",").cast("array<long>").alias("rows"))


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

TIMERS = Operator(
    "timers", _timers, PYTHON.finds, PYTHON.until_ms, span_ms=SPAN_MS, state_store=ROCKSDB
)  # fmt: skip


def _kept_by_clock(frames: Frames) -> DataFrame:
    """Keeps the row of each key for `CLOCK_MS`."""
    clock_ms = CLOCK_MS

    def keep(key: Any, batches: Any, state: Any) -> Any:
        import pandas as pd

        if state.hasTimedOut:
            (row,) = state.get
            state.remove()
            yield pd.DataFrame({"result": [str(key[0])], "row": [row]})
            return
        state.update((int(pd.concat(list(batches))["row"].min()),))
        state.setTimeoutDuration(clock_ms)

    kept = frames["rows"].groupBy("key").applyInPandasWithState(
        keep, "result string, row long", "row long", "append", "ProcessingTimeTimeout"
    )  # fmt: skip
    return kept.select("result", F.array("row").alias("rows"))


def _processor(ttl_ms: int | None) -> StatefulProcessor:
    """As `_kept_by_clock`, by a timer: in the key itself, of which there is no more state; or with a state that its
    code does not clear."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    clock_ms = CLOCK_MS

    class Keep(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            if ttl_ms is not None:
                self._seen = handle.getValueState("seen", "key long", ttlDurationMs=ttl_ms)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import pandas as pd

            for _ in rows:
                pass
            if ttl_ms is not None:
                self._seen.update((key[0],))
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + clock_ms)
            yield pd.DataFrame({"row": []}, dtype="int64")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            import pandas as pd

            yield pd.DataFrame({"row": [key[0]]})

        def close(self) -> None:
            pass

    return Keep()


def _by_processor(frames: Frames, ttl_ms: int | None) -> DataFrame:
    kept = frames["rows"].groupBy("row").transformWithStateInPandas(
        _processor(ttl_ms), "row long", "append", "ProcessingTime"
    )  # fmt: skip
    return kept.select(F.col("row").cast("string").alias("result"), F.array("row").alias("rows"))


def _never(event: Event, _: Sequence[Event]) -> int:
    """No watermark says it."""
    raise AssertionError(event)


PYTHON_CLOCK = Operator(
    "python-clock",
    _kept_by_clock,
    lambda events: {str(e.key): frozenset([e.row]) for e in events},
    _never,
    by_clock=True,
)
TIMERS_CLOCK = Operator(
    "timers-clock",
    lambda frames: _by_processor(frames, None),
    lambda events: {str(e.row): frozenset([e.row]) for e in events},
    _never,
    state_store=ROCKSDB,
    by_clock=True,
)
TTL = Operator(
    "ttl",
    lambda frames: _by_processor(frames, CLOCK_MS + TTL_MS),
    TIMERS_CLOCK.finds,
    _never,
    state_store=ROCKSDB,
    by_clock=True,
)

# --- nothing is emitted later ---------------------------------------------------------------------


def _distinct(frames: Frames, drop: Callable[[DataFrame], DataFrame]) -> DataFrame:
    return drop(frames["rows"]).select(
        F.concat_ws(":", F.col("key").cast("string"), F.col("at_ms").cast("string")).alias(
            "result"
        ),
        F.array("row").alias("rows"),
    )


def _in_distinct(events: Sequence[Event]) -> Results:
    firsts: Results = {}
    for event in events:
        firsts.setdefault(f"{event.key}:{event.at_ms}", frozenset([event.row]))
    return firsts


def _at_once(event: Event, _: Sequence[Event]) -> int:
    return 0


DISTINCT = Operator(
    "distinct",
    lambda frames: _distinct(frames, lambda frame: frame.dropDuplicates(["key", "at"])),
    _in_distinct,
    _at_once,
)
DISTINCT_WITHIN = Operator(
    "distinct-within",
    lambda frames: _distinct(
        frames, lambda frame: frame.dropDuplicatesWithinWatermark(["key", "at_ms"])
    ),
    _in_distinct,
    _at_once,
)
UPDATE = Operator("update", _tumbling, _in_tumbling, _at_once, mode="update")
COMPLETE = Operator("complete", _tumbling, _in_tumbling, _at_once, mode="complete")

OPERATORS = {
    operator.name: operator
    for operator in (
        TUMBLING, UNION, SLIDING, AT, CHAIN, SESSION, INNER, OUTER, RIGHT, FULL, JOIN_WINDOW, PYTHON,
        TIMERS, PYTHON_CLOCK, TIMERS_CLOCK, TTL, DISTINCT, DISTINCT_WITHIN, UPDATE, COMPLETE,
    )
}  # fmt: skip


def outside(operator: Operator) -> Operator:
    """One whose plan nobody sees, with what its user says of it: more than it takes, and how far event times may be ahead
    of the clock, and one stream of the other."""
    return replace(operator, span_ms=60_000, delay_ms=60_000, ahead_ms=180_000)
