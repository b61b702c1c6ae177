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
_OF_CODE = frozenset(("foreachbatch", "foreach", "memory", "console", "noop"))
"""Sinks that write nowhere, or where code of the program does."""

_There = Callable[[str | os.PathLike[str]], str]


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
        return self._folders.setdefault(where, str(self.root / str(len(self._folders))))

    def read(self, place: str | os.PathLike[str]) -> str:
        """The same, where it must be there. (What is written may have to be new.)"""
        folder = self.of(place)
        os.makedirs(folder, exist_ok=True)
        return folder

    def named(self, folder: str) -> str:
        """What the program calls it."""
        return next((named for named, there in self._folders.items() if there == folder), folder)

    def replacing(self) -> Iterator[Replaced]:
        """What stands for the methods that take a place."""
        for owner, names, there in (
            (DataStreamReader, _READS, self.read), (DataFrameWriter, _WRITES, self.of)
        ):  # fmt: skip
            for name in names:
                yield owner, name, self._with_place(getattr(owner, name), there)
            yield owner, "option", self._option(owner.option, there)
        yield DataFrameWriter, "options", self._options(DataFrameWriter.options)
        yield Tracked, "writer", self._with_place(Tracked.writer, self.of)

    def _with_place(self, method: Callable[..., Any], there: _There) -> Callable[..., Any]:
        def call(self_: Any, path: Any = None, *given: Any, **more: Any) -> Any:
            if "out" in more:
                more["out"] = self.of(more["out"])
            if isinstance(path, str | os.PathLike):
                path = there(path)
            return method(self_, *([] if path is None else [path]), *given, **more)

        return call

    def _option(self, method: Callable[..., Any], there: _There) -> Callable[..., Any]:
        def call(owner: Any, key: str, value: Any) -> Any:
            return method(owner, key, there(value) if key.lower() == "path" else value)

        return call

    def _options(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(writer: Any, **given: Any) -> Any:
            moved = {key: self.of(path) for key, path in given.items() if key.lower() == "path"}
            return method(writer, **{**given, **moved})

        return call

    def move(self, writer: DataStreamWriter, table: str = "") -> None:
        """What a query writes, and its checkpoint. table: the one that it writes by name. Raises TrackingError where it has no
        checkpoint, or reads or writes what is elsewhere."""
        planned = planned_query(writer)
        if table or not (planned.path or planned.sink.lower() in _OF_CODE):
            raise TrackingError(
                f"the query writes to {f'table {table}' if table else planned.sink}, and a check has folders of its own for "
                f"files alone: try it where it may write, by kill_and_restart (docs/testing.md)"
            )
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
