"""What those who have left must not leave behind: in the tracker's vector, and in its store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tests.elastic.fleet import Fleet
from tests.elastic.load import PIPELINE
from tests.waits import HANG_S, until
from tracker.client import Admin

PREFIX = "comer"
"""Begins the names of those that are looked for."""


def counted(fleet: Fleet) -> list[dict[str, Any]]:
    """What each process counts of the pipeline: nodes (its vector, by key) and fronts."""
    found = []
    for address in fleet.addresses:
        with Admin(address) as admin:
            state = admin.pipeline(PIPELINE).state
        found.append(
            {
                "process": address, "nodes": len(state.nodes), "fronts": len(state.fronts),
                "comers": sum(n.key.node_id.startswith(PREFIX) for n in state.nodes),
            }
        )  # fmt: skip
    return found


def wait_for_snapshots(fleet: Fleet) -> None:
    """Until each process has a snapshot of what is there now: the log after one is history, and names
    whoever acted."""
    written = {
        store: _asked(store, "SELECT max(position) FROM log")[0][0] for store in stores(fleet)
    }
    for store, position in written.items():

        def is_written(store: Path = store, position: int = position or 0) -> bool:
            rows = _asked(store, "SELECT position FROM snapshot")
            return bool(rows) and rows[0][0] >= position

        until(is_written, f"no snapshot is written in {store}", HANG_S)


def names_in_stores(fleet: Fleet) -> dict[str, int]:
    """How often names of those who came and went occur in each snapshot."""
    return {
        f"{store.parent.name}/{store.stem}": sum(
            bytes(data).count(PREFIX.encode())
            for (data,) in _asked(store, "SELECT data FROM snapshot")
        )
        for store in stores(fleet)
    }


def stores(fleet: Fleet) -> list[Path]:
    return sorted(fleet.directory.glob("store*/shard-*.db"))


def _asked(store: Path, question: str) -> list[Any]:
    file = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return file.execute(question).fetchall()
    finally:
        file.close()
