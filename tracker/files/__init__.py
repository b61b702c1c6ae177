"""Files wherever they are: on this machine, or in an object store (docs/object-stores.md)."""

from tracker.files.interface import (
    AwayError,
    End,
    Files,
    FilesError,
    NotExclusiveError,
    Requests,
)
from tracker.files.local import LocalFiles
from tracker.files.locations import child, location, location_of, parent, parents, scheme
from tracker.files.opened import OpenedFile
from tracker.files.stores import STORES, Stores

__all__ = [
    "STORES", "AwayError", "End", "Files", "FilesError", "LocalFiles", "NotExclusiveError",
    "OpenedFile", "Requests", "Stores", "child", "location", "location_of", "parent", "parents", "scheme",
]  # fmt: skip
