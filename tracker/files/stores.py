"""Which files a location is among: those of this machine, or of a store by its scheme."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tracker.errors import FilesError
from tracker.files.interface import Files
from tracker.files.local import LocalFiles
from tracker.files.locations import location, scheme


class Stores:
    """The files of all stores that this process can reach; one `Files` a store, made when first asked for.
    Thread-safe."""

    def __init__(self, others: Callable[[str], Files] | None = None) -> None:
        """others: makes the files of a store that is not this machine, by its scheme and authority, such
        as `s3://bucket`; by fsspec if not given."""
        self._others = others or _by_fsspec
        self._lock = threading.Lock()
        self._known: dict[str, Files] = {"": LocalFiles()}

    def location(self, text: str) -> str:
        """As `locations.location`. Raises FilesError."""
        try:
            return location(text)
        except ValueError as error:
            raise FilesError(str(error)) from None

    def requests(self) -> dict[str, dict[str, int]]:
        """How many requests each store was sent, by kind (`Requests.counted`); this machine is the store
        of the empty name."""
        with self._lock:
            return {store: files.requests.counted() for store, files in self._known.items()}

    def files(self, where: str) -> Files:
        """The files that a location is among. Raises FilesError where there is no way to its store."""
        store = "/".join(where.split("/", 3)[:3]) if scheme(where) else ""
        with self._lock:
            found = self._known.get(store)
            if found is None:
                found = self._known[store] = self._others(store)
            return found


def _by_fsspec(store: str) -> Files:
    try:
        from tracker.files.by_fsspec import fsspec_files
    except ImportError as error:
        raise FilesError(
            f"{store} is reached by fsspec, which is not installed ({error}): install lowmark[files] and the "
            f"file system of that scheme, s3fs, gcsfs or adlfs; or use a local or mounted directory"
        ) from None
    return fsspec_files(store)


STORES = Stores()
"""What a program without Spark reaches."""
