"""What delta-rs has written to a local disk, made durable: it leaves that to the system, and a cut of power could
take rows that were said to be written. Stores need no such thing."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tracker.files.local import sync


class LocalLog:
    """The log of a table in a local directory, whose commits are synced in order."""

    def __init__(self, uri: str) -> None:
        """uri: as of a `file://` table."""
        self._table = Path(unquote(urlsplit(uri).path))
        self._log = self._table / "_delta_log"
        self._synced = -1

    def sync(self, version: int) -> None:
        """Makes all up to a version durable, with the files of its rows. What others have compacted or cleaned
        up meanwhile is theirs. Raises OSError."""
        rows = [path for each in self._versions(version) for path in self._added(each)]
        logged = [self._log / "_last_checkpoint"]
        for each in self._versions(version):
            logged += [
                self._log / f"{each:020d}.json",
                self._log / f"{each:020d}.checkpoint.parquet",
            ]
        for path in (*rows, *logged):
            with suppress(FileNotFoundError):  # compacted, or cleaned up
                sync(path)
        for directory in {path.parent for path in rows} | {
            self._log,
            self._table,
            self._table.parent,
        }:
            sync(directory)
        self._synced = version

    def _versions(self, last: int) -> list[int]:
        """Those that are not synced yet, and that the log still has."""
        if self._synced >= 0:
            return list(range(self._synced + 1, last + 1))
        names = (path.stem for path in self._log.glob("*.json"))
        return sorted(int(name) for name in names if name.isdigit() and int(name) <= last)

    def _added(self, version: int) -> list[Path]:
        try:
            lines = (self._log / f"{version:020d}.json").read_text().splitlines()
        except FileNotFoundError:
            return []
        actions: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [self._table / unquote(each["add"]["path"]) for each in actions if "add" in each]


def local_log(uri: str) -> LocalLog | None:
    """The log of a table that is in a local directory; None of one in a store."""
    return LocalLog(uri) if uri.startswith("file:") else None
