"""Where a file front publishes: a local or mounted directory, or one of a store.

A file is seen whole or not at all. On this machine it is written under a hidden name and renamed, and the directory
itself is the front's record. A store renames nothing: the file is put beside (`_lowmark/`, which readers pass over),
a record in the front's log says that it is batch so-and-so, and by that it is published; then it is put into its
place. Whoever takes over the log finishes what its records say, and deletes what none of them names.
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from fronts.holds import Hold, LockFile, StoredLog, insist
from tracker.core.model.units import LabelledFile, parse_file_name
from tracker.errors import Code, NotPublishedError, StateError, TrackingError
from tracker.files import STORES, AwayError, FilesError, child, parent
from tracker.files.local import sync

PRUNE_ABOVE_RECORDS = 50
"""Records in a store that nobody needs any more, and that are let go of together."""

_TAKEN_BY = "_lowmark.taken-by.json"

log = logging.getLogger("lowmark.front")

Found = list[tuple[LabelledFile, str]]
"""Files of the front by the numbers of their batches, with their names."""


class Place(ABC):
    """The directory of one front, for the run that has it. directory: its location."""

    hold: Hold

    def __init__(self, directory: str, front: str) -> None:
        self.directory, self._front = directory, front
        self._files = STORES.files(directory)

    @abstractmethod
    def prepare(self) -> None:
        """Makes it if it is not there; removes what a killed run did not publish."""

    @abstractmethod
    def recorded(self, durable: int, replay_from: int) -> Found:
        """The files that are there. durable: the last batch that the tracker has; those behind it from slot
        `replay_from` on must be there. Raises StateError, FilesError."""

    @abstractmethod
    def write(self, labelled: LabelledFile, name: str, data: bytes, timeout_s: float) -> None:
        """Publishes a file. When it raises NotPublishedError nothing has got out, nor will; else, by
        TrackingError, it has or may have."""

    @abstractmethod
    def take(self, source: str, labelled: LabelledFile, name: str, timeout_s: float) -> None:
        """The same, of a file that is there. NotPublishedError has FileNotFoundError for its cause where it
        is gone. Raises ValueError where the source is in another store."""

    @abstractmethod
    def prune(self, durable: int) -> None:
        """Lets go of records of batches before the last one that the tracker has."""

    def files(self) -> Found:
        """This front's files in the directory."""
        named = [(parse_file_name(name), name) for name in self._files.names(self.directory)]
        return sorted(
            (
                (file, name)
                for file, name in named
                if file is not None and file.front == self._front
            ),
            key=lambda file: file[0].batch,
        )

    def newest(self) -> int:
        """The number of the last batch that was published, as far as that can be seen; -1 if there is none."""
        return max((labelled.batch for labelled, _ in self.files()), default=-1)

    def at(self, name: str) -> str:
        return child(self.directory, name)


class LocalPlace(Place):
    """A local or mounted directory; the lock file may be in another one."""

    hold: LockFile

    def __init__(self, directory: str, front: str, lock_directory: str) -> None:
        super().__init__(directory, front)
        self.hold = LockFile(Path(lock_directory) / f".{quote(front, safe='')}.lock")

    def prepare(self) -> None:
        os.makedirs(self.directory, exist_ok=True)
        for name in os.listdir(self.directory):
            if name.startswith(".") and name.endswith(".tmp"):
                labelled = parse_file_name(name[1:-4])
                if labelled is not None and labelled.front == self._front:
                    os.unlink(self.at(name))
        # A run that was killed may have renamed a file there, and not made that durable: it is committed now.
        sync(self.directory)

    def recorded(self, durable: int, replay_from: int) -> Found:
        return self.files()

    def write(self, labelled: LabelledFile, name: str, data: bytes, timeout_s: float) -> None:
        """Until the rename nothing has got out, and nothing will; then it has, whatever follows."""
        hidden, path = Path(self.at(f".{name}.tmp")), self.at(name)
        try:
            _write_durably(hidden, data)
            self._rename(str(hidden), path)
        except OSError as error:
            with suppress(OSError):  # as where nothing can be written: the next run does it
                hidden.unlink()
            raise NotPublishedError(f"{path} was not published: {error}") from error
        self._sync_directories(path, self.directory)

    def take(self, source: str, labelled: LabelledFile, name: str, timeout_s: float) -> None:
        """The rename decides whose the file is, and publishes it."""
        path = self.at(name)
        try:
            with suppress(PermissionError):
                # Spark passes over files that are much older than others (maxFileAge), and for ever.
                os.utime(source)
            sync(Path(source))  # who wrote it may not have
            self._rename(source, path)
        except OSError as error:
            raise NotPublishedError(f"{source} was not published: {error}") from error
        self._sync_directories(path, self.directory, parent(source))

    def prune(self, durable: int) -> None:
        """The directory is the record: whoever reads its files removes them."""

    def _rename(self, source: str, path: str) -> None:
        """Raises OSError where nothing has got out. Over a network the answer to a rename may be lost, and what was asked for
        again is not there any more: it is looked for what came of it. No other file has the name, which is of one batch."""
        try:
            os.rename(source, path)
        except OSError as error:
            try:
                os.lstat(path)
            except FileNotFoundError:
                raise error from None
            except OSError as unknown:
                raise TrackingError(
                    f"{path} may have been published ({error}), and cannot be looked at ({unknown}); start front "
                    f"{self._front!r} again, which goes by what is there",
                    Code.TRACKING_FRONT,
                ) from error

    def _sync_directories(self, path: str, *directories: str) -> None:
        """Makes the rename to `path` durable, which readers can see already."""
        try:
            for directory in directories:
                sync(Path(directory))
        except OSError as error:
            raise TrackingError(
                f"{path} can be read and may not survive a power failure ({error}); start front "
                f"{self._front!r} again, which goes by what is there",
                Code.TRACKING_FRONT,
            ) from error


