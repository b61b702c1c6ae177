"""What the state of a query does, recognised in its analysed plan.

Each operator of the plan is known by its class, or it is not understood. Of each column that Spark takes for
an event time it is followed how its values come about, from the watermark upwards; a column of which that is
not known cannot say when state is emitted. How long a join keeps its rows is not read from its condition:
Spark itself is asked, by what it evicts with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from local_tracker.spark.scala import class_name, items, iterated, optional
from local_tracker.spark.state.clocks import BY_CLOCK
from local_tracker.spark.state.rules import (
    US_PER_MS,
    Later,
    StateKind,
    StatePlan,
    Step,
    Steps,
    Wait,
    Watermark,
    WatermarkPolicy,
    WindowTime,
    duration_text_us,
    waits_of,
)
from local_tracker.spark.state.windows import is_window_time, session_gap, window_of

_DELAY = "spark.watermarkDelayMs"
"""In the metadata of each column that Spark takes for an event time."""
_SESSION = "spark.sessionWindow"
"""In the metadata of each session window."""
_AT_WATERMARK_MS = 1 << 40
"""A watermark, in ms since 1970, by which Spark is asked what a join would evict: far above any interval."""
_DAY_US = 86_400_000 * US_PER_MS
_FIXED_ZONES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
"""Time zones in which a day has 24 hours, always."""

_AT_ONCE = frozenset({
    "CollectMetrics", "Deduplicate", "DeduplicateWithinWatermark", "DeserializeToObject", "AppendColumns",
    "Filter", "FlatMapGroupsInArrow", "FlatMapGroupsInPandas", "Generate", "GlobalLimit", "LocalLimit",
    "MapElements", "MapInArrow", "MapInPandas", "MapPartitions", "PythonMapInArrow", "RebalancePartitions",
    "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample", "ScriptTransformation",
    "SerializeFromObject", "Sort", "SubqueryAlias", "TypedFilter", "UnresolvedHint", "View",
})  # fmt: skip
"""Operators of one input that emit in each batch what they make of it, and pass the columns that they keep."""
_USERS = {
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "TransformWithStateInPySpark": "transformWithState",
}
_NO_TIMERS = frozenset(("NoTime", "NoTimeout"))
_JOINS = frozenset({"Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi"})


class _NotUnderstoodError(Exception):
    """What of a plan is not understood, in words."""


@dataclass(frozen=True, slots=True)
class _Column:
    """How the values of an event time come about. ways: each from an event time at a watermark; those of
    a window lead to its end. is_session: it is that of a session window."""

    ways: frozenset[Steps]
    is_window: bool = False
    is_session: bool = False

    def then(self, step: Step, *, is_window: bool = False, is_session: bool = False) -> _Column:
        """What comes about of it by one more step."""
        return _Column(frozenset((*way, step) for way in self.ways), is_window, is_session)


@dataclass(frozen=True, slots=True)
class _User:
    """An operator with a function of the user's. has_timers: it may emit without rows, by a clock or a watermark;
    by_clock: it may do so by a clock."""

    name: str
    has_timers: bool = False
    by_clock: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """What a part of a plan does. columns: by the id of their expression; waits: those of its operators;
    lag_us: how far the watermark above it is behind the query's; users: its operators with a function of
    the user's; session: it has session windows, of this kind."""

    columns: Mapping[int, _Column] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()
    lag_us: int = 0
    users: tuple[_User, ...] = ()
    has_session: bool = False
    watermarks: tuple[Watermark, ...] = ()


def state_plan(spark: Any, plan: Any, mode: str, policy: str) -> StatePlan:
    """What a query's state does. spark: the session; plan: the analysed one of the frame that is written;
    mode: of output, as Spark calls it; policy: `min` or `max`. Starts and changes nothing."""
    reader, found = _Plan(spark, mode), _Found()
    try:
        found = reader.found(plan)
        among = WatermarkPolicy(policy.lower())
        if found.users and (found.waits or len(found.users) > 1):
            others = ", ".join(dict.fromkeys(w.what for w in found.waits)) or found.users[1].name
            raise _NotUnderstoodError(f"{found.users[0].name} beside {others}")
    except _NotUnderstoodError as error:
        by_clock = any(user.by_clock for user in found.users)
        return StatePlan(StateKind.UNKNOWN, mode=mode, what=str(error), by_clock=by_clock)
    kind = StateKind.NOTHING
    if found.users:
        kind = StateKind.USER
    elif found.waits:
        kind = StateKind.SESSION if found.has_session else StateKind.BOUNDED
    user = found.users[0] if found.users else _User("")
    return StatePlan(
        kind, found.watermarks, among, mode, found.waits, user.name,
        has_timers=user.has_timers, by_clock=user.by_clock,
    )  # fmt: skip


