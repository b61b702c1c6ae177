"""The file front: publishes labelled files into a directory, for Spark or anyone to read.

    with FileFront("127.0.0.1:7070", "orders", "shop-1", "parse", "/data/in") as front:
        front.write([{"order": 1, "lines": 3}])

Each file holds what one `write` brought, under one slot, which stands in its name. Readers find all of it
or nothing (`fronts.places`). The directory, local or in a store, is the front's durable record: started again, it
lists its files and commits what the tracker has not seen. A file that was not published is not there; the rows in
it are to be written again.
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
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fronts.batches import PublishedBatch, items_batch, units_batch
from fronts.durable import DurableFront, RecordedBatch
from fronts.front import (
    DEFAULTS,
    JOIN_TIMEOUT_S,
    PUBLISH_TIMEOUT_S,
    Front,
    FrontOptions,
    OpenBatch,
    front_identity,
)
from fronts.holds import LockFile
from fronts.places import LocalPlace, Place, StoredPlace
from tracker.client.known import known_beside
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.model.units import LabelledFile, file_name, unit_name
from tracker.errors import Code, NotPublishedError, StateError
from tracker.files import STORES, AwayError, FilesError, OpenedFile, scheme

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
    """A file that readers can see. location: its path, or where it is in a store. batch: the front's own
    number of it, from 0."""

    location: str
    slot: int
    batch: int

    @property
    def path(self) -> Path:
        """Of a file of this machine. Raises ValueError."""
        return _path(self.location)


class FileFront(DurableFront):
    """A front that publishes files in a directory. Thread-safe; one at a time may run under one name in a
    directory.

    `with FileFront(...) as front:` ends the run, not the front: what was written is committed, and then min time
    waits for the front to be started again. One that has nothing more to say calls `front.leave()` before the end."""

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
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """directory: a path, made if missing, or a location in a store; name it as readers do, since a
        unit's name holds it (symbolic links are not followed). format: `parquet` (needs pyarrow) or `json`
        (lines). Raises FilesError where the store is out of reach."""
        where = STORES.location(os.fspath(directory))
        self.location = where
        """Of the directory."""
        self.format, self.items = Format(format), Items(items)
        self._comes_again = options.comes_again
        node_id = options.node_id or front
        identity = front_identity(node_id, front)
        if scheme(where):
            if options.lock_directory is not None or not options.comes_again:
                raise ValueError(f"{where} is in a store, where there are no locks")
            self._place: Place = StoredPlace(where, identity)
            self._known = known_beside(where, pipeline, node_id)
        else:
            locks = os.path.abspath(options.lock_directory or where)
            self._place = LocalPlace(where, identity, locks)
            self._known = known_beside(locks, pipeline, node_id)
        hold = self._place.hold
        beneath = Front(
            target, pipeline, front, segment, known=self._known, owner=hold.owner, options=options
        )
        super().__init__(beneath, where, hold)
        # Refuses a name that would be too long one day.
        file_name(LOWEST_SLOT, beneath.identity, HIGHEST_SLOT, self.format.value)

    @property
    def directory(self) -> Path:
        """Of a front on this machine. Raises ValueError."""
        return _path(self.location)

    @property
    def lock_path(self) -> Path:
        """Of the file that keeps a second run out. Raises ValueError in a store."""
        if not isinstance(self._hold, LockFile):
            raise ValueError(f"{self.location} is in a store, where there are no locks")
        return self._hold.path

    def start_locked(self, lock_fd: int, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """As `start`, with `lock_path` open and locked already; it is closed in the end."""
        assert isinstance(self._hold, LockFile)
        with self._once():
            self._hold.adopt(lock_fd)
            self._start_held(timeout_s)
        return self

    def write(
        self,
        rows: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]],
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> PublishedFile | None:
        """Labels rows that come in now and publishes them as one file; None if there are none.

        Returns when readers can see the file; it is committed in the background. When this raises
        OSError, or what the format's library does of these rows, nothing was published: write them again, or others.
        TrackingError: start the front again to find out. Else as `Front.publish`.
        """
        table = _table(rows, self.format)
        count = len(table)
        if not count:
            return None
        items = count if self.items is Items.ROWS else 1
        return self._publish_file(items, partial(self._write, table, timeout_s), timeout_s)

    def take(
        self, path: str | os.PathLike[str], timeout_s: float = PUBLISH_TIMEOUT_S
    ) -> PublishedFile | None:
        """Publishes a whole file that is there already, as it is, by moving it into the directory
        under its label; None if it is gone: of several fronts that take one file, one gets it.

        The file must be in the same file system or store, and its items be files. In a store one front takes
        the files of a directory, each of which has a name of its own, never used again. Raises as `write`."""
        if self.items is Items.ROWS:
            raise ValueError(
                f"{path} can't be taken by a front whose items are rows: it has no labels in it; make "
                "a front with items='files', or write() its rows"
            )
        source = STORES.location(os.fspath(path))
        try:
            return self._publish_file(1, partial(self._take, source, timeout_s), timeout_s)
        except FileNotFoundError:
            return None

    def published(self) -> list[PublishedFile]:
        """This front's files in the directory, by their numbers."""
        return [self._file(labelled, name) for labelled, name in self._place.files()]

    # --- writing ----------------------------------------------------------------------------------

    def _publish_file(
        self, items: int, publish: Callable[[OpenBatch], PublishedFile], timeout_s: float
    ) -> PublishedFile:
        published: list[PublishedFile] = []

        def send(batch: OpenBatch) -> Sequence[str] | None:
            published.append(publish(batch))
            return [unit_name(published[0].location)] if self.items is Items.FILES else None

        self._publish_now(items, send, timeout_s)
        self._place.prune(self._front.last_durable)
        return published[0]

    def _write(
        self,
        table: pa.Table | Sequence[Mapping[str, Any]],
        timeout_s: float,
        batch: OpenBatch,
    ) -> PublishedFile:
        labelled, name = self._named(batch, self.format.value)
        try:
            labels = (batch.slots, batch.values) if self.items is Items.ROWS else None
            data = _encoded(table, labels, self.format)
        except Exception as error:  # libraries of formats raise what they like
            raise NotPublishedError(f"{name} was not published: {error}") from error
        self._place.write(labelled, name, data, timeout_s)
        return self._file(labelled, name)

    def _take(self, source: str, timeout_s: float, batch: OpenBatch) -> PublishedFile:
        suffix = os.path.splitext(source)[1][1:]
        if not (suffix.isascii() and suffix.isalnum()):
            suffix = self.format.value
        try:
            labelled, name = self._named(batch, suffix)
            self._place.take(source, labelled, name, timeout_s)
        except ValueError as error:
            raise NotPublishedError(f"{source} was not published: {error}") from error
        return self._file(labelled, name)

    def _named(self, batch: OpenBatch, suffix: str) -> tuple[LabelledFile, str]:
        """Raises ValueError where the suffix makes no name."""
        labelled = LabelledFile(int(batch.slots[0]), self._front.identity, batch.number, suffix)
        return labelled, file_name(labelled.slot, labelled.front, labelled.batch, suffix)

    def _file(self, labelled: LabelledFile, name: str) -> PublishedFile:
        return PublishedFile(self._place.at(name), labelled.slot, labelled.batch)

    # --- recovering -------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._place.prepare()

    def _forget(self) -> None:
        if self._comes_again:
            return
        if self._newest() < 0:
            self.forget_lock(self.lock_path)
        else:  # what it published counts again where the pipeline is restarted
            assert isinstance(self._hold, LockFile)
            self._hold.put_away()

    def forget_lock(self, lock: Path) -> None:
        """Removes a lock file of this front, and what it knew of the tracker."""
        Path(self._known).unlink(missing_ok=True)
        lock.unlink(missing_ok=True)

    def _newest(self) -> int:
        return self._place.newest()

    def _recorded(self, durable: int) -> list[RecordedBatch]:
        found = self._place.recorded(durable, self._front.replay_from)
        return [
            RecordedBatch(file.batch, file.slot, partial(self._batch, file, name))
            for file, name in found
        ]

    def _batch(self, labelled: LabelledFile, name: str, segment: int) -> PublishedBatch:
        where = self._place.at(name)
        if self.items is Items.FILES:
            return units_batch(segment, labelled.batch, labelled.slot, [unit_name(where)])
        try:
            slots, values = _labels(where, Format(labelled.suffix))
        except AwayError:
            raise
        except FilesError as error:
            raise StateError(
                f"front {labelled.front!r}: the labels of batch {labelled.batch} are in its file alone, and {error}; "
                f"the tracker has not had it: restore it, or start under a new front name",
                Code.STATE_ROLLED_BACK,
            ) from error
        return items_batch(segment, labelled.batch, slots, values)


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
) -> bytes:
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
    return buffer.getvalue()


def _labels(where: str, fmt: Format) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The labels of a file's rows, as `_encoded` wrote them."""
    file = OpenedFile(STORES.files(where), where)
    if fmt is Format.JSON:
        rows = [json.loads(line) for line in file.read().splitlines()]
        slots = np.array([row[SLOT_COLUMN] for row in rows], np.int64)
        signed = np.array([row[VALUE_COLUMN] for row in rows], np.int64)
    else:
        import pyarrow.parquet as pq

        table = pq.ParquetFile(file).read(columns=[SLOT_COLUMN, VALUE_COLUMN])
        slots = table.column(SLOT_COLUMN).to_numpy()
        signed = table.column(VALUE_COLUMN).to_numpy()
    return slots, np.ascontiguousarray(signed).view(np.uint64)


def _path(where: str) -> Path:
    if scheme(where):
        raise ValueError(f"{where} is in a store: it has a location, and no path")
    return Path(where)