class StoredPlace(Place):
    """A directory of a store."""

    hold: StoredLog

    def __init__(self, directory: str, front: str) -> None:
        super().__init__(directory, front)
        root = child(directory, f"_lowmark/fronts/{quote(front, safe='')}")
        self._staged = child(root, "staged")
        self.hold = StoredLog(self._files, child(root, "log"))
        self._kept: list[tuple[int, int]] = []
        """The records that are there, in order: their numbers, each with its batch, -1 if it is none."""
        self._taken_from: set[str] = set()

    def prepare(self) -> None:
        """What a killed run did not publish goes when what it published is in its place."""

    def recorded(self, durable: int, replay_from: int) -> Found:
        found = {labelled.batch: (labelled, name) for labelled, name in self.files()}
        self._kept = []
        for record in self.hold.records:
            value = record.value or {}
            labelled = parse_file_name(value.get("file", ""))
            self._kept.append((record.number, -1 if labelled is None else labelled.batch))
            if labelled is None:
                continue
            if labelled.batch > durable and labelled.slot >= replay_from:
                self._finish(value, durable)
                found[labelled.batch] = labelled, value["file"]
        for name in self._files.names(self._staged):
            self._files.delete(child(self._staged, name))
        return [found[batch] for batch in sorted(found)]

    def newest(self) -> int:
        recorded = [
            parse_file_name((record.value or {}).get("file", "")) for record in self.hold.records
        ]
        return max([super().newest(), *(labelled.batch for labelled in recorded if labelled)])

    def _finish(self, value: dict[str, Any], durable: int) -> None:
        try:
            self._put(value)
        except AwayError:
            raise
        except FilesError as error:
            # Nobody else takes what was put beside: the run before has put it there, and a reader has removed it.
            if "staged" in value and self._files.size(self._source(value)) is None:
                log.warning(
                    "front %r: %s was put into its place, and is there no more: it is committed, and complete once "
                    "whoever has read it says so", self._front, self.at(value["file"]),
                )  # fmt: skip
                return
            raise StateError(
                f"front {self._front!r}: {self.at(value['file'])} was published, and {error}; the tracker has "
                f"those up to {durable}: restore it, or start under a new front name",
                Code.STATE_ROLLED_BACK,
            ) from error

    def write(self, labelled: LabelledFile, name: str, data: bytes, timeout_s: float) -> None:
        staged = uuid4().hex
        try:
            insist(partial(self._files.create, child(self._staged, staged), data), timeout_s)
        except (FilesError, OSError) as error:
            raise NotPublishedError(f"{name} was not published") from OSError(
                f"{self.at(name)} was not published: {error}"
            )
        self._publish(labelled, {"file": name, "staged": staged}, timeout_s)

    def take(self, source: str, labelled: LabelledFile, name: str, timeout_s: float) -> None:
        """What is recorded will be moved: the source is the front's alone, by a record of its own there."""
        if STORES.files(source) is not self._files:
            raise ValueError(
                f"{source} is not in the store of {self.directory}, so it cannot be taken"
            )
        try:
            self._claim(parent(source))
            if self._files.size(source) is None:
                raise FileNotFoundError(source)
        except (FilesError, OSError) as error:
            cause = error
            if not isinstance(error, OSError):
                cause = OSError(str(error))
                cause.__cause__ = error
            raise NotPublishedError(f"{source} was not published: {error}") from cause
        self._publish(labelled, {"file": name, "from": source}, timeout_s)

    def _claim(self, folder: str) -> None:
        """Of two fronts that copy a file and then delete it, both could have it."""
        if folder in self._taken_from:
            return
        own = json.dumps({"front": self._front, "directory": self.directory}).encode()
        at = child(folder, _TAKEN_BY)
        if not self._files.create_if_absent(at, own):
            raise FilesError(
                f"{at} says that another front takes the files there, or this one into another directory: in a "
                f"store one front takes the files of a directory"
            )
        self._taken_from.add(folder)

    def _publish(self, labelled: LabelledFile, value: dict[str, Any], timeout_s: float) -> None:
        number = self.hold.append(value, timeout_s)
        self._kept.append((number, labelled.batch))
        try:
            insist(partial(self._put, value), timeout_s)
        except (FilesError, OSError) as error:
            raise TrackingError(
                f"{self.at(value['file'])} is published, and not in its place ({error}); start front "
                f"{self._front!r} again, which puts it there",
                Code.TRACKING_FRONT,
            ) from error

    def _put(self, value: dict[str, Any]) -> None:
        self._files.move(self._source(value), self.at(value["file"]))

    def _source(self, value: dict[str, Any]) -> str:
        """Where a file was before it is put into its place."""
        return str(value["from"]) if "from" in value else child(self._staged, value["staged"])

    def prune(self, durable: int) -> None:
        newest = max((number for number, batch in self._kept if 0 <= batch <= durable), default=0)
        old = [number for number, _ in self._kept if number < newest]
        if len(old) < PRUNE_ABOVE_RECORDS:
            return
        try:
            self.hold.delete(old)
        except (FilesError, OSError):
            return  # the next time
        self._kept = self._kept[len(old) :]


def _write_durably(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
