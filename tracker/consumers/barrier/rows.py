"""What of a file becomes rows of a barrier: the slot, the key, and the payload as JSON.

A payload is an object of the row's columns. What JSON has no form for is text that databases and parsers of
columns take as it is: decimals in full, moments as in ISO 8601, bytes as `\\x` and hexadecimal digits, and the
numbers that are none as "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import unquote

from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.errors import Code, InvalidError
from tracker.files import STORES, Files, FilesError, OpenedFile, Stores

MAX_ROW_BYTES = 1_000_000
"""Of one row's payload and key: a little less than what brokers take in one message."""
CHUNK_ROWS = 5_000
"""Rows that are in memory at once, at most, on their way into the buffer."""
CHUNK_BYTES = 4 << 20
"""Bytes of their payloads, at most, and one row more."""
_READ_ROWS = 1_000
"""Of a Parquet file at once."""
_MAX_LINE_BYTES = 2 * MAX_ROW_BYTES
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What writers of partitioned tables put for null."""
_UNREADABLE = (
    KeyError, TypeError, ValueError, EOFError, RecursionError, zlib.error, gzip.BadGzipFile,
)  # fmt: skip
"""What libraries raise for a file that is none of its format, or a row that is none."""

Item: TypeAlias = tuple[int, str, bytes]
"""Slot, key, payload."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Makes rows of a unit's file. key: the column that rows of one slot are ordered by, as text, by its code
    points (so numbers need leading zeros); slot: the column of the row's slot, None: each row has its unit's, as has
    one without such a column, or with null in it; columns: what the payload has of a row, None: all."""

    key: str
    slot: str | None = None
    columns: Sequence[str] | None = None

    def items(self, unit: str, unit_slot: int, stores: Stores = STORES) -> Iterator[Item]:
        """The rows of a file, in its order. Raises InvalidError, FilesError."""
        where = stores.location(unit)
        values = _partition_values(where)
        number = 0
        try:
            for row in _rows(stores.files(where), where):
                yield self._item({**values, **row}, unit_slot)
                number += 1
        except _UNREADABLE as error:
            told = f"{where}, row {number}: {_what(error)}; write the file anew, or leave it out"
            raise InvalidError(told, Code.INVALID_ROW) from None

    def _item(self, row: Mapping[str, Any], unit_slot: int) -> Item:
        key = row[self.key]
        if key is None:
            raise ValueError(f"the key, column {self.key!r}, is null")
        told = None if self.slot is None else row.get(self.slot)
        slot = unit_slot if told is None else told
        if type(slot) is not int or not LOWEST_SLOT <= slot <= HIGHEST_SLOT:
            raise ValueError(
                f"the slot, column {self.slot!r}, is {slot!r}, not a whole number from {LOWEST_SLOT} to {HIGHEST_SLOT}"
            )
        chosen = row if self.columns is None else {name: row[name] for name in self.columns}
        return slot, _text(key), payload_of(chosen)


def payload_of(row: Mapping[str, Any]) -> bytes:
    """A row as JSON, in UTF-8."""
    try:
        text = json.dumps(row, default=_text, allow_nan=False, ensure_ascii=False)
    except ValueError:
        text = json.dumps(_finite(row), default=_text, ensure_ascii=False)
    return text.encode()


def chunks(items: Iterable[Item], unit: str) -> Iterator[list[Item]]:
    """The same in pieces of at most CHUNK_ROWS and CHUNK_BYTES. Raises InvalidError for one that is too large."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        own = len(item[1].encode()) + len(item[2])
        if own > MAX_ROW_BYTES:
            raise InvalidError(
                f"{unit}: the row of key {item[1][:100]!r} has {own} bytes, the limit is {MAX_ROW_BYTES}; "
                "choose its columns",
                Code.INVALID_ROW,
            )
        chunk.append(item)
        size += own
        if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def skipped(items: Iterable[Item], count: int) -> Iterator[Item]:
    """All but the first ones."""
    return islice(iter(items), count, None)


def _rows(files: Files, where: str) -> Iterator[Mapping[str, Any]]:
    name = where.rpartition("/")[2]
    for ending, read in _FORMATS.items():
        if name.endswith(ending):
            with OpenedFile(files, where) as file:
                yield from read(file)
            return
    raise FilesError(f"{where}: files are read that end in {', '.join(_FORMATS)}")


def _parquet(file: OpenedFile) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError as missing:
        raise FilesError(
            f"Parquet files are read by pyarrow ({missing}): pip install 'lowmark[fronts]'"
        ) from None
    for part in pyarrow.parquet.ParquetFile(file).iter_batches(_READ_ROWS):
        yield from part.to_pylist()


def _json_lines(file: io.RawIOBase) -> Iterator[Mapping[str, Any]]:
    with io.BufferedReader(file) as lines:
        yield from _objects(lines)


def _gzipped(file: io.RawIOBase) -> Iterator[Mapping[str, Any]]:
    with gzip.open(io.BufferedReader(file)) as lines:
        yield from _objects(lines)


def _objects(lines: Any) -> Iterator[Mapping[str, Any]]:
    while line := lines.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise ValueError(f"its line has more than {_MAX_LINE_BYTES} bytes")
        if line.strip():
            value = json.loads(line)
            if not isinstance(value, dict):
                raise FilesError(f"a line is no JSON object: {line[:100]!r}")
            yield value


_FORMATS: dict[str, Callable[[OpenedFile], Iterator[Mapping[str, Any]]]] = {
    ".parquet": _parquet,
    ".json": _json_lines,
    ".jsonl": _json_lines,
    ".json.gz": _gzipped,
}
"""By how a file's name ends."""


def _partition_values(where: str) -> dict[str, Any]:
    """What the folders of a partitioned table say of the rows below: `day=2026-03-01`, as text."""
    parts = (part.partition("=") for part in where.split("/")[:-1] if "=" in part)
    return {name: None if value == _NULL_PARTITION else unquote(value) for name, _, value in parts}


def _text(value: object) -> str:
    """What JSON has no form for, and keys."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _what(error: Exception) -> str:
    return f"it has no column {error}" if isinstance(error, KeyError) else str(error)
