"""What a sink of the user's own has committed, recorded where a tracked query finds it.

A `DataSourceStreamWriter` calls `note_commit` in its `commit(messages, batchId)`, after its own commit;
the query is started with `noted=directory`. Spark may commit a batch again after a crash: the last note
before `commits/N` counts. Standard library alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path


class NoteError(Exception):
    """A note cannot be read; names its file."""


def note_commit(directory: str, batch: int, names: Iterable[str]) -> None:
    """Notes the units (files by their `file:///` names, as a reader's log will name them) that a batch
    has created. One directory for each query; it is made if it is not there. Raises OSError."""
    path = _path(directory, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump({"units": sorted(set(names))}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def recorded_units(directory: str, batch: int) -> tuple[str, ...]:
    """The units of a batch; none if none were recorded. Raises NoteError."""
    path = _path(directory, batch)
    try:
        return tuple(str(name) for name in json.loads(path.read_text(encoding="utf-8"))["units"])
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise NoteError(f"{path} is not a note of a commit: {error!r}") from None


def is_recorded(directory: str, batch: int) -> bool:
    """Whether a batch has a note, be it of no unit."""
    return _path(directory, batch).exists()


def forget(directory: str, batch: int) -> None:
    """Removes the note of a batch."""
    _path(directory, batch).unlink(missing_ok=True)


def _path(directory: str, batch: int) -> Path:
    return Path(directory) / f"{batch:08d}.json"
