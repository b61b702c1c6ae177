"""Where a program's queries read and write, taken elsewhere: a check of theirs must touch nothing of what they have.

Each place that the program names for its streams, and for what it writes, becomes a folder of the check's own. A place
that is both written and read stays one, so queries that follow each other do so there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrameWriter
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

from local_tracker.spark.jvm import planned_query
from local_tracker.spark.session.drafting import Replaced
from local_tracker.spark.session.tracked import Tracked
from tracker.errors import TrackingError
from tracker.files import STORES, FilesError, scheme

_READS = ("load", "json", "parquet", "orc", "csv", "text")
_WRITES = ("save", "json", "parquet", "orc", "csv", "text")


class Places:
    """Folders below one of the check's, by the places that the program names, in the order in which it does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, str] = {}

    def of(self, place: str | os.PathLike[str]) -> str:
        """The folder that stands for a place; such a folder stands for itself."""
        named = os.fspath(place)
        where = directory(named) or named
        if Path(where).is_relative_to(self.root):
            return where
        folder = self._folders.setdefault(where, str(self.root / str(len(self._folders))))
        os.makedirs(folder, exist_ok=True)
        return folder

    def named(self, folder: str) -> str:
        """What the program calls it."""
        return next((named for named, there in self._folders.items() if there == folder), folder)

    def replacing(self) -> Iterator[Replaced]:
        """What stands for the methods that take a place."""
        for owner, names in ((DataStreamReader, _READS), (DataFrameWriter, _WRITES)):
            for name in names:
                yield owner, name, self._with_place(getattr(owner, name))
        yield Tracked, "writer", self._with_place(Tracked.writer)
        yield DataStreamReader, "option", self._option(DataStreamReader.option)

    def _with_place(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self_: Any, path: Any = None, *given: Any, **more: Any) -> Any:
            if "out" in more:
                more["out"] = self.of(more["out"])
            if isinstance(path, str | os.PathLike):
                path = self.of(path)
            return method(self_, *([] if path is None else [path]), *given, **more)

        return call

    def _option(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(reader: Any, key: str, value: Any) -> Any:
            return method(reader, key, self.of(value) if key.lower() == "path" else value)

        return call

    def move(self, writer: DataStreamWriter) -> None:
        """What a query writes, and its checkpoint. Raises TrackingError where it has none, or reads what is elsewhere."""
        planned = planned_query(writer)
        if not planned.checkpoint:
            raise TrackingError(
                "a query has no checkpointLocation: killed and started again, it would take nothing up where it was"
            )
        writer.option("checkpointLocation", self.of(planned.checkpoint))
        if planned.path:
            writer.option("path", self.of(planned.path))
        for source in planned.sources or ():
            where = directory(source.directory)
            if not where or not Path(where).is_relative_to(self.root):
                raise TrackingError(
                    f"the query reads {source.what}, and a check feeds files alone, of spark.readStream.json(...) and "
                    f"the like: try it with real input by kill_and_restart (docs/testing.md)"
                )


def directory(place: str | None) -> str:
    """Of this machine; empty for one elsewhere."""
    try:
        where = STORES.location(place) if place else ""
    except FilesError:
        return ""
    return "" if scheme(where) else where.rstrip("/")
