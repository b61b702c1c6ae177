"""What the state of a query does, by the message that a Spark Connect client would start it with.

Only the server has the analysed plan, and only that says until when an operator keeps rows. So a query either
has no operator that may emit later, or is not understood.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException

from local_tracker.spark.state.clocks import BY_CLOCK
from local_tracker.spark.state.rules import StateKind, StatePlan
from tracker.wire.fields import is_repeated

_AT_ONCE = frozenset((
    "collect_metrics", "deduplicate", "drop", "drop_na", "fill_na", "filter", "hint", "limit", "local_relation",
    "map_partitions", "parse", "project", "range", "read", "repartition", "repartition_by_expression", "replace",
    "sample", "sort", "subquery_alias", "to_df", "to_schema", "unpivot", "with_columns",
    "with_columns_renamed", "with_watermark",
))  # fmt: skip
"""Relations of a message that emit in each batch what they make of it."""
_TABLES = ("MANAGED", "EXTERNAL")
"""What the catalog calls a table; a view is `TEMPORARY` or `VIEW`."""

log = logging.getLogger("lowmark.spark")


def message_state(plan: Any, mode: str, session: Any) -> StatePlan:
    """What a query's state does: nothing, or it is not known. plan: the message; mode: of output, as Spark
    calls it; session: the client's, which is asked whether a table is a view of a stream."""
    relations = list(_relations(plan))
    streams = sum(r.WhichOneof("rel_type") == "read" and r.read.is_streaming for r in relations)
    for relation in relations:
        kind = str(relation.WhichOneof("rel_type"))
        if not _emits_at_once(relation, kind, mode, streams) or _is_view(relation, kind, session):
            what = (
                f"{kind} in a Spark Connect session, where the plan is not seen as it is analysed"
            )
            return StatePlan(
                StateKind.UNKNOWN, mode=mode, what=what, by_clock=any(map(_is_by_clock, relations))
            )
    return StatePlan(StateKind.NOTHING, mode=mode)


def _emits_at_once(relation: Any, kind: str, mode: str, streams: int) -> bool:
    if kind == "aggregate":
        return mode != "Append"
    if kind == "join":
        return streams < 2
    if kind == "set_op":
        types = relation.set_op.SetOpType
        return bool(relation.set_op.set_op_type in (types.SET_OP_TYPE_UNION, 0))
    return kind in _AT_ONCE or (kind == "group_map" and not _has_state(relation))


def _is_by_clock(relation: Any) -> bool:
    kind = relation.WhichOneof("rel_type")
    if kind == "apply_in_pandas_with_state":
        return relation.apply_in_pandas_with_state.timeout_conf in BY_CLOCK
    modes = (
        relation.group_map.timeout_conf,
        relation.group_map.transform_with_state_info.time_mode,
    )
    return kind == "group_map" and not BY_CLOCK.isdisjoint(modes)


def _has_state(relation: Any) -> bool:
    names = {field.name for field, _ in relation.group_map.ListFields()}
    return not names.isdisjoint(("state_schema", "transform_with_state_info", "timeout_conf"))


def _is_view(relation: Any, kind: str, session: Any) -> bool:
    """Whether a table that is read is, or may be, a view of a stream, whose own plan the message does not show."""
    if kind != "read" or not relation.read.HasField("named_table"):
        return False
    name = relation.read.named_table.unparsed_identifier
    if not relation.read.is_streaming:
        return bool(session.table(name).isStreaming)
    try:
        return session.catalog.getTable(name).tableType not in _TABLES
    except PySparkException as error:
        log.warning("it is not known whether %s is a table or a view of a stream: %s", name, error)
        return True


def _relations(message: Any) -> Iterator[Any]:
    """All relations within a message, from the outermost."""
    if message.DESCRIPTOR.name == "Relation":
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if is_repeated(field) else (value,):
            yield from _relations(part)
