"""How far the rows of each file go that a query has taken in one batch with many others.

The bound of a batch is that of its latest row, and its slot that of its earliest: of a backlog these are far from each
other. Which rows are still in state follows from their event times, and the state itself says nothing of slots. So
the event times are read again where the batch has read them: from its files, one column, by the expression that the
query's watermark is of.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from local_tracker.spark.scala import class_name, items, iterated
from local_tracker.spark.state.entries import Told
from local_tracker.spark.state.rules import US_PER_MS
from tracker.client.state_names import Bound
from tracker.core.model import Unit

BACKLOG_NS = 60 * 10**9
"""So far apart are the slots that a batch consumed at least, where it is worth reading event times again."""
MAX_FILES = 10_000
"""Of one batch; where there are more, it is not read again."""

_FORMATS = frozenset({"parquet", "orc"})
"""Formats that keep event times as they are, whatever time zone a session has."""
_PASS = frozenset({"Project", "Filter", "SubqueryAlias"})
_PLAIN = frozenset({
    "Alias", "AttributeReference", "Literal", "MicrosToTimestamp", "MillisToTimestamp", "SecondsToTimestamp",
})  # fmt: skip
"""Expressions that make the same of a row, whenever and in whichever session it is read."""
_PLAIN_NAME = re.compile(r"[\w./:=,@+-]+")
"""Of a file that Spark reads by its name as it is logged."""

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event times of a source of files. path: where they are; schema: as Spark's JSON; column: in SQL."""

    file_format: str
    path: str
    schema: str
    column: str

    def has(self, name: str) -> bool:
        """Whether a file is of this source."""
        return urlsplit(name).path.startswith(urlsplit(self.path).path.rstrip("/") + "/")


def event_times(plan: Any) -> tuple[EventTimes, ...]:
    """Those of each watermark in an analysed plan, where all stand in files as the query reads them; else none: a file
    may be read by several."""
    try:
        found = [_of_watermark(node) for node in _watermarks(plan)]
    except Exception as error:  # of another version of Spark, whose classes look otherwise
        log.warning(
            "the event times in a plan cannot be seen, so that backlogs are held together: %s",
            error,
        )
        return ()
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else ()


def _watermarks(node: Any) -> Iterator[Any]:
    if class_name(node) == "EventTimeWatermark":
        yield node
    for child in items(node.children()):
        yield from _watermarks(child)


def _of_watermark(node: Any) -> EventTimes | None:
    made, below = node.eventTime(), node.children().apply(0)
    number: int | None = _id(made)
    while class_name(below) in _PASS:
        if class_name(below) == "Project":
            named = next((n for n in items(below.projectList()) if _id(n) == number), None)
            if named is not None and class_name(named) == "Alias":
                made = named.child()
                number = _id(made) if class_name(made) == "AttributeReference" else None
        below = below.children().apply(0)
    if class_name(below) != "StreamingRelation" or not _is_plain(made):
        return None
    used = {_id(each) for each in iterated(made.references())}
    source, read = below.dataSource(), {_id(each) for each in items(below.output())}
    path, file_format = source.options().get("path"), str(source.className())
    if not used or not used <= read or not path.isDefined() or file_format not in _FORMATS:
        return None
    return EventTimes(file_format, str(path.get()), str(below.schema().json()), str(made.sql()))


def _is_plain(expression: Any) -> bool:
    return class_name(expression) in _PLAIN and all(map(_is_plain, items(expression.children())))


def _id(named: Any) -> int:
    return int(named.exprId().id())


class Backlog:
    """Of one query in this driver. For one thread, its follower's."""

    def __init__(
        self,
        spark: SparkSession,
        times: Sequence[EventTimes],
        slack_ns: int,
        bound_of: Callable[[int], Bound | None],
    ) -> None:
        """bound_of: until when a row is in state, by its event time in ms since 1970; None where nothing says it."""
        self._spark, self._times, self._slack_ns, self._bound_of = spark, times, slack_ns, bound_of
        self._read: tuple[frozenset[str], Mapping[str, int]] = frozenset(), {}

    def by_bound(self, labels: Sequence[Unit], told: Told) -> dict[Bound, list[Unit]]:
        """What a batch consumed, by until when it is in state; what is not known apart is as long as all of it."""
        slots = [unit.slot for unit in labels]
        is_far = bool(slots) and (max(slots) - min(slots)) * self._slack_ns >= BACKLOG_NS
        if not is_far or told.is_over(told.bound_ms):
            return {told.bound_ms: list(labels)}
        latest_ms = self._latest_ms(frozenset(unit.name for unit in labels))
        found: dict[Bound, list[Unit]] = {}
        for unit in labels:
            bound = self._bound_of(latest_ms[unit.name]) if unit.name in latest_ms else None
            found.setdefault(told.bound_ms if bound is None else bound, []).append(unit)
        return found

    def _latest_ms(self, names: frozenset[str]) -> Mapping[str, int]:
        """The latest event time of a row in each file of which that is known, in ms since 1970."""
        if self._read[0] == names:
            return self._read[1]
        latest_ms: dict[str, int] = {}
        if len(names) <= MAX_FILES and all(map(_PLAIN_NAME.fullmatch, names)):
            try:
                latest_ms = self._read_again(names)
            except Exception as error:  # whatever there is, all is held as long as the last of it
                log.warning(
                    "the event times of %d files cannot be read again (%s): they are held together",
                    len(names), str(error).splitlines()[0],
                )  # fmt: skip
        self._read = names, latest_ms
        return latest_ms

    def _read_again(self, names: frozenset[str]) -> dict[str, int]:
        latest_ms: dict[str, int] = {}
        unknown = set[str]()
        for times in self._times:
            mine = sorted(name for name in names if times.has(name))
            if not mine:
                continue
            reader = self._spark.read.format(times.file_format)
            frame = reader.schema(StructType.fromJson(json.loads(times.schema))).load(mine)
            at = F.expr(times.column)
            rows = frame.groupBy(F.input_file_name().alias("name")).agg(
                F.unix_micros(F.max(at)), F.count_if(at.isNull())
            )
            for name, latest_us, nulls in rows.collect():
                if latest_us is None or nulls:
                    unknown.add(name)
                else:
                    last_ms = int(latest_us) // US_PER_MS
                    latest_ms[name] = max(last_ms, latest_ms.get(name, last_ms))
        return {name: last_ms for name, last_ms in latest_ms.items() if name not in unknown}
