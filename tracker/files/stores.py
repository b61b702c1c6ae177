"""Which files a location is among: those of this machine, or of a store by its scheme."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tracker.files.interface import Files, FilesError
from tracker.files.local import LocalFiles
from tracker.files.locations import location, scheme


class Stores:
    """The files of all stores that this process can reach; one `Files` a scheme, made when first asked
    for. Thread-safe."""

    def __init__(self, others: Callable[[str], Files] | None = None) -> None:
        """others: makes the files of a scheme that is not this machine's."""
        self._others = others or _unreachable
        self._lock = threading.Lock()
        self._known: dict[str, Files] = {"": LocalFiles()}

    def location(self, text: str) -> str:
        """As `locations.location`. Raises FilesError."""
        try:
            return location(text)
        except ValueError as error:
            raise FilesError(str(error)) from None

    def files(self, where: str) -> Files:
        """The files that a location is among. Raises FilesError where there is no way to its store."""
        kind = scheme(where)
        with self._lock:
            found = self._known.get(kind)
            if found is None:
                found = self._known[kind] = self._others(kind)
            return found


def _unreachable(kind: str) -> Files:
    raise FilesError(
        f"locations of scheme {kind}: cannot be reached, only local paths (file:); put the checkpoint and "
        f"the sink on a local or mounted directory"
    )


STORES = Stores()
"""What a program without Spark reaches."""
