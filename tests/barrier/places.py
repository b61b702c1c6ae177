"""Where a barrier under load writes: real servers, and what is found there in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.postgres_server import PostgresServer, postgres_bin

DATABASE, TABLE = "load", "ordered"


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
        self._server = PostgresServer(directory / "postgres.log")
        try:
            dsn = self._server.start().new_database(DATABASE)
            self._server.run(
                f"CREATE TABLE {TABLE} (slot bigint, key text, id text, "
                "written_at timestamptz DEFAULT clock_timestamp())",
                database=DATABASE,
            )
        except BaseException:
            self._server.remove()
            raise
        self._dsn = dsn
        self.options = ("--postgres", dsn, "--table", TABLE)

    def rows(self) -> list[Written]:
        import psycopg

        # Of a table that is only appended to, the order of its pages is that in which rows were written.
        text = f"SELECT id, slot, key, extract(epoch FROM written_at) FROM {TABLE} ORDER BY ctid"
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(text.encode()).fetchall()
        return [
            Written(name, slot, key, int(at_s * 10**9) + 1_000) for name, slot, key, at_s in found
        ]

    def close(self) -> None:
        self._server.remove()


def _no_postgres() -> str:
    return "" if postgres_bin() else "there is no PostgreSQL server (scripts/ensure-postgres)"


PLACES: dict[str, tuple[Callable[[Path], SinkPlace], Callable[[], str]]] = {
    "postgres": (PostgresPlace, _no_postgres),
}
"""By kind: makes it in a directory, and says why it can't be had here; empty if it can."""
