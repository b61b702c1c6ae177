"""What a connector brings to be tried: how its query is started, fed, followed and cut off.

Each is a class in `kinds`, named in `kinds.CONNECTORS`; the rows (`rows`) are the same for all of them. A
query is started by data alone (`Site`), since a driver that is to be killed is a process of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.parts.together import Parts
from tests.spark_matrix.places import Place
from tests.spark_matrix.world import World

PARSE, AFTER = "parse", "after"
"""The segment of the query that is tried, and of who reads its sink; their nodes have the same names."""


@dataclass(frozen=True)
class Site:
    """Where a row's query reads and writes. url: of the row's folder in its place; more: what a connector
    needs beside it. Plain data, that goes to other processes as JSON."""

    url: str
    more: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, name: str) -> str:
        return f"{self.url}/{name}"


@dataclass(frozen=True)
class How:
    """How the query is started this time. task: goes before the sink, for `mapInArrow`; partitions: of what
    it writes; files: how many of the front's it takes at once."""

    task: Callable[[Any], Any] | None = None
    partitions: int = 2
    files: int = 1


class Connector(ABC):
    """A source and a sink. One is made for a run, from its parts; class attributes say what it is."""

    number: ClassVar[int]
    """Of its rows, before the dot."""
    name: ClassVar[str]
    """In the table, and on the command line."""
    pyspark: ClassVar[str]
    """The minor version of PySpark that it is tried on."""
    jars: ClassVar[tuple[str, ...]]
    """The sets that Spark gets."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.broken = ""
        """Why its parts could not be started, if so: its rows have failed then."""

    # --- what it is made of -----------------------------------------------------------------------

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Of a session. Starts the parts; raises Unavailable where one can't be had."""

    @abstractmethod
    def place(self, row: str, directory: Path) -> Place:
        """Where a row's files are: its input, if that is files, its checkpoints and its sink."""

    def site(self, world: World) -> Site:
        return Site(world.place.url("").rstrip("/"))

    @staticmethod
    def options(site: Site) -> dict[str, Any]:
        """Of `Tracked`."""
        return {}

    # --- what a row does --------------------------------------------------------------------------

    def open(self, world: World) -> None:
        """Registers the pipeline, makes what must be there, and follows both queries by `truth`."""
        world.open(PARSE, AFTER)

    def publish(self, world: World, *slots: int) -> None:
        """The front puts something into the source under each slot, and promises beyond it."""
        world.publish(*slots)

    @staticmethod
    @abstractmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        """Starts the query, of node and segment PARSE, which creates AFTER; in any process."""

    @abstractmethod
    def read_on(self, world: World, tracked: Tracked) -> TrackedQuery:
        """Starts the reader of the sink, of node and segment AFTER, into files of its own."""

    @abstractmethod
    def check(self, world: World) -> None:
        """What was published is in the sink and behind its reader, each row as often as it must be."""

    def add_partitions(self, world: World) -> None:  # noqa: B027 - most have none
        """The source has another number of partitions from here on, if it has any."""

    # --- what goes wrong --------------------------------------------------------------------------

    @abstractmethod
    def held_before_commit(self, batch: int) -> AbstractContextManager[Hold]:
        """Within, the store keeps a driver's request to write `commits/<batch>` from coming."""

    @abstractmethod
    def away(self) -> AbstractContextManager[None]:
        """Within, the broker or the store is not there: killed, and started again at the end."""


@dataclass(frozen=True)
class Hold:
    """settings: a driver's that is to be held; until: waits until it is."""

    settings: Mapping[str, str]
    until: Callable[[float], None]
