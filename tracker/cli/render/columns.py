"""Rows as columns: Arrow streams and Parquet files, for programs that read tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


class NoArrowError(ValueError):
    """What columns are written with is not installed."""


def arrow() -> Any:
    """pyarrow. Raises NoArrowError."""
    try:
        import pyarrow
    except ImportError as missing:
        raise NoArrowError(
            f"columns are written by pyarrow ({missing}): pip install 'lowmark[fronts]', or ask for --format json"
        ) from None
    return pyarrow


def columns(
    rows: Sequence[Mapping[str, Any]],
    types: Mapping[str, str],
    *,
    parquet: bool,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The rows as an Arrow IPC stream, or as a Parquet file. types: by column the name of its Arrow type, or `time`,
    which rows have as an ISO text; what a row lacks is null. metadata: of the whole. Raises NoArrowError."""
    pa = arrow()
    schema = pa.schema([(name, _type(pa, kind)) for name, kind in types.items()], metadata)
    times = [name for name, kind in types.items() if kind == "time"]
    table = pa.Table.from_pylist([_with_moments(row, times) for row in rows], schema)
    sink = pa.BufferOutputStream()
    if parquet:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(table)
    return bytes(sink.getvalue())


def _type(pa: Any, kind: str) -> Any:
    return pa.timestamp("us", "UTC") if kind == "time" else pa.type_for_alias(kind)


def _with_moments(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    moments = {name: datetime.fromisoformat(row[name]) for name in names if row.get(name)}
    return {**row, **moments}
