"""Tracking by rows: each row of a committed file is an item of its own, in the slot that a column says.

Rows are read back from what was committed, by whoever wrote the file and by whoever read it, so both
come to the same items whatever Spark evaluated in between. A row is named by its file and its index in
it, and needs no column for that; where a front gave its rows ack values, those count. Only the columns
that are needed are read, with Arrow and NumPy, some millions of rows a second; and where the statistics of a row
group say that all its rows are in one slot, as they are in most of what a front writes, not even that column.
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

            with pq.ParquetFile(_opened(stores, name), pre_buffer=True) as file:
                yield from _parquet(file, column, with_values)
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


def _parquet(file: Any, column: str, with_values: bool) -> Iterator[Any]:
    """The needed columns of a Parquet file, in parts. Of a row group whose rows all have one slot, that column is
    made up, and not read."""
    wanted = [column, *([VALUE_COLUMN] if with_values else [])]
    present = [each for each in wanted if each in file.schema_arrow.names]
    if column not in present:
        if file.metadata.num_rows:
            yield from file.iter_batches(BATCH_ROWS, columns=file.schema_arrow.names[:1])
        return
    others = [each for each in present if each != column]
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        slot = _only_slot(file.schema_arrow, group, column)
        if slot is None:
            yield from file.iter_batches(BATCH_ROWS, row_groups=[number], columns=present)
        elif others:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[number], columns=others):
                yield batch.append_column(column, _repeated(slot, batch.num_rows))
        else:
            for first in range(0, group.num_rows, BATCH_ROWS):
                yield _repeated_alone(column, slot, min(BATCH_ROWS, group.num_rows - first))


def _only_slot(schema: Any, group: Any, column: str) -> int | None:
    """The slot that all rows of a row group have, if its statistics say so: whole numbers, which are never cut short
    there, with a least and a greatest that are one, and no null. None if they do not, or say nothing."""
    import pyarrow as pa

    if schema.names.count(column) != 1 or not pa.types.is_integer(schema.field(column).type):
        return None
    places = [group.column(number) for number in range(group.num_columns)]
    chunks = [place for place in places if place.path_in_schema == column]
    if len(chunks) != 1 or chunks[0].num_values != group.num_rows:
        return None
    said = chunks[0].statistics
    if said is None or not (said.has_min_max and said.has_null_count) or said.null_count:
        return None
    least, greatest = said.min, said.max
    if type(least) is not int or least != greatest or not -(2**63) <= least < 2**63:
        return None
    return least


def _repeated(slot: int, rows: int) -> Any:
    import pyarrow as pa

    return pa.array(np.full(rows, slot, np.int64))


def _repeated_alone(column: str, slot: int, rows: int) -> Any:
    import pyarrow as pa

    return pa.record_batch([_repeated(slot, rows)], names=[column])


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
