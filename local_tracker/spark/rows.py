"""Tracking by rows: each row of a committed file is an item of its own, in the slot that a column says.

Rows are read back from what was committed, by whoever wrote the file and by whoever read it, so both
come to the same items whatever Spark evaluated in between. A row is named by its file and its index in
it, and needs no column for that; where a front gave its rows ack values, those count. Only the columns
that are needed are read, with Arrow and NumPy, some millions of rows a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local_tracker.core.merge import merge_acks, merge_cells
from tracker.core.model import Cells
from tracker.core.model.ack_values import child_values, unit_value
from tracker.core.model.units import slot_in_name
from tracker.files import STORES, AwayError, FilesError, OpenedFile, Stores, scheme

VALUE_COLUMN = "ack_value"
"""The column of ack values (signed) in the files of a front by rows."""

BATCH_ROWS = 1 << 20
"""So many rows are in memory at once."""


class RowsError(Exception):
    """Rows cannot be read back; names the file and the column."""


def row_cells(segment: int, names: Iterable[str], column: str, stores: Stores = STORES) -> Cells:
    """One cell for each slot of the rows of files, by the files' names as Spark logs them.

    column: the rows' slots, integers without nulls. Raises RowsError.
    """
    parts: list[Cells] = []
    for name in names:
        by_front = slot_in_name(name) is not None
        first = 0
        for slots, values in _columns(stores, name, column, with_values=by_front):
            if values is None:
                indices = np.arange(first, first + len(slots), dtype=np.int64)
                parents = np.full(len(slots), unit_value(name), np.uint64)
                values = child_values(parents, "row", indices)
            first += len(slots)
            parts.append(merge_acks(segment, slots, values))
    return merge_cells(Cells.concatenate(parts))


def _columns(
    stores: Stores, name: str, column: str, *, with_values: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64] | None]]:
    """(slots, ack values or None) of the rows of a file, in parts."""
    for table in _tables(stores, name, column, with_values):
        if column not in table.schema.names:
            raise RowsError(
                f"{name} has no column {column!r}, by which its rows are tracked; keep it in the "
                f"query's output, or track the segment by units"
            )
        slots = _integers(name, column, table.column(column))
        values = None
        if with_values and VALUE_COLUMN in table.schema.names:
            signed = _integers(name, VALUE_COLUMN, table.column(VALUE_COLUMN))
            values = np.ascontiguousarray(signed).view(np.uint64)
        yield slots, values


def _tables(stores: Stores, name: str, column: str, with_values: bool) -> Iterator[Any]:
    lowered = name.lower()
    try:
        if lowered.endswith(".parquet"):
            import pyarrow.parquet as pq

            with pq.ParquetFile(_opened(stores, name)) as file:
                wanted = [column, *([VALUE_COLUMN] if with_values else [])]
                present = [c for c in wanted if c in file.schema_arrow.names]
                if column not in present and file.metadata.num_rows:
                    present = [*present, *file.schema_arrow.names[:1]]
                yield from file.iter_batches(BATCH_ROWS, columns=present)
        elif lowered.endswith((".json", ".jsonl")):
            where = stores.location(name)
            if stores.files(where).size(where) != 0:
                yield from _json(_opened(stores, name), column, with_values).to_batches(BATCH_ROWS)
        else:
            raise RowsError(
                f"{name}: rows are read back from Parquet and JSON files alone; write one of them, or "
                f"track the segment by units"
            )
    except AwayError:
        raise
    except (FilesError, OSError, ValueError) as error:  # Arrow's errors are ValueErrors
        raise RowsError(
            f"{name} cannot be read back, with its slots in column {column!r}: {error}"
        ) from error


def _opened(stores: Stores, name: str) -> Any:
    """What Arrow reads a unit from: a local file by itself, others by their parts."""
    where = stores.location(name)
    return where if not scheme(where) else OpenedFile(stores.files(where), where)


def _json(path: Any, column: str, with_values: bool) -> Any:
    """The needed columns of lines of JSON; what else is in the lines may be anything."""
    import pyarrow as pa
    import pyarrow.json as pa_json

    wanted = [column, *([VALUE_COLUMN] if with_values else [])]
    options = pa_json.ParseOptions(
        explicit_schema=pa.schema([(name, pa.int64()) for name in wanted]),
        unexpected_field_behavior="ignore",
    )
    table = pa_json.read_json(path, parse_options=options)
    absent = [n for n in wanted if n in table.column_names and table[n].null_count == len(table)]
    return table.drop_columns(absent)


def _integers(name: str, column: str, values: Any) -> NDArray[np.int64]:
    if values.null_count:
        raise RowsError(
            f"{name}: {values.null_count} rows have no value in column {column!r}, by which they are "
            f"tracked; every row needs one"
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise RowsError(f"{name}: column {column!r} cannot be read: {error}") from None
    if array.dtype.kind not in "iu":
        raise RowsError(f"{name}: column {column!r} is {values.type}, not of whole numbers")
    return np.ascontiguousarray(array.astype(np.int64))
