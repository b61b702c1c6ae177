"""The file front: publishes labelled files into a directory, for Spark or anyone to read.

    with FileFront("127.0.0.1:7070", "orders", "shop-1", "parse", "/data/in") as front:
        front.write([{"order": 1, "lines": 3}])

Each file holds what one `write` brought, under one slot, which its name tells. It is written under a
hidden name and renamed when it is whole, so that readers find all of it or nothing. The directory is
the front's durable record: started again, it lists its files and commits what the tracker has not
seen. A file that was not renamed was not published; the rows in it are to be written again.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fronts.batches import PublishedBatch, items_batch, units_batch
from fronts.client import (
    HEARTBEAT_INTERVAL_MS,
    JOIN_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    Clock,
    Front,
    FrontFailedError,
    Node,
    NotPublishedError,
    OpenBatch,
)
from fronts.core import MAX_WAITING_BATCHES, RolledBackError
from fronts.locks import left_after, note_leave, take_lock
from tracker.client.known import known_beside
from tracker.core.model import Batch
from tracker.core.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.units import LabelledFile, file_name, parse_file_name, unit_name

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


class FileFront:
    """A front that publishes files in a local directory. Thread-safe; one at a time may run under one
    name in a directory."""

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
        node_id: str | None = None,
        clock: Clock = time.time_ns,
        heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS,
        max_waiting_batches: int = MAX_WAITING_BATCHES,
        pass_over_late: bool = False,
        node: Node | None = None,
        lock_directory: str | os.PathLike[str] | None = None,
        comes_again: bool = True,
    ) -> None:
        """directory: made if missing; name it as readers do, since a unit's name holds it (symbolic
        links are not followed). format: `parquet` (needs pyarrow) or `json` (lines). lock_directory:
        of the file that keeps a second run out; `directory` if not given. comes_again: False if no
        front of this name is started after it has left; then it leaves no such file behind. The rest
        as for `Front`."""
        self.directory = Path(os.path.abspath(directory))
        self._lock_directory = Path(os.path.abspath(lock_directory or directory))
        self._comes_again = comes_again
        self._known = known_beside(self._lock_directory, pipeline, node_id or front)
        self.format, self.items = Format(format), Items(items)
        self._front = Front(
            target, pipeline, front, segment, node_id=node_id, clock=clock,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_waiting_batches=max_waiting_batches, pass_over_late=pass_over_late, node=node,
            known=self._known,
        )  # fmt: skip
        # Refuses a name that would be too long one day.
        file_name(LOWEST_SLOT, self._front.identity, HIGHEST_SLOT, self.format.value)
        self._lock_fd: int | None = None

    @property
    def front(self) -> Front:
        """The front beneath: its labels, waits and failure."""
        return self._front

    def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> FileFront:
        """Takes the directory, joins, and commits what earlier runs published; then as
        `Front.start`. Raises FrontStateError if another process has the front, RolledBackError if
        files are gone that the tracker has not seen, or differ from those it has."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock_directory.mkdir(parents=True, exist_ok=True)
        # Two runs of a front would give different files one number, so a lock keeps the second out.
        return self.start_locked(
            take_lock(self.lock_path, timeout_s, self._front.identity), timeout_s
        )

    @property
    def lock_path(self) -> Path:
        """The file that is locked while the front runs."""
        return self._lock_directory / f".{quote(self._front.identity, safe='')}.lock"

    def start_locked(self, lock_fd: int, timeout_s: float = JOIN_TIMEOUT_S) -> FileFront:
        """As `start`, with `lock_path` open and locked already; it is closed in the end."""
        self._lock_fd = lock_fd
        try:
            self._remove_unpublished()
            after, generation = left_after(self._lock_fd)
            self._front.start(self._recover, timeout_s, left_after=after, left_in=generation)
        except BaseException:
            self._release_directory()
            raise
        return self

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
        written: list[PublishedFile] = []

        def send(batch: OpenBatch) -> Sequence[str] | None:
            written.append(self._publish(table, batch))
            return [unit_name(str(written[0].path))] if self.items is Items.FILES else None

        try:
            self._front.publish_now(count if self.items is Items.ROWS else 1, send, timeout_s)
        except NotPublishedError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        return written[0]

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
        taken: list[PublishedFile] = []

        def send(batch: OpenBatch) -> Sequence[str]:
            taken.append(self._move(source, batch))
            return [unit_name(str(taken[0].path))]

        try:
            self._front.publish_now(1, send, timeout_s)
        except NotPublishedError as error:
            assert error.__cause__ is not None
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise error.__cause__ from None
        return taken[0]

    def published(self) -> list[PublishedFile]:
        """This front's files in the directory, by their numbers."""
        return [
            PublishedFile(self.directory / name, labelled.slot, labelled.batch)
            for labelled, name in self._files()
        ]

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """As `Front.wait_durable`."""
        return self._front.wait_durable(timeout_s)

    def leave(self) -> None:
        """As `Front.leave`; a front of this name that is started later goes on from here."""
        fd = self._lock_fd
        note = None if fd is None else partial(note_leave, fd, self._front.generation)
        self._front.leave(note=note)
        if not self._comes_again:
            self._known.unlink(missing_ok=True)
            self.lock_path.unlink(missing_ok=True)  # while it is locked
        self._release_directory()

    def close(self) -> None:
        """As `Front.close`."""
        self._front.close()
        self._release_directory()

    def __enter__(self) -> FileFront:
        return self if self._lock_fd is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- writing ----------------------------------------------------------------------------------

    def _publish(
        self, table: pa.Table | Sequence[Mapping[str, Any]], batch: OpenBatch
    ) -> PublishedFile:
        """Until the rename nothing has got out, and nothing will; then it has, whatever follows."""
        slot = int(batch.slots[0])
        name = file_name(slot, self._front.identity, batch.number, self.format.value)
        hidden, path = self.directory / _hidden(name), self.directory / name
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
            _sync(source, os.O_RDONLY)  # who wrote it may not have
            os.rename(source, path)
        except (OSError, ValueError) as error:
            raise NotPublishedError(f"{source} was not published: {error}") from error
        self._sync_directories(path, self.directory, source.parent)
        return PublishedFile(path, slot, batch.number)

    def _sync_directories(self, path: Path, *directories: Path) -> None:
        """Makes the rename to `path` durable, which readers can see already."""
        try:
            for directory in directories:
                _sync(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FrontFailedError(
                f"{path} can be read and may not survive a power failure ({error}); start front "
                f"{self._front.identity!r} again, which goes by what is there"
            ) from error

    # --- recovering -------------------------------------------------------------------------------

    def _release_directory(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _remove_unpublished(self) -> None:
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

    def _recover(self, segment: int, last: Batch | None) -> list[PublishedBatch]:
        """The batches that the tracker may not have, and the last one that it has, to compare. It has
        none where the pipeline was restarted: files below the first slot then are complete, and may
        be gone."""
        files = self._files()
        newest_durable = max(self._front.left_after, -1 if last is None else last.id)
        if newest_durable < 0 and self._front.replay_from > LOWEST_SLOT:
            # The last one tells the next number, if nothing else does.
            files = [f for f in files if f[0].slot >= self._front.replay_from] or files[-1:]
            newest_durable = files[0][0].batch - 1 if files else -1
        recovered = [
            self._batch(segment, labelled, name)
            for labelled, name in files
            if labelled.batch >= newest_durable
        ]
        numbers = [batch.number for batch in recovered if batch.number > newest_durable]
        expected = list(range(newest_durable + 1, newest_durable + 1 + len(numbers)))
        if numbers != expected:
            wrong = next(
                i for i, (n, e) in enumerate(zip(numbers, expected, strict=True)) if n != e
            )
            raise RolledBackError(
                f"front {self._front.identity!r}: {self.directory} holds file {numbers[wrong]} where "
                f"file {expected[wrong]} was expected; the tracker has those up to {newest_durable}. "
                "Files must not be removed or added before the tracker has them: restore them, or "
                "start under a new front name"
            )
        return recovered

    def _batch(self, segment: int, labelled: LabelledFile, name: str) -> PublishedBatch:
        if self.items is Items.FILES:
            names = [unit_name(str(self.directory / name))]
            return units_batch(segment, labelled.batch, labelled.slot, names)
        slots, values = _labels(self.directory / name, Format(labelled.suffix))
        return items_batch(segment, labelled.batch, slots, values)


def _hidden(name: str) -> str:
    return f".{name}.tmp"


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
