"""Small tables that are marked, and what their readers see there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tracker.consumers.periods.cut import Cut
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.iceberg import IcebergMark

ROWS = pa.table({"row": [1, 2]})
ICEBERG_TABLE = "db.orders"


def iceberg_configuration(directory: Path) -> dict[str, str]:
    """Of pyiceberg: a catalog in a file of SQLite, and its tables beside it."""
    return {
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/warehouse",
    }


class DeltaPlace:
    """A Delta table, written and read by delta-rs."""

    def __init__(self, directory: Path, *, rows: bool = False) -> None:
        self.location = str(directory / "delta")
        if rows:
            self.append()

    def mark(self, cut: Cut, table: str | None = None) -> DeltaMark:
        return DeltaMark(cut, self.location if table is None else f"{self.location}/{table}")

    def append(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.location, ROWS, mode="append")

    def rows(self) -> int:
        from deltalake import DeltaTable

        return int(DeltaTable(self.location).to_pyarrow_table().num_rows)

    def commits(self) -> list[dict[str, Any]]:
        """The actions of each commit by their names, the oldest first."""
        found = []
        for path in sorted(Path(self.location, "_delta_log").glob("*.json")):
            actions: dict[str, Any] = {}
            for line in path.read_text().splitlines():
                actions.update(json.loads(line))
            found.append(actions)
        return found

    def marks(self) -> list[dict[str, Any]]:
        """What the commits say of periods, the oldest first."""
        infos = [actions["commitInfo"] for actions in self.commits()]
        return [json.loads(info["userMetadata"]) for info in infos if "userMetadata" in info]


class IcebergPlace:
    """An Iceberg table, written and read by pyiceberg."""

    def __init__(self, directory: Path, *, rows: bool = False, **properties: Any) -> None:
        """properties: of the catalog, beside or instead of its usual ones."""
        from pyiceberg.catalog import load_catalog

        directory.mkdir(exist_ok=True)
        self.name = ICEBERG_TABLE
        self.catalog = load_catalog("default", **{**iceberg_configuration(directory), **properties})
        if not self.catalog.table_exists(self.name):
            self.catalog.create_namespace_if_not_exists("db")
            self.catalog.create_table(self.name, ROWS.schema)
        if rows:
            self.append()

    def mark(self, cut: Cut, table: str | None = None, **options: Any) -> IcebergMark:
        return IcebergMark(cut, table or self.name, self.catalog, **options)

    def table(self) -> Any:
        return self.catalog.load_table(self.name)

    def append(self) -> None:
        self.table().append(ROWS)

    def rows(self, tag: str | None = None) -> int:
        table = self.table()
        snapshot = None if tag is None else table.metadata.refs[tag].snapshot_id
        return int(table.scan(snapshot_id=snapshot).to_arrow().num_rows)

    def marks(self) -> list[dict[str, Any]]:
        """What the snapshots of the main branch say of periods, the oldest first."""
        table, found = self.table(), []
        snapshot = table.current_snapshot()
        while snapshot is not None:
            properties = snapshot.summary.additional_properties
            if "lowmark.key" in properties:
                found.append({**properties, "id": snapshot.snapshot_id})
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return found[::-1]

    def tags(self) -> dict[str, int]:
        """The snapshots that tags point at."""
        refs = self.table().metadata.refs
        return {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}


def success_files(table: Path) -> dict[str, dict[str, Any]]:
    """What the marks of partition folders say, by their folders."""
    found = sorted(table.rglob("_SUCCESS"))
    return {str(path.parent.relative_to(table)): json.loads(path.read_text()) for path in found}


def keys(marks: Sequence[dict[str, Any]]) -> list[str]:
    """The periods' keys of marks in a Delta or Iceberg table."""
    return [str(mark.get("key") or mark.get("lowmark.key")) for mark in marks]


def environment_of(directory: Path) -> dict[str, str]:
    """Of a process whose pyiceberg knows the catalog as its default."""
    configured = {
        f"PYICEBERG_CATALOG__DEFAULT__{name.upper()}": value
        for name, value in iceberg_configuration(directory).items()
    }
    return {**os.environ, **configured}


def synced_files(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files and directories that are synced from now on."""
    sync, synced = os.fsync, set[str]()

    def record(file: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", record)
    return synced
