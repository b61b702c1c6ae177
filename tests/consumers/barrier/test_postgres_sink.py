"""The sink in PostgreSQL, over a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from tests.cluster.postgres_server import PostgresServer, postgres_bin
from tests.consumers.barrier.conformance import (
    BARRIER,
    BUFFER,
    OrderedSinkSuite,
    Place,
    batch,
    rows_up_to,
)
from tracker.consumers.barrier.postgres import PostgresSink
from tracker.consumers.barrier.sink import Position
from tracker.consumers.reorder import Released
from tracker.errors import StateError, UnavailableError

pytestmark = pytest.mark.skipif(
    postgres_bin() is None, reason="there is no PostgreSQL server: run scripts/ensure-postgres"
)
TABLE = 'CREATE TABLE "Ordered rows" (number bigserial, position bigint, slot bigint, key text, payload text)'


class PostgresPlace:
    """A table in a database of its own."""

    kind = "postgres"
    KILLS = 5

    def __init__(self, server: PostgresServer) -> None:
        database = f"db{uuid4().hex[:12]}"
        self.where: Mapping[str, str] = {
            "dsn": server.new_database(database), "table": "Ordered rows",
        }  # fmt: skip
        self.server, self.database = server, database
        server.run(TABLE, database=database)

    def query(self, text: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.where["dsn"]) as connection:
            return connection.execute(text.encode()).fetchall()

    def rows(self, barrier: str = BARRIER) -> list[Released]:
        """In the order in which the server took them. Rows of two barriers are told apart by the payload of the suite's second one, which begins at 0 again."""
        found = self.query(
            'SELECT position, slot, key, payload FROM "Ordered rows" ORDER BY number'
        )
        runs: list[list[Released]] = [[], []]
        for position, slot, key, payload in found:
            row = Released(position, slot, key, payload.encode())
            runs[position != len(runs[0])].append(row)
        return runs[barrier != BARRIER]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path_factory.mktemp("postgres") / "server.log")
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def postgres(server: PostgresServer) -> PostgresPlace:
    return PostgresPlace(server)


class TestPostgresSink(OrderedSinkSuite):
    @pytest.fixture
    def place(self, postgres: PostgresPlace) -> Place:
        return postgres


def test_fields_go_to_the_columns_of_their_names_as_the_columns_types(
    postgres: PostgresPlace,
) -> None:
    postgres.server.run(
        'CREATE SCHEMA s; CREATE TABLE s.t (position bigint PRIMARY KEY, amount numeric(20, 3), at timestamptz, '
        "raw bytea, tags text[], more jsonb, name text, ok boolean, x double precision, "
        "own text DEFAULT 'mine')",
        database=postgres.database,
    )  # fmt: skip
    fields = {
        "amount": "12345678901234567.125", "at": "2026-03-01T10:00:00.5+00:00", "raw": "\\x00ff",
        "tags": ["a", 'b"'], "more": {"n": [1.5, None]}, "name": "tab\t\\N", "ok": True, "x": "NaN",
    }  # fmt: skip
    sink = PostgresSink(postgres.where["dsn"], "s.t")
    assert sink.open(BARRIER, BUFFER) is None
    rows = [
        Released(0, 1, "a", json.dumps(fields).encode()),
        Released(1, 1, "b", json.dumps({"name": None, "x": 0.1, "more": "text"}).encode()),
    ]
    sink.write(rows, Position(BUFFER, 2, 1, "b"))
    found = postgres.query(
        "SELECT position, amount::text, extract(epoch from at)::text, raw, tags, more, name, ok, x::text, own "
        "FROM s.t ORDER BY position"
    )
    assert found == [
        (0, "12345678901234567.125", "1772359200.500000", b"\x00\xff", ["a", 'b"'], {"n": [1.5, None]},
         "tab\t\\N", True, "NaN", "mine"),
        (1, None, None, None, None, "text", None, None, "0.1", "mine"),
    ]  # fmt: skip
    assert postgres.query("SELECT next, slot, key FROM s.lowmark_barrier") == [(2, 1, "b")]
    sink.close()


def test_what_the_table_does_not_take_is_refused_whole_and_by_name(postgres: PostgresPlace) -> None:
    postgres.server.run(
        "CREATE TABLE t (position bigint PRIMARY KEY, at timestamptz)", database=postgres.database
    )
    with pytest.raises(StateError, match=r"'nosuch' .* does not exist: create it"):
        PostgresSink(postgres.where["dsn"], "nosuch").open(BARRIER, BUFFER)
    sink = PostgresSink(postgres.where["dsn"], "t")
    for payload, why in (
        (b'{"at": "yesterday or so"}', "invalid input syntax for type timestamp"),
        (b'{"at": null, "more": 1}', "has no columns for the fields more"),
        (b"[1]", "is no object"),
        (b"\xff", "is not JSON"),
    ):
        assert sink.open(BARRIER, BUFFER) is None
        rows = [Released(0, 1, "a", b'{"at": null}'), Released(1, 1, "b", payload)]
        with pytest.raises(StateError, match=why):
            sink.write(rows, Position(BUFFER, 2, 1, "b"))
        assert postgres.query("SELECT count(*) FROM t") == [(0,)]
    sink.open(BARRIER, BUFFER)
    sink.write(
        [Released(0, 1, "a", b'{"at": "2026-03-01T10:00:00Z"}')], Position(BUFFER, 1, 1, "a")
    )
    sink.close()


def test_a_server_that_is_killed_is_away_and_what_it_has_written_is_there(
    server: PostgresServer, postgres: PostgresPlace
) -> None:
    sink = PostgresSink(postgres.where["dsn"], "Ordered rows")
    sink.open(BARRIER, BUFFER)
    sink.write(*batch(0))
    server.kill()
    try:
        with pytest.raises(UnavailableError, match="PostgreSQL at"):
            sink.write(*batch(7))
        with pytest.raises(UnavailableError, match="PostgreSQL at"):
            sink.open(BARRIER, BUFFER)
    finally:
        server.start()
    assert sink.open(BARRIER, BUFFER) == batch(0)[1]
    sink.write(*batch(7))
    sink.close()
    assert postgres.rows() == rows_up_to(14)


def test_a_password_stays_out_of_messages() -> None:
    sink = PostgresSink("postgresql://me:geheim@127.0.0.1:1/db", "t")
    with pytest.raises(UnavailableError) as refused:
        sink.open(BARRIER, BUFFER)
    assert "geheim" not in str(refused.value) + sink.name
    with pytest.raises(ValueError, match="the DSN cannot be read") as told:
        PostgresSink("geheim", "t")
    assert "geheim" not in str(told.value)
