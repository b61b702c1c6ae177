"""A tracked query whose sink is a database, which knows nothing of Spark's batches (docs/spark-reference.md)."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pyspark.sql import DataFrame

from lowmark import Tracked, TrackedQuery
from lowmark.spark import TrackingOptions, note_commit

TABLES = """
CREATE TABLE IF NOT EXISTS orders (slot INTEGER, row INTEGER);
CREATE TABLE IF NOT EXISTS batches (query TEXT, batch INTEGER, PRIMARY KEY (query, batch));
"""


def insert(rows: DataFrame, batch: int, database: str) -> None:
    """Inserts the rows of a batch, with the batch's number in the same transaction: a batch that comes
    again is there already."""
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(TABLES)
        with connection:
            known = connection.execute(
                "INSERT OR IGNORE INTO batches VALUES (?, ?)", (query, batch)
            )
            if known.rowcount:
                values = ((row["slot"], row["row"]) for row in rows.toLocalIterator())
                connection.executemany("INSERT INTO orders VALUES (?, ?)", values)


def write_database(
    tracked: Tracked, frame: DataFrame, database: str, notes: str, checkpoint: str
) -> TrackedQuery:
    """Inserts each batch into a database once, and notes it under the name that its reader consumes."""

    def each_batch(rows: DataFrame, batch: int) -> None:
        insert(rows, batch, database)
        note_commit(notes, batch, [f"orders/{batch}"])

    writer = frame.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    options = TrackingOptions(noted=notes)
    return tracked.start(writer, node_id="write", reads="write", creates=["read"], options=options)
