"""Fronts: they label what comes in with a slot, and promise by heartbeat what they will not label.

`Front` is the library for any way of publishing; `FileFront` publishes files for Spark to read;
`FileGroup` lets several of them share a directory's files; `RangeFront` labels the offsets of a
partitioned log, `PartitionGroup` lets several members share its partitions;
`fronts.spark` labels a raw streaming DataFrame. `fronts.core` is how labels, promises and commits hang
together, as a pure state machine. Importing this package imports none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fronts.client import Front, FrontFailedError, FrontFullError, NotPublishedError
    from fronts.files import FileFront
    from fronts.group import FileGroup
    from fronts.partition_group import PartitionGroup
    from fronts.ranges import RangeFront

__part_of__ = "lowmark"
__all__ = [
    "FileFront", "FileGroup", "Front", "FrontFailedError", "FrontFullError", "NotPublishedError",
    "PartitionGroup", "RangeFront",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "FileFront":
        from fronts.files import FileFront

        return FileFront
    if name == "FileGroup":
        from fronts.group import FileGroup

        return FileGroup
    if name == "PartitionGroup":
        from fronts.partition_group import PartitionGroup

        return PartitionGroup
    if name == "RangeFront":
        from fronts.ranges import RangeFront

        return RangeFront
    if name in __all__:
        from fronts import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
