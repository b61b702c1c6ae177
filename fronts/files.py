"""The file front: publishes labelled files into a directory, for Spark or anyone to read.

    with FileFront("127.0.0.1:7070", "orders", "shop-1", "parse", "/data/in") as front:
        front.write([{"order": 1, "lines": 3}])

Each file holds what one `write` brought, under one slot, which stands in its name. It is written under a
hidden name and renamed when it is whole, so that readers find all of it or nothing. The directory is
the front's durable record: started again, it lists its files and commits what the tracker has not
seen. A file that was not renamed was not published; the rows in it are to be written again.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fronts.batches import PublishedBatch, items_batch, units_batch
from fronts.durable import DurableFront, RecordedBatch, sync
from fronts.front import (
    PUBLISH_TIMEOUT_S,
    Front,
    FrontFailedError,
    FrontOptions,
    NotPublishedError,
    OpenBatch,
)
from tracker.client.known import known_beside
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.model.units import LabelledFile, file_name, parse_file_name, unit_name

if TYPE_CHECKING:
    import pyarrow as pa

SLOT_COLUMN, VALUE_COLUMN = "global_time", "ack_value"
"""Columns (int64) of a front by rows: a row's slot, and its ack value as a signed number."""


class Format(Enum):
    """How rows are written; the value is the files' suffix."""

    PARQUET = "parquet"
    JSON = "json"


class Items(Enum):
    """What an item is: a file as a whole (a unit), or each row, by columns of its own."""

    FILES = "files"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that readers can see. batch: the front's own number of it, from 0."""

    path: Path
    slot: int
    batch: int


class FileFront(DurableFront):
    """A front that publishes files in a local directory. Thread-safe; one at a time may run under one
    name in a directory."""

    _KEEPS_LAST = False
    _ROLLED_BACK = (
        "files must not be removed or added before the tracker has them: restore them, or start under a "
        "new front name"
    )

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        directory: str | os.PathLike[str],
        *,
        format: Format | str = Format.PARQUET,
        items: Items | str = Items.FILES,
        lock_directory: str | os.PathLike[str] | None = None,
        comes_again: bool = True,
        **options: Unpack[FrontOptions],
    ) -> None:
        """directory: made if missing; name it as readers do, since a unit's name holds it (symbolic
        links are not followed). format: `parquet` (needs pyarrow) or `json` (lines). lock_directory:
        of the file that keeps a second run out; `directory` if not given. comes_again: False if no
        front of this name is started after it has left; then it leaves no such file behind. The rest
        as for `Front`."""
        self.directory = Path(os.path.abspath(directory))
        locks = Path(os.path.abspath(lock_directory or directory))
        self._comes_again = comes_again
        self._known = known_beside(locks, pipeline, options.get("node_id") or front)
        self.format, self.items = Format(format), Items(items)
        beneath = Front(target, pipeline, front, segment, known=self._known, **options)
        lock = locks / f".{quote(beneath.identity, safe='')}.lock"
        super().__init__(beneath, self.directory, lock)
        # Refuses a name that would be too long one day.
        file_name(LOWEST_SLOT, beneath.identity, HIGHEST_SLOT, self.format.value)

    def write(
        self,
        rows: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]],
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> PublishedFile | None:
        """Labels rows that come in now and publishes them as one file; None if there are none.

        Returns when readers can see the file; it is committed in the background. When this raises
        OSError, TypeError or ValueError, nothing was published: write the rows again, or others.
        FrontFailedError: start the front again to find out. Else as `Front.publish`.
        """
        table = _table(rows, self.format)
        count = len(table)
        if not count:
            return None
        items = count if self.items is Items.ROWS else 1
        return self._publish_file(items, partial(self._write, table), timeout_s)

    def take(
        self, path: str | os.PathLike[str], timeout_s: float = PUBLISH_TIMEOUT_S
    ) -> PublishedFile | None:
        """Publishes a whole file that is there already, as it is, by moving it into the directory
        under its label; None if it is gone: of several fronts that take one file, one gets it.

        The file must be in the same file system, and its items be files. Raises as `write`."""
        if self.items is Items.ROWS:
            raise ValueError(
                f"{path} can't be taken by a front whose items are rows: it has no labels in it; make "
                "a front with items='files', or write() its rows"
            )
        source = Path(os.path.abspath(path))
        try:
            return self._publish_file(1, partial(self._move, source), timeout_s)
        except FileNotFoundError:
            return None

    def published(self) -> list[PublishedFile]:
        """This front's files in the directory, by their numbers."""
        return [
            PublishedFile(self.directory / name, labelled.slot, labelled.batch)
            for labelled, name in self._files()
        ]

    # --- writing ----------------------------------------------------------------------------------

    def _publish_file(
        self, items: int, publish: Callable[[OpenBatch], PublishedFile], timeout_s: float
    ) -> PublishedFile:
        published: list[PublishedFile] = []

        def send(batch: OpenBatch) -> Sequence[str] | None:
            published.append(publish(batch))
            return [unit_name(str(published[0].path))] if self.items is Items.FILES else None

        self._publish_now(items, send, timeout_s)
        return published[0]

    def _write(
        self, table: pa.Table | Sequence[Mapping[str, Any]], batch: OpenBatch
    ) -> PublishedFile:
        """Until the rename nothing has got out, and nothing will; then it has, whatever follows."""
        slot = int(batch.slots[0])
        name = file_name(slot, self._front.identity, batch.number, self.format.value)
        hidden, path = self.directory / f".{name}.tmp", self.directory / name
        try:
            labels = (batch.slots, batch.values) if self.items is Items.ROWS else None
            _write_durably(hidden, _encoded(table, labels, self.format))
            os.rename(hidden, path)
        except (OSError, TypeError, ValueError) as error:
            hidden.unlink(missing_ok=True)
            raise NotPublishedError(f"{path} was not published: {error}") from error
        self._sync_directories(path, self.directory)
        return PublishedFile(path, slot, batch.number)

    def _move(self, source: Path, batch: OpenBatch) -> PublishedFile:
        """The rename decides whose the file is, and publishes it."""
        slot, suffix = int(batch.slots[0]), source.suffix[1:]
        if not (suffix.isascii() and suffix.isalnum()):
            suffix = self.format.value
        try:
            name = file_name(slot, self._front.identity, batch.number, suffix)
            path = self.directory / name
            sync(source)  # who wrote it may not have
            os.rename(source, path)
        except (OSError, ValueError) as error:
            raise NotPublishedError(f"{source} was not published: {error}") from error
        self._sync_directories(path, self.directory, source.parent)
        return PublishedFile(path, slot, batch.number)

    def _sync_directories(self, path: Path, *directories: Path) -> None:
        """Makes the rename to `path` durable, which readers can see already."""
        try:
            for directory in directories:
                sync(directory)
        except OSError as error:
            raise FrontFailedError(
                f"{path} can be read and may not survive a power failure ({error}); start front "
                f"{self._front.identity!r} again, which goes by what is there"
            ) from error

    # --- recovering -------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.startswith(".") and entry.name.endswith(".tmp"):
                    labelled = parse_file_name(entry.name[1:-4])
                    if labelled is not None and labelled.front == self._front.identity:
                        os.unlink(entry.path)

    def _files(self) -> list[tuple[LabelledFile, str]]:
        """This front's files by their numbers, with their names."""
        with os.scandir(self.directory) as entries:
            named = [(parse_file_name(entry.name), entry.name) for entry in entries]
        files = [
            (labelled, name)
            for labelled, name in named
            if labelled is not None and labelled.front == self._front.identity
        ]
        return sorted(files, key=lambda file: file[0].batch)

    def _forget(self) -> None:
        if not self._comes_again:
            Path(self._known).unlink(missing_ok=True)
            self.lock_path.unlink(missing_ok=True)

    def _recorded(self) -> list[RecordedBatch]:
        return [
            RecordedBatch(file.batch, file.slot, partial(self._batch, file, name))
            for file, name in self._files()
        ]

    def _batch(self, labelled: LabelledFile, name: str, segment: int) -> PublishedBatch:
        if self.items is Items.FILES:
            names = [unit_name(str(self.directory / name))]
            return units_batch(segment, labelled.batch, labelled.slot, names)
        slots, values = _labels(self.directory / name, Format(labelled.suffix))
        return items_batch(segment, labelled.batch, slots, values)


