"""Where a barrier under load writes: real servers, and what is found there in the end."""

from __future__ import annotations

import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.postgres_server import COMMITTED, PostgresServer, postgres_bin
from tests.connectors.parts.cache import Unavailable

DATABASE, TABLE = "load", "ordered"
_MS = 1_000_000
"""In nanoseconds: the clocks of Kafka's records and of Delta's commits tick so often."""


@dataclass(frozen=True, slots=True)
class Written:
    """A row as it is in a sink. committed_ns: in Unix time, by the sink's clock, not earlier than it was so."""

    name: str
    slot: int
    key: str
    committed_ns: int


class SinkPlace(ABC):
    """A sink of one kind, started empty."""

    options: tuple[str, ...]
    """What `lowmark barrier run` is told."""

    @abstractmethod
    def rows(self) -> list[Written]:
        """What is committed, in the sink's own order."""

    @abstractmethod
    def close(self) -> None: ...


class PostgresPlace(SinkPlace):
    """A table in a server of its own."""

    def __init__(self, directory: Path) -> None:
        self._server = PostgresServer(directory / "server.log")
        try:
            dsn = self._server.start().new_database(DATABASE)
            self._server.run(
                f"CREATE TABLE {TABLE} (number bigserial, slot bigint, key text, id text)",
                database=DATABASE,
            )
        except BaseException:
            self._server.remove()
            raise
        self._dsn = dsn
        self.options = ("--sink", dsn, "--set", f"table={TABLE}")

    def rows(self) -> list[Written]:
        import psycopg

        # In the order in which the server took them.
        text = f"SELECT id, slot, key, {COMMITTED} FROM {TABLE} ORDER BY number"
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(text.encode()).fetchall()
        return [
            Written(name, slot, key, int(at_s * 10**9) + 1_000) for name, slot, key, at_s in found
        ]

    def close(self) -> None:
        self._server.remove()


class KafkaPlace(SinkPlace):
    """A topic of one partition, with a broker of its own."""

    def __init__(self, directory: Path) -> None:
        from tests.connectors.parts.kafka import KafkaBroker

        self._broker = KafkaBroker(directory).start()
        try:
            self._broker.create_topic(TABLE, 1)
        except BaseException:
            self._broker.discard()
            raise
        self.options = ("--sink", f"kafka://{self._broker.bootstrap}/{TABLE}")

    def rows(self) -> list[Written]:
        from tests.connectors.ordered_topic import committed

        return [_of_message(message) for message in committed(self._broker, TABLE)]

    def close(self) -> None:
        self._broker.discard()


def _of_message(message: Any) -> Written:
    slot = int(dict(message.headers())["lowmark.slot"])
    name = str(json.loads(message.value())["id"])
    return Written(name, slot, message.key().decode(), (message.timestamp()[1] + 1) * _MS)


class DeltaPlace(SinkPlace):
    """A Delta table in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.options = ("--sink", f"delta:{self._directory}")

    def rows(self) -> list[Written]:
        """Commit by commit, in the order of their files' rows."""
        found: list[Written] = []
        for path in sorted((self._directory / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            (at_ms,) = [each["commitInfo"]["timestamp"] for each in actions if "commitInfo" in each]
            for added in (each["add"]["path"] for each in actions if "add" in each):
                found += self._of_file(added, (at_ms + 1) * _MS)
        return found

    def _of_file(self, name: str, committed_ns: int) -> list[Written]:
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(self._directory / name).to_pylist()
        return [
            Written(json.loads(row["payload"])["id"], row["slot"], row["key"], committed_ns)
            for row in rows
        ]

    def close(self) -> None:
        """Its files stay, for whoever looks."""


def _no_postgres() -> str:
    return "" if postgres_bin() else "there is no PostgreSQL server (scripts/ensure-postgres)"


def _no_kafka() -> str:
    from tests.connectors.parts.jars import class_path
    from tests.connectors.parts.kafka import JARS

    try:
        class_path(JARS)
    except Unavailable as error:
        return str(error)
    return ""


def _no_delta() -> str:
    return "" if importlib.util.find_spec("deltalake") else "deltalake is not installed"


PLACES: dict[str, tuple[Callable[[Path], SinkPlace], Callable[[], str]]] = {
    "postgres": (PostgresPlace, _no_postgres),
    "kafka": (KafkaPlace, _no_kafka),
    "delta": (DeltaPlace, _no_delta),
}
"""By kind: makes it in a directory, and says why it can't be had here; empty if it can."""
