"""`lowmark`, which dies as by kill -9 at a point of marking a period.

    python -m tests.consumers.follow_killed POINT ARGUMENTS...

The points are in their order within one period. The record is written once before the first period, too.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from typing import Any, NamedTuple

from openlineage.client.transport.http import HttpTransport
from pyiceberg.catalog.sql import SqlCatalog

from tracker import cli
from tracker.consumers.durable import StateFile
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.folders import PartitionMark
from tracker.consumers.periods.iceberg import IcebergMark
from tracker.consumers.periods.openlineage import LineageMark
from tracker.consumers.periods.position import Position


class Point(NamedTuple):
    """Behind a call of a method, the first unless it is said, or right before it."""

    owner: type
    method: str
    call: int = 1
    behind: bool = True


POINTS = {
    "partition marked": Point(PartitionMark, "do"),
    "delta marked": Point(DeltaMark, "do"),
    "iceberg written": Point(SqlCatalog, "_write_metadata"),  # and its catalog does not know
    "iceberg marked": Point(IcebergMark, "do"),
    "lineage not sent": Point(HttpTransport, "emit", behind=False),
    "lineage started": Point(HttpTransport, "emit"),
    "lineage sent": Point(LineageMark, "do"),
    "lineage filed": Point(LineageMark, "do", call=2),
    "not recorded": Point(Position, "done", behind=False),
    "recorded": Point(StateFile, "write"),
}


def main(name: str, *arguments: str) -> None:
    point, calls = POINTS[name], 0
    original = getattr(point.owner, point.method)

    def dies(*args: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if point.behind or calls < point.call:
            original(*args, **options)
        if calls == point.call:
            os.kill(os.getpid(), signal.SIGKILL)

    is_static = isinstance(inspect.getattr_static(point.owner, point.method), staticmethod)
    setattr(point.owner, point.method, staticmethod(dies) if is_static else dies)
    sys.argv = ["lowmark", *arguments]
    cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
