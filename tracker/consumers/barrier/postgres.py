"""Rows in order in a table of PostgreSQL: rows and position in one transaction.

The user's table has a column for each field of the payload that is to be kept, and any of `position`, `slot` and
`key`, which are filled from the row itself unless the payload has such a field. The positions are in the table
`lowmark_barrier` of the same schema, a row for each barrier, which is locked while rows are written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracker.consumers.barrier.sink import OrderedSink, Position, away, refused, writer_and_position
from tracker.consumers.reorder import Released
from tracker.errors import Code, LowmarkError, StateError

if TYPE_CHECKING:
    import psycopg

ANSWER_TIMEOUT_S = 30
"""How long the server is given for one statement, and for a lock that another writer has."""
PAYLOAD_COLUMN = "payload"
"""A column of this name has the whole payload, unless the payload has such a field itself."""
_POSITIONS = "lowmark_barrier"
_OWN_COLUMNS = ("position", "slot", "key")


class PostgresSink(OrderedSink):
    """Rows in one table of a database."""

    def __init__(self, dsn: str, table: str) -> None:
        """dsn: as of libpq, such as `postgresql://user@host/database`; the password is better in PGPASSFILE or
        PGPASSWORD. table: that exists, with its schema or in the search path. Raises LowmarkError where psycopg
        is not installed, ValueError for a DSN that is none."""
        try:
            import psycopg.conninfo
        except ImportError as missing:
            raise StateError(
                f"a sink in PostgreSQL needs psycopg ({missing}): pip install 'lowmark[postgres]'",
                Code.STATE_EXTRA,
            ) from None
        self._dsn, self._table = dsn, table
        try:
            told = psycopg.conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:  # whose text may have the password
            raise ValueError(
                "the DSN cannot be read: give it as postgresql://user@host:port/database, or as host=... dbname=..."
            ) from None
        where = "/".join(str(told[name]) for name in ("host", "port", "dbname") if name in told)
        super().__init__(f"table {table!r} of PostgreSQL at {where or 'its default'}")
        self._connection: psycopg.Connection[Any] | None = None
        self._schema, self._columns = "", dict[str, str]()

    def take(self, buffer: str) -> Position | None:
        self._connection = self._connect()
        with self._connection.transaction():
            return self._become_writer(buffer)

    def _become_writer(self, buffer: str) -> Position | None:
        self._find_table()
        self._make_positions()
        found, held = self._read()
        self.check_writer(found)
        self.check_buffer(held, buffer)
        self._run(
            "INSERT INTO {positions} (barrier, buffer, writer, next) VALUES (%s, %s, %s, 0) ON CONFLICT "
            "(barrier) DO UPDATE SET writer = EXCLUDED.writer, buffer = EXCLUDED.buffer",
            (self.barrier, buffer, self.writer),
        )
        return held

    def append(self, rows: Sequence[Released], position: Position) -> None:
        assert self._connection is not None
        with self._connection.transaction():
            self.check_writer(self._read()[0])  # which locks the row until the end
            self._copy(rows)
            self._run(
                "UPDATE {positions} SET next = %s, slot = %s, key = %s, written_at = clock_timestamp() "
                "WHERE barrier = %s",
                (position.next, position.slot, position.key, self.barrier),
            )

    def let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def failed(self, error: Exception) -> LowmarkError | None:
        import psycopg

        if isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError):
            return refused(f"{self.name} does not take the rows: {_line(error)}")
        return away(f"{self.name}: {_line(error)}") if isinstance(error, psycopg.Error) else None

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        most_ms = ANSWER_TIMEOUT_S * 1000
        connection = psycopg.connect(
            self._dsn, connect_timeout=ANSWER_TIMEOUT_S, autocommit=True,
            keepalives_idle=ANSWER_TIMEOUT_S, tcp_user_timeout=most_ms, application_name="lowmark-barrier",
        )  # fmt: skip
        for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(f"SET {setting} = {most_ms}")
        # Written is durable, whatever the database's default.
        connection.execute("SET synchronous_commit = on")
        return connection

    def _find_table(self) -> None:
        """The table's schema and columns, with their types. Raises StateError if there is none."""
        assert self._connection is not None
        found = self._connection.execute(
            "SELECT n.nspname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE c.oid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''",
            (self._quoted_table(),),
        ).fetchall()
        if not found:
            raise refused(f"{self.name} does not exist: create it, with a column for each field")
        self._schema = found[0][0]
        self._columns = {name: kind for _, name, kind in found}

    def _make_positions(self) -> None:
        assert self._connection is not None
        named = self._connection.execute(
            "SELECT to_regclass(%s)", (f'"{self._schema}".{_POSITIONS}',)
        ).fetchone()
        if named is None or named[0] is None:
            # Two that make it at once would both find it absent.
            self._run("SELECT pg_advisory_xact_lock(hashtext('lowmark_barrier'))")
            self._run(
                "CREATE TABLE IF NOT EXISTS {positions} (barrier text PRIMARY KEY, buffer text NOT NULL, "
                "writer bigint NOT NULL, next bigint NOT NULL, slot bigint, key text, written_at timestamptz)"
            )

    def _read(self) -> tuple[int | None, Position | None]:
        """Who has opened the sink for the barrier last, and the position; nobody else changes
        them before the end of the transaction."""
        found = self._run(
            "SELECT writer, buffer, next, slot, key FROM {positions} WHERE barrier = %s FOR UPDATE",
            (self.barrier,),
        ).fetchone()
        return writer_and_position(found)

    def _copy(self, rows: Sequence[Released]) -> None:
        """By COPY, whose text form the server reads as each column's type."""
        from psycopg import sql

        assert self._connection is not None
        values = [_fields(row) for row in rows]
        used = {name for fields in values for name in fields}
        columns = [name for name in self._columns if name in used]
        unknown = sorted(used - set(self._columns) - {*_OWN_COLUMNS, PAYLOAD_COLUMN})
        if unknown and PAYLOAD_COLUMN not in self._columns:
            raise refused(
                f"{self.name} has no columns for the fields {', '.join(unknown[:10])}; add them, or a column "
                f"{PAYLOAD_COLUMN} for the whole row, or choose the columns of the rows"
            )
        copy = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.SQL(self._quoted_table()), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with self._connection.cursor() as cursor, cursor.copy(copy) as stream:
            for fields in values:
                stream.write_row(
                    [_value(fields.get(name), self._columns[name]) for name in columns]
                )

    def _run(self, query: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        from psycopg import sql

        assert self._connection is not None
        positions = sql.Identifier(self._schema, _POSITIONS)
        composed = sql.SQL(query).format(positions=positions)
        return self._connection.execute(composed, values or None)

    def _quoted_table(self) -> str:
        """Each part of the name as it stands, capitals too."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in self._table.split("."))


def _fields(row: Released) -> dict[str, Any]:
    """What a row's columns may be filled from. Raises StateError."""
    own = {"position": row.position, "slot": row.slot, "key": row.key}
    try:
        payload = json.loads(row.payload)
    except ValueError as error:
        raise refused(f"the payload of row {row.position} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise refused(f"the payload of row {row.position} is no object of columns")
    return {**own, PAYLOAD_COLUMN: payload, **payload}


def _value(value: Any, kind: str) -> Any:
    """A field as a column of a type takes it: what is nested as JSON, unless the column is an array."""
    if isinstance(value, list) and kind.endswith("[]"):
        return value
    nested = isinstance(value, dict | list) or (kind in ("json", "jsonb") and value is not None)
    return json.dumps(value, ensure_ascii=False) if nested else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
