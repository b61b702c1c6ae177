"""What a sink of the user's own has committed, recorded where a tracked query finds it.

A `DataSourceStreamWriter` calls `note_commit` in its `commit(messages, batchId)`, after its own commit;
the query is started with `noted=directory`. Spark may commit a batch again after a crash: the last note
before `commits/N` counts. The directory may be in a store that `tracker.files` reaches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tracker.core.model.units import canonical_name
from tracker.errors import Code, FilesError
from tracker.files import STORES, Files, Stores, child

MAX_NOTE_BYTES = 64 * 2**20
"""The largest note that is read: of some hundred thousand units."""


def note_commit(directory: str, batch: int, names: Iterable[str]) -> None:
    """Notes the units (files by their `file:///` names, as a reader's log will name them) that a batch
    has created. One directory for each query; it is made if it is not there. Raises FilesError."""
    files, path = _note(directory, batch, STORES)
    files.create(path, json.dumps({"units": sorted(set(names))}).encode())


def recorded_units(directory: str, batch: int, stores: Stores = STORES) -> tuple[str, ...]:
    """The units of a batch; none if none were recorded. Raises FilesError."""
    files, path = _note(directory, batch, stores)
    text = files.read_whole(path, MAX_NOTE_BYTES)
    if text is None:
        return ()
    try:
        return tuple(canonical_name(str(name)) for name in json.loads(text)["units"])
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise FilesError(f"{path} is not a note of a commit: {error!r}", Code.FILES_LOG) from None


def is_recorded(directory: str, batch: int, stores: Stores = STORES) -> bool:
    """Whether a batch has a note, be it of no unit. Raises FilesError."""
    files, path = _note(directory, batch, stores)
    return files.size(path) is not None


def forget(directory: str, batch: int, stores: Stores = STORES) -> None:
    """Removes the note of a batch. Raises FilesError."""
    if batch >= 0:
        files, path = _note(directory, batch, stores)
        files.delete(path)


def _note(directory: str, batch: int, stores: Stores) -> tuple[Files, str]:
    where = stores.location(directory)
    return stores.files(where), child(where, f"{batch:08d}.json")