def _write_durably(path: Path, data: bytes | memoryview) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _table(rows: Any, fmt: Format) -> Any:
    """Rows as a table for Parquet, as mappings for JSON."""
    if isinstance(rows, Sequence):
        if fmt is Format.JSON:
            return rows
        import pyarrow as pa

        return pa.Table.from_pylist(list(rows))
    import pyarrow as pa

    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return table if fmt is Format.PARQUET else table.to_pylist()


def _encoded(
    table: Any, labels: tuple[NDArray[np.int64], NDArray[np.uint64]] | None, fmt: Format
) -> bytes | memoryview:
    """The contents of a file; `labels` become columns of it."""
    if fmt is Format.JSON:
        columns: list[dict[str, int]] = [{}] * len(table)
        if labels is not None:
            slots, values = labels[0].tolist(), labels[1].view(np.int64).tolist()
            columns = [
                {SLOT_COLUMN: slot, VALUE_COLUMN: value}
                for slot, value in zip(slots, values, strict=True)
            ]
        lines = [json.dumps({**row, **more}) for row, more in zip(table, columns, strict=True)]
        return ("\n".join(lines) + "\n").encode()
    import pyarrow as pa
    import pyarrow.parquet as pq

    if labels is not None:
        table = table.drop_columns(
            [c for c in (SLOT_COLUMN, VALUE_COLUMN) if c in table.column_names]
        )
        table = table.append_column(SLOT_COLUMN, pa.array(labels[0]))
        table = table.append_column(VALUE_COLUMN, pa.array(labels[1].view(np.int64)))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getbuffer()


def _labels(path: Path, fmt: Format) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The labels of a file's rows, as `_encoded` wrote them."""
    if fmt is Format.JSON:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        slots = np.array([row[SLOT_COLUMN] for row in rows], np.int64)
        signed = np.array([row[VALUE_COLUMN] for row in rows], np.int64)
    else:
        import pyarrow.parquet as pq

        # ParquetFile takes the file as it is; a dataset would look for partitions in its path.
        table = pq.ParquetFile(path).read(columns=[SLOT_COLUMN, VALUE_COLUMN])
        slots = table.column(SLOT_COLUMN).to_numpy()
        signed = table.column(VALUE_COLUMN).to_numpy()
    return slots, np.ascontiguousarray(signed).view(np.uint64)
