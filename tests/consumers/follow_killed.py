"""`lowmark`, which dies as by kill -9 right behind a point of marking a period.

    python -m tests.consumers.follow_killed POINT ARGUMENTS...

The points, in their order within one period: `partition`, `delta` (that place is marked), `metadata` (those
of the Iceberg table are written, and its catalog does not know), `iceberg`, `openlineage` (a receiver has both
events), `record`. The record is written once before the first period, too.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from tracker import cli
from tracker.consumers.durable import StateFile
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.folders import PartitionMark
from tracker.consumers.periods.iceberg import IcebergMark
from tracker.consumers.periods.openlineage import LineageMark

POINTS: dict[str, tuple[type, str]] = {
    "partition": (PartitionMark, "do"),
    "delta": (DeltaMark, "do"),
    "metadata": (SqlCatalog, "_write_metadata"),
    "iceberg": (IcebergMark, "do"),
    "openlineage": (LineageMark, "do"),
    "record": (StateFile, "write"),
}


def main(point: str, *arguments: str) -> None:
    owner, name = POINTS[point]
    original = getattr(owner, name)

    def die_behind(*args: Any, **options: Any) -> None:
        original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(die_behind) if is_static else die_behind)
    sys.argv = ["lowmark", *arguments]
    cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
