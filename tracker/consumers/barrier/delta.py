"""Rows in order in a Delta table: each write is one commit, which says how far they go.

Two application transactions (`txn`) are kept for a barrier, under `lowmark-barrier:<name>` the position, which is
the number of rows that the table holds, and under `lowmark-barrier:<name>:writer` the number of who has opened the sink last.
Every commit goes to the version behind the one in which both were looked up, and to no other: so whoever was
opened before finds that version taken, and an open by another when it looks again. Other writers of the table are
let through the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracker.consumers.barrier.sink import OrderedSink, Position, away, refused
from tracker.consumers.commits import MAX_ATTEMPTS, try_to_commit
from tracker.consumers.delta_disk import LocalLog, local_log
from tracker.consumers.reorder import Released
from tracker.errors import Code, LowmarkError, StateError

if TYPE_CHECKING:
    from deltalake import DeltaTable

INTERVAL_MS = 1_000.0
"""Between commits, unless another is given: each is a file at least, and an entry of the log."""
COLUMNS = {
    "barrier": "string", "position": "long", "slot": "long", "key": "string", "payload": "binary",
    "buffer": "string",
}  # fmt: skip
"""Of the table, by Delta's names of their types."""


class DeltaSink(OrderedSink):
    """Rows in a Delta table, whose order is that of `position` within a `barrier`."""

    def __init__(
        self,
        table: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        interval_ms: float = INTERVAL_MS,
    ) -> None:
        """table: its location; it is made if it is not there. storage_options: of its store, as delta-rs
        takes them; else it asks the environment. interval_ms: what is complete in that time goes into one
        commit, if it is no more than one write. Raises LowmarkError where deltalake is not installed."""
        try:
            import deltalake
        except ModuleNotFoundError as missing:
            raise StateError(
                f"a sink in a Delta table needs {missing.name}: pip install 'lowmark[tables]'",
                Code.STATE_EXTRA,
            ) from None
        super().__init__(f"Delta table {table}")
        self._deltalake, self.interval_ms = deltalake, interval_ms
        self._location, self._options = table, dict(storage_options or {}) or None
        self._table: DeltaTable | None = None
        self._log: LocalLog | None = None

    def take(self, buffer: str) -> Position | None:
        self._table = table = self._read()
        self._check_columns(table)
        held: list[Position | None] = []
        self._commit("open it", lambda: held.append(self._claim(table, buffer)))
        self._log = local_log(table.table_uri)
        self._sync(table)
        return held[0]

    def append(self, rows: Sequence[Released], position: Position) -> None:
        assert self._table is not None
        table, data = self._table, self._columns(rows, position.buffer)
        self._commit(f"write {len(rows)} rows", lambda: self._append(table, data, position))
        self._sync(table)

    def let_go(self) -> None:
        self._table = None

    def failed(self, error: Exception) -> LowmarkError | None:
        from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError

        if isinstance(error, DeltaProtocolError | SchemaMismatchError):
            return refused(f"{self.name} cannot be written: {error}")
        return None if isinstance(error, LowmarkError) else away(f"{self.name}: {error}")

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _application(self) -> str:
        return f"lowmark-barrier:{self.barrier}"

    @property
    def _writers(self) -> str:
        return f"{self._application}:writer"

    def _read(self) -> DeltaTable:
        """The table as it is now, made if it is not there."""
        import pyarrow as pa

        made = self._deltalake.DeltaTable.create(
            self._location, pa.schema(_fields()), mode="ignore", storage_options=self._options
        )
        return self._deltalake.DeltaTable(made.table_uri, storage_options=self._options)

    def _check_columns(self, table: DeltaTable) -> None:
        found = {field.name: getattr(field.type, "type", "?") for field in table.schema().fields}
        if found != COLUMNS:
            raise refused(
                f"{self.name} has the columns {_listed(found)}, and the sink of a barrier those that it makes "
                f"itself: {_listed(COLUMNS)}; name another table"
            )

    def _commit(self, what: str, attempt: Callable[[], None]) -> None:
        """Raises UnavailableError where others always commit before."""
        from deltalake.exceptions import CommitFailedError

        def once() -> None:
            try:
                attempt()
            except CommitFailedError:
                assert self._table is not None
                self._table.update_incremental()
                raise

        if not try_to_commit(once, (CommitFailedError,)):
            raise away(
                f"{self.name}: others committed before each of {MAX_ATTEMPTS} attempts to {what}"
            )

    def _claim(self, table: DeltaTable, buffer: str) -> Position | None:
        """Becomes the barrier's writer, at the position that the table holds."""
        from deltalake import PostCommitHookProperties

        self._check_last_writer(table)
        held = self._position(table)
        self.check_buffer(held, buffer)
        # Checkpoints and cleaning up are for commits with rows.
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        table.create_write_transaction(
            [], "append", table.schema(), table.metadata().partition_columns,
            commit_properties=self._properties({self._writers: self.writer}),
            post_commithook_properties=hooks,
        )  # fmt: skip
        table.update_incremental()
        return held

    def _append(self, table: DeltaTable, rows: Any, position: Position) -> None:
        self._check_last_writer(table)
        if table.transaction_version(self._application) == position.next:
            return  # by an attempt that was told to have failed
        self._deltalake.write_deltalake(
            table, rows, mode="append", storage_options=self._options,
            commit_properties=self._properties({self._application: position.next}),
        )  # fmt: skip

    def _sync(self, table: DeltaTable) -> None:
        if self._log is not None:
            self._log.sync(table.version())

    def _properties(self, versions: Mapping[str, int]) -> Any:
        """Of a commit behind the version that was looked at, or nowhere."""
        from deltalake import CommitProperties, Transaction

        # Without dates, so that no retention of transactions lets go of them.
        transactions = [Transaction(name, version) for name, version in versions.items()]
        return CommitProperties(max_commit_retries=0, app_transactions=transactions)

    def _check_last_writer(self, table: DeltaTable) -> None:
        self.check_writer(table.transaction_version(self._writers))

    def _position(self, table: DeltaTable) -> Position | None:
        """What the table holds. Raises StateError if the last row is gone."""
        import pyarrow as pa

        count = table.transaction_version(self._application)
        if not count:
            return None
        query = (
            "SELECT buffer, slot, key FROM held "
            f"WHERE barrier = '{self.barrier}' AND position = {count - 1}"
        )
        answer = self._deltalake.QueryBuilder().register("held", table).execute(query)
        # By pyarrow, which lets other threads run while the store is read.
        found = pa.table(answer).to_pylist()
        if len(found) != 1:
            raise refused(
                f"{self.name} says that it has {count} rows of barrier {self.barrier!r}, and {len(found)} rows are "
                f"the last one: it was restored, overwritten, or rows were deleted; bring them back, or begin with "
                "a new buffer and another barrier's name"
            )
        return Position(found[0]["buffer"], count, found[0]["slot"], found[0]["key"])

    def _columns(self, rows: Sequence[Released], buffer: str) -> Any:
        import pyarrow as pa

        columns = {
            "barrier": [self.barrier] * len(rows), "position": [row.position for row in rows],
            "slot": [row.slot for row in rows], "key": [row.key for row in rows],
            "payload": [row.payload for row in rows], "buffer": [buffer] * len(rows),
        }  # fmt: skip
        return pa.table(columns, schema=pa.schema(_fields()))


def _fields() -> list[tuple[str, Any]]:
    import pyarrow as pa

    types = {"string": pa.string(), "long": pa.int64(), "binary": pa.binary()}
    return [(name, types[kind]) for name, kind in COLUMNS.items()]


def _listed(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