class _Plan:
    """Reads one plan, from its leaves upwards."""

    def __init__(self, spark: Any, mode: str) -> None:
        self._spark, self._jvm, self._mode = spark, spark.sparkContext._jvm, mode
        self._kinds: dict[str, Callable[[Any], _Found]] = {
            "EventTimeWatermark": self._watermark,
            "Project": self._project,
            "Expand": self._expand,
            "Aggregate": self._aggregate,
            "Distinct": self._distinct,
            "Join": self._join,
            "Union": self._union,
        }

    def found(self, node: Any) -> _Found:
        """Of a node and all below it. Raises _NotUnderstoodError."""
        if not node.isStreaming():
            return _Found()
        name, children = class_name(node), items(node.children())
        if not children:
            return _Found()
        if name in self._kinds:
            return self._kinds[name](node)
        if name in _USERS:
            below = [self.found(child) for child in children]
            return _Found(
                waits=_all_waits(below),
                users=(_user(node), *(user for one in below for user in one.users)),
                watermarks=_all_watermarks(below),
            )
        if name in _AT_ONCE and len(children) == 1:
            return self.found(children[0])
        raise _NotUnderstoodError(f"operator {name}")

    def _watermark(self, node: Any) -> _Found:
        below = self.found(node.children().apply(0))
        if below.waits or below.users:
            raise _NotUnderstoodError(
                f"withWatermark above {below.users[0].name if below.users else below.waits[0].what}"
            )
        column = node.eventTime()
        marked = next(a for a in items(node.output()) if _id(a) == _id(column))
        watermark = Watermark(str(marked.name()), int(marked.metadata().getLong(_DELAY)))
        is_time = class_name(marked.dataType()) in ("TimestampType", "TimestampNTZType")
        columns = {_id(marked): _Column(frozenset({()}))} if is_time else {}
        return replace(below, columns=columns, watermarks=(*below.watermarks, watermark))

    def _project(self, node: Any) -> _Found:
        below = self.found(node.children().apply(0))
        made = self._made(items(node.projectList()), below.columns)
        return replace(below, columns={**below.columns, **made})

    def _made(
        self, expressions: Sequence[Any], columns: Mapping[int, _Column]
    ) -> dict[int, _Column]:
        """What new names, and windows, are made of known columns, by their ids."""
        found: dict[int, _Column] = {}
        for expression in expressions:
            if class_name(expression) != "Alias":
                continue
            column = _of(expression.child(), columns)
            if column is None and _is_event_time(expression):
                column = self._made_time(expression.child(), columns)
            if column is not None:
                found[_id(expression)] = column
        return found

    def _made_time(self, expression: Any, columns: Mapping[int, _Column]) -> _Column | None:
        """An event time that is made of another: a window, its `window_time`, a session."""
        source = _made_of(expression, columns)
        if source is None:
            return None
        name, column = source
        text = str(expression.toString())
        if column.is_window:
            is_last = not column.is_session and is_window_time(text, name)
            return column.then(WindowTime()) if is_last else None
        if (window := window_of(text, name)) is not None:
            return column.then(window[0], is_window=True) if window[1] == 0 else None
        if (gap := session_gap(text, name)) is not None:
            return column.then(Later(self._gap_us(gap)), is_window=True, is_session=True)
        return None

    def _gap_us(self, gap: str) -> int:
        """A gap as Spark reads it, with days of 24 hours and months of 28 days, the shortest."""
        spark = self._jvm.org.apache.spark
        text = spark.unsafe.types.UTF8String.fromString(gap)
        interval = spark.sql.catalyst.util.IntervalUtils.stringToInterval(text)
        period = interval.extractAsPeriod()
        days = int(period.toTotalMonths()) * 28 + int(period.getDays())
        return days * _DAY_US + int(interval.extractAsDuration().toNanos()) // 1000

    def _expand(self, node: Any) -> _Found:
        """Sliding windows: each row once for every window that holds it."""
        below = self.found(node.children().apply(0))
        rows = [items(projection) for projection in items(node.projections())]
        columns: dict[int, _Column] = {}
        for index, attribute in enumerate(items(node.output())):
            column = self._expanded([row[index] for row in rows], below.columns)
            if column is not None:
                columns[_id(attribute)] = column
        return replace(below, columns=columns)

    def _expanded(self, copies: Sequence[Any], columns: Mapping[int, _Column]) -> _Column | None:
        """What a column of each copy of a row is: the same known one, or all windows that hold it."""
        same = {_of(copy, columns) for copy in copies}
        if len(same) == 1 and None not in same:
            return same.pop()
        source = _made_of(copies[0], columns)
        if source is None or source[1].is_window:
            return None
        name, column = source
        found = [window_of(str(copy.toString()), name) for copy in copies]
        windows = {one[0] for one in found if one is not None}
        backs_us = [one[1] for one in found if one is not None]
        if len(windows) != 1 or len(backs_us) != len(copies):
            return None
        window = windows.pop()
        is_all = backs_us == list(range(0, window.size_us, window.slide_us))
        return column.then(window, is_window=True) if is_all else None

    def _distinct(self, node: Any) -> _Found:
        """`SELECT DISTINCT`, which Spark runs as an aggregation by all columns."""
        return self._grouped(items(node.output()), self.found(node.children().apply(0)))

    def _aggregate(self, node: Any) -> _Found:
        below = self.found(node.children().apply(0))
        keys = items(node.groupingExpressions())
        found = self._grouped(keys, below)
        made = self._made(items(node.aggregateExpressions()), found.columns)
        return replace(found, columns={**found.columns, **made})

    def _grouped(self, keys: Sequence[Any], below: _Found) -> _Found:
        """An aggregation. In append mode a group is emitted when its event time has passed."""
        if self._mode != "Append":
            return below
        times = {_id(key): key for key in keys if _is_event_time(key)}
        if len(times) != 1:
            named = ", ".join(str(key.name()) for key in times.values()) or "no event time"
            raise _NotUnderstoodError(f"an aggregation by {named}")
        ((number, key),) = times.items()
        if below.has_session:
            raise _NotUnderstoodError("an aggregation above session windows")
        column = below.columns.get(number)
        if column is None and key.metadata().contains(_SESSION):
            raise _NotUnderstoodError("session windows whose gap is not fixed")
        if column is None:
            raise _NotUnderstoodError(
                f"an aggregation by {key.name()!s}, of which it is not known how it comes about"
            )
        if column.is_session and below.waits:
            raise _NotUnderstoodError(f"session windows above {below.waits[0].what}")
        waits = _waits(column, below.lag_us, str(key.name()))
        return replace(
            below,
            columns={number: column},
            waits=(*below.waits, *waits),
            has_session=column.is_session,
        )

    def _union(self, node: Any) -> _Found:
        children = items(node.children())
        if not all(child.isStreaming() for child in children):
            raise _NotUnderstoodError("a union with what is no stream")
        below = [self.found(child) for child in children]
        if any(one.has_session for one in below) and sum(bool(one.waits) for one in below) > 1:
            raise _NotUnderstoodError("session windows beside another stateful operator")
        outputs = [items(child.output()) for child in children]
        columns: dict[int, _Column] = {}
        for index, attribute in enumerate(items(node.output())):
            parts = [
                one.columns.get(_id(out[index])) for one, out in zip(below, outputs, strict=True)
            ]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts) and len({part.is_window for part in known}) == 1:
                ways = frozenset(way for part in known for way in part.ways)
                columns[_id(attribute)] = _Column(
                    ways, known[0].is_window, any(part.is_session for part in known)
                )
        return _together(below, columns)

    def _join(self, node: Any) -> _Found:
        left, right = items(node.children())
        if not (left.isStreaming() and right.isStreaming()):
            return self.found(left if left.isStreaming() else right)
        below = [self.found(left), self.found(right)]
        kind = class_name(node.joinType())
        if kind not in _JOINS or any(one.has_session for one in below):
            raise _NotUnderstoodError(
                f"a {kind} join of streams" + (" above session windows" if kind in _JOINS else "")
            )
        plain = self._plain(node)
        keys = self._time_keys(plain)
        if keys is not None:
            return _joined_by_key(below, *keys)
        return self._joined_by_interval(plain, below)

    def _plain(self, node: Any) -> Any:
        """A join whose condition is written out, as Spark's optimiser does it before the join is run."""
        rules = self._jvm.org.apache.spark.sql.catalyst.optimizer
        node = rules.ReplaceExpressions.apply(node)
        if node.condition().isDefined() and "commonexpressionref(" in str(
            node.condition().toString()
        ):
            node = rules.RewriteWithExpression.apply(node)
        return node

    def _time_keys(self, join: Any) -> tuple[int, int] | None:
        """The event times that a join takes for equal, by the ids of left and right; None if it has none."""
        planning = self._jvm.org.apache.spark.sql.catalyst.planning
        parts = optional(planning.ExtractEquiJoinKeys.unapply(join))
        if parts is None:
            return None
        pairs = list(
            zip(items(parts.productElement(1)), items(parts.productElement(2)), strict=True)
        )
        for pair in pairs:
            if any(_is_event_time(key) for key in pair):
                if not all(class_name(key) == "AttributeReference" for key in pair):
                    raise _NotUnderstoodError("a join of streams by what is made of an event time")
                return _id(pair[0]), _id(pair[1])
        return None

    def _joined_by_interval(self, join: Any, below: Sequence[_Found]) -> _Found:
        sides = [join.left(), join.right()]
        lags_ms = [self._lag_ms(sides[0], sides[1], join), self._lag_ms(sides[1], sides[0], join)]
        columns: list[tuple[int, _Column]] = []
        for one, side, lag_ms in zip(below, sides, lags_ms, strict=True):
            times = {_id(a): a for a in items(side.output()) if _is_event_time(a)}
            known = [(number, one.columns[number]) for number in times if number in one.columns]
            if len(times) != 1 or not known or known[0][1].is_window or lag_ms is None:
                raise _NotUnderstoodError(
                    "a join of streams that is not bounded on both sides: write its condition as intervals "
                    "between the event times of the two, as l.ts <= r.ts AND r.ts <= l.ts + INTERVAL 1 HOUR"
                )
            columns.append(known[0])
        lags_us = [max(lag_ms or 0, 0) * US_PER_MS for lag_ms in lags_ms]
        lag_us = max(one.lag_us for one in below)
        waits = [
            wait
            for (_, column), own_us in zip(columns, lags_us, strict=True)
            for wait in waits_of(
                sorted(column.ways, key=str), lag_us + own_us,
                f"a join within {duration_text_us(_interval_us(join, max(lags_us)))}",
            )
        ]  # fmt: skip
        found = _together(below, self._of_either(join, columns, lags_us))
        return replace(found, waits=(*found.waits, *waits), lag_us=lag_us + max(lags_us))

    def _lag_ms(self, kept: Any, other: Any, join: Any) -> int | None:
        """By how much the time of a row of the side `kept` is behind the watermark when Spark evicts it;
        None if it never does."""
        helper = self._jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
        found = optional(
            helper.getStateValueWatermark(
                kept.outputSet(), other.outputSet(), join.condition(),
                self._jvm.scala.Option.apply(_AT_WATERMARK_MS),
            )
        )  # fmt: skip
        if found is None or int(found) <= 0:
            return None
        return _AT_WATERMARK_MS - int(found)

    def _of_either(
        self, join: Any, columns: Sequence[tuple[int, _Column]], lags_us: Sequence[int]
    ) -> dict[int, _Column]:
        """How the two event times come about in rows that are joined: either may be that of a row that came
        later, and is as far beyond the other's as the condition lets it be."""
        condition = str(join.condition().toString())
        casts = set(re.findall(r" as (\w+)", condition)) - {"timestamp", "timestamp_ntz"}
        days = max(lags_us) > _DAY_US and self._zone() not in _FIXED_ZONES
        if casts or days:
            return {}
        found: dict[int, _Column] = {}
        for (number, own), (_, other), others_us in zip(
            columns, reversed(columns), reversed(lags_us), strict=True
        ):
            by_us = _interval_us(join, others_us)
            later = frozenset((*way, Later(by_us)) if by_us else way for way in other.ways)
            found[number] = _Column(own.ways | later)
        return found

    def _zone(self) -> str:
        return str(self._spark.conf.get("spark.sql.session.timeZone", ""))


