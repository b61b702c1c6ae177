"""Files wherever they are: on this machine, or in an object store (docs/object-stores.md)."""

from tracker.errors import FilesError
from tracker.files.chain import Chain, Record, TakenOverError
from tracker.files.interface import AwayError, End, Files, Requests
from tracker.files.local import LocalFiles
from tracker.files.locations import (
    child,
    location,
    location_of,
    parent,
    parents,
    scheme,
    text_of,
)
from tracker.files.opened import OpenedFile
from tracker.files.stores import STORES, Stores

__all__ = [
    "STORES", "AwayError", "Chain", "End", "Files", "FilesError", "LocalFiles", "OpenedFile", "Record", "Requests",
    "Stores", "TakenOverError", "child", "location", "location_of", "parent", "parents", "scheme", "text_of",
]  # fmt: skip