def _user(node: Any) -> _User:
    kind = class_name(node)
    timers = node.timeMode() if kind.startswith("TransformWithState") else node.timeout()
    mode = str(timers.toString())
    return _User(_USERS[kind], mode not in _NO_TIMERS, mode in BY_CLOCK)


def _interval_us(join: Any, lag_us: int) -> int:
    """How far event times that are joined are apart at most, by how long Spark keeps their rows: where no
    bound of a condition is strict, that is 1 ms more."""
    is_strict = re.search(r" [<>] ", str(join.condition().toString())) is not None
    return lag_us if is_strict else max(lag_us - US_PER_MS, 0)


def _joined_by_key(below: Sequence[_Found], left: int, right: int) -> _Found:
    """A join of rows whose event times are equal: both wait until the watermark has passed that time."""
    columns = [below[0].columns.get(left), below[1].columns.get(right)]
    known = [column for column in columns if column is not None]
    if len(known) != 2 or known[0].is_window != known[1].is_window:
        raise _NotUnderstoodError(
            "a join of streams by an event time that only one of them has a watermark for"
        )
    both = _Column(known[0].ways | known[1].ways, known[0].is_window)
    lag_us = max(one.lag_us for one in below)
    waits = waits_of(sorted(both.ways, key=str), lag_us, "a join by event time")
    found = _together(below, {left: both, right: both})
    return replace(found, waits=(*found.waits, *waits))


def _together(below: Sequence[_Found], columns: Mapping[int, _Column]) -> _Found:
    """Of an operator of several inputs, whose own columns are known."""
    return _Found(
        columns,
        _all_waits(below),
        max(one.lag_us for one in below),
        tuple(user for one in below for user in one.users),
        any(one.has_session for one in below),
        _all_watermarks(below),
    )


def _all_waits(below: Sequence[_Found]) -> tuple[Wait, ...]:
    return tuple(wait for one in below for wait in one.waits)


def _all_watermarks(below: Sequence[_Found]) -> tuple[Watermark, ...]:
    return tuple(watermark for one in below for watermark in one.watermarks)


def _waits(column: _Column, lag_us: int, name: str) -> tuple[Wait, ...]:
    """Why a group stays: one wait for each way, which says what kind of group it is."""
    ways = sorted(column.ways, key=str)
    if column.is_session:
        return tuple(Wait(way, lag_us, f"session windows, {way[-1]}") for way in ways)
    if column.is_window:
        return tuple(Wait(way, lag_us, str(way[-1])) for way in ways)
    return waits_of(ways, lag_us, f"groups by {name}")


def _of(expression: Any, columns: Mapping[int, _Column]) -> _Column | None:
    is_column = class_name(expression) == "AttributeReference"
    return columns.get(_id(expression)) if is_column else None


def _made_of(expression: Any, columns: Mapping[int, _Column]) -> tuple[str, _Column] | None:
    """The one column that an expression is made of, with its name in there, if how it comes about is known."""
    used = list(iterated(expression.references()))
    column = columns.get(_id(used[0])) if len(used) == 1 else None
    return None if column is None else (str(used[0].toString()), column)


def _is_event_time(expression: Any) -> bool:
    """Whether Spark takes it for an event time: an attribute, or an expression with a name, that says so."""
    is_named = class_name(expression) in ("AttributeReference", "Alias")
    return is_named and bool(expression.metadata().contains(_DELAY))


def _id(named: Any) -> int:
    return int(named.exprId().id())
