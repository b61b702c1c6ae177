"""What a barrier has found, is taking and has taken: durable in the buffer's file, together with the rows.

A unit is written down when it is found, then with each part of its rows that goes into the buffer, and gets its
number with the last: by that number the tracker knows the tick that consumes it. Whoever is killed anywhere in
between goes on behind the last part, and commits again, in order, what has a number; the tracker drops what it
has. So no row is ever nowhere, and none is in the buffer twice. Of a unit that was taken its ack value is kept for
good, as Spark's own log keeps the file's name: whoever lists it again is told nothing new. Unless the pipeline was
restarted since: then it is created again, and is consumed again, without its rows. Or other units are created in
its place, with the same rows: those of its own that wait are dropped when min time has passed them without it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracker.consumers.barrier.rows import Item
from tracker.consumers.barrier.sources import Found
from tracker.consumers.reorder import ReorderBuffer
from tracker.core.model.ack_values import unit_value
from tracker.errors import Code, StateError

MAX_FOUND_UNITS = 1_000_000
"""Units that were found and are not taken yet, at most."""
MAX_LATE_ROWS = 100_000
"""Late rows that are kept beside, at most."""
_LOWEST = -(2**63)
_ALL_ROWS = -1
"""Of a unit's rows: all of them were taken in an earlier generation of the pipeline."""
_TABLES = """
CREATE TABLE IF NOT EXISTS whose (barrier TEXT, pipeline TEXT, segment TEXT);
CREATE TABLE IF NOT EXISTS units (value INTEGER PRIMARY KEY, name TEXT, slot INTEGER, rows INTEGER, number INTEGER);
CREATE INDEX IF NOT EXISTS units_by_slot ON units (slot, value) WHERE number IS NULL;
CREATE TABLE IF NOT EXISTS taken (value INTEGER PRIMARY KEY, slot INTEGER);
CREATE TABLE IF NOT EXISTS taken_before (value INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS in_doubt (value INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS cursors (source TEXT, scope TEXT, number INTEGER, PRIMARY KEY (source, scope));
CREATE TABLE IF NOT EXISTS late (value INTEGER, ordinal INTEGER, unit TEXT, slot INTEGER, key TEXT, payload BLOB,
    PRIMARY KEY (value, ordinal));
CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit on its way in. rows: how many of its rows have been dealt with."""

    name: str
    slot: int
    rows: int

    @property
    def was_taken(self) -> bool:
        """Whether all of its rows were taken in an earlier generation."""
        return self.rows == _ALL_ROWS

    @property
    def origin(self) -> int:
        """Its ack value, as the numbers of SQLite are; never 0."""
        return _signed(self.name)


@dataclass(frozen=True, slots=True)
class LateRow:
    """A row below what was released already. ordinal: its place in its unit."""

    unit: str
    ordinal: int
    slot: int
    key: str
    payload: bytes


class Ledger:
    """In the file of an open buffer."""

    def __init__(self, buffer: ReorderBuffer, barrier: str, pipeline: str, segment: str) -> None:
        """Raises StateError if the file is another barrier's."""
        self._buffer, self._from_slot = buffer, _LOWEST
        self._dropped_below = _LOWEST
        self._last_in_doubt: int | None = None
        """The largest slot of the rows that are in doubt; None where none is."""
        with buffer.transaction() as database:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            self._find_in_doubt(database)
            own = (barrier, pipeline, segment)
            whose = database.execute("SELECT * FROM whose").fetchone()
            if whose is None:
                database.execute("INSERT INTO whose VALUES (?, ?, ?)", own)
            elif whose != own:
                raise StateError(
                    f"{buffer.path} is the buffer of barrier {whose[0]!r} of segment {whose[2]!r} of pipeline "
                    f"{whose[1]!r}, not of {barrier!r} of {segment!r} of {pipeline!r}; give this one its own"
                )

    @property
    def generation(self) -> int | None:
        """Of the pipeline, in which this goes on; None before the first, and of a release that did not write it down."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT count FROM counts WHERE name = 'generation'"
            ).fetchone()
        return None if found is None else int(found[0])

    def begin_generation(self, generation: int, from_slot: int, durable: int) -> None:
        """The pipeline is in this generation, which begins at a slot. What was taken in an earlier one is created
        again from there on: it is looked for anew. durable: how many units the tracker has as taken in this one."""
        with self._buffer.transaction() as database:
            self._from_slot, known = from_slot, self.generation
            if known == generation:
                return
            database.execute(
                "INSERT OR REPLACE INTO counts VALUES ('generation', ?)", (generation,)
            )
            if not generation or (known is None and durable):
                return  # what was taken, was in this one
            database.execute(
                "INSERT OR IGNORE INTO in_doubt SELECT value FROM taken WHERE slot >= ?1 "
                "UNION SELECT value FROM units WHERE rows != 0 AND slot >= ?1",
                (from_slot,),
            )
            database.execute(
                "INSERT OR IGNORE INTO taken_before SELECT value FROM taken "
                "UNION SELECT value FROM units WHERE number IS NOT NULL"
            )
            database.execute("DELETE FROM taken")
            database.execute("DELETE FROM units WHERE number IS NOT NULL")
            database.execute("UPDATE units SET slot = NULL")
            database.execute("DELETE FROM cursors")
            self._find_in_doubt(database)

    def _find_in_doubt(self, database: sqlite3.Connection) -> None:
        found = "SELECT MAX(slot) FROM waiting WHERE origin IN (SELECT value FROM in_doubt)"
        (self._last_in_doubt,) = database.execute(found).fetchone()

    @property
    def is_in_doubt(self) -> bool:
        """Whether rows wait of units that were taken in an earlier generation, of which it is not known yet whether they are
        created again in this one."""
        return self._last_in_doubt is not None

    def drop_in_doubt(self, min_time: int) -> None:
        """Drops the rows below min time that are in doubt. min_time: of this generation, in which all of that is complete by now, so
        what is right of it came in other units."""
        if self._last_in_doubt is None or min_time <= self._dropped_below:
            return
        with self._buffer.transaction():
            self._buffer.drop("slot < ? AND origin IN (SELECT value FROM in_doubt)", min_time)
        self._dropped_below = min_time
        if min_time > self._last_in_doubt:
            self._last_in_doubt = None

    def cursors(self, source: str) -> dict[str, int]:
        """How far a source was read, by scope."""
        with self._buffer.transaction() as database:
            return dict(
                database.execute("SELECT scope, number FROM cursors WHERE source = ?", (source,))
            )

    def found(self, source: str, found: Found) -> int:
        """Units were committed; returns how many of them are new. Raises LowmarkError if too many wait."""
        with self._buffer.transaction() as database:
            new = sum(self._note(database, name) for name in found.names)
            database.execute(
                "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)",
                (source, found.scope, found.number),
            )
            waiting = (
                database.execute("SELECT COUNT(*) FROM units WHERE rows >= 0").fetchone()[0]
                if new
                else 0
            )
            if waiting > MAX_FOUND_UNITS:
                raise StateError(
                    f"{self._buffer.path}: {waiting} units would wait to be taken, the limit is "
                    f"{MAX_FOUND_UNITS}; find out what holds min time back, or let queries write larger files",
                    Code.STATE_LIMIT,
                )
            return new

    def _note(self, database: sqlite3.Connection, name: str, slot: int | None = None) -> int:
        value = (_signed(name),)
        if database.execute("SELECT 1 FROM taken WHERE value = ?", value).fetchone():
            return 0
        before = database.execute("DELETE FROM taken_before WHERE value = ?", value).rowcount
        done = database.execute(
            "INSERT OR IGNORE INTO units VALUES (?, ?, ?, ?, NULL)",
            (*value, name, slot, _ALL_ROWS if before else 0),
        )
        return done.rowcount

    def is_taken(self, name: str) -> bool:
        """Whether all rows of a unit were taken."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT 1 FROM taken WHERE value = ?1 "
                "UNION SELECT 1 FROM units WHERE value = ?1 AND number IS NOT NULL",
                (_signed(name),),
            ).fetchone()
        return found is not None

    def unit(self, name: str) -> Unit:
        """A unit that was found, and whose slot is known."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT name, slot, rows FROM units WHERE value = ?", (_signed(name),)
            ).fetchone()
        return Unit(*found)

    def unresolved(self, most: int, after: int = _LOWEST) -> list[tuple[int, str, bool]]:
        """Units whose slot is not known, by ack value (as SQLite's) and name, and whether they are missed: not those
        that were taken in an earlier generation, and may never come again. Those behind one ack value, so that all get
        their turn."""
        with self._buffer.transaction() as database:
            return database.execute(
                "SELECT value, name, rows >= 0 FROM units WHERE slot IS NULL AND value > ? ORDER BY value LIMIT ?",
                (after, most),
            ).fetchall()

    def resolved(self, slots: Iterable[tuple[str, int]]) -> None:
        """The tracker knows the slots of units."""
        with self._buffer.transaction() as database:
            for name, slot in slots:
                self._note(database, name, slot)
                database.execute(
                    "UPDATE units SET slot = ? WHERE value = ? AND slot IS NULL",
                    (slot, _signed(name)),
                )
                database.execute("DELETE FROM in_doubt WHERE value = ?", (_signed(name),))
            # What lies below the generation's beginning is complete, and nobody creates it again.
            over = "FROM units WHERE rows < 0 AND number IS NULL AND slot < ?"
            database.execute(f"INSERT INTO taken SELECT value, slot {over}", (self._from_slot,))
            database.execute(f"DELETE {over}", (self._from_slot,))

    def lowest(self) -> Unit | None:
        """The unit to take first: of the lowest slot."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT name, slot, rows FROM units WHERE number IS NULL AND slot IS NOT NULL "
                "ORDER BY slot, value LIMIT 1"
            ).fetchone()
        return None if found is None else Unit(*found)

    def add(self, unit: Unit, chunk: Sequence[Item], late: Sequence[tuple[int, Item]]) -> None:
        """Puts the next rows of a unit into the buffer, and late ones, by their place in the unit, beside.
        Raises UnavailableError, LowmarkError where too many are late; nothing is done then."""
        rows = len(chunk) + len(late)
        with self._buffer.transaction() as database:
            self._buffer.add(chunk, unit.origin, unit.rows)
            database.executemany(
                "INSERT INTO late VALUES (?, ?, ?, ?, ?, ?)",
                [(unit.origin, ordinal, unit.name, *item) for ordinal, item in late],
            )
            if late and self.count_late() > MAX_LATE_ROWS:
                raise StateError(
                    f"{self._buffer.path} would keep more than {MAX_LATE_ROWS} late rows beside; deal with "
                    "them, and drop them (`lowmark barrier late --drop`)",
                    Code.STATE_LIMIT,
                )
            database.execute(
                "UPDATE units SET rows = rows + ? WHERE value = ?", (rows, unit.origin)
            )
            self._count(database, "rows", rows)

    def whole(self, unit: Unit) -> int:
        """All rows of a unit are in; returns its number, from 1."""
        with self._buffer.transaction() as database:
            number = self._count(database, "units", 1)
            database.execute("UPDATE units SET number = ? WHERE value = ?", (number, unit.origin))
            return number

    @property
    def last_number(self) -> int:
        """Of the units that are whole."""
        return self.count("units")

    def count(self, name: str) -> int:
        """`units` or `rows` that were taken, since the barrier began."""
        with self._buffer.transaction() as database:
            return self._count(database, name, 0)

    def due(self, after: int) -> list[tuple[int, Unit]]:
        """The units whose tick may not be durable, in the order of their numbers: those behind one number."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT number, name, slot, rows FROM units WHERE number > ? ORDER BY number",
                (after,),
            ).fetchall()
        return [(number, Unit(*unit)) for number, *unit in found]

    def consumed(self, number: int) -> None:
        """The ticks of all units up to a number are durable."""
        with self._buffer.transaction() as database:
            database.execute(
                "INSERT OR IGNORE INTO taken SELECT value, slot FROM units WHERE number <= ?",
                (number,),
            )
            database.execute("DELETE FROM units WHERE number <= ?", (number,))

    def count_late(self) -> int:
        """Late rows that are kept beside."""
        with self._buffer.transaction() as database:
            return int(database.execute("SELECT COUNT(*) FROM late").fetchone()[0])

    def late(self, *, drop: bool = False) -> list[LateRow]:
        """The late rows that are kept beside, by unit and place; and drops them, if so asked."""
        with self._buffer.transaction() as database:
            found = database.execute(
                "SELECT unit, ordinal, slot, key, payload FROM late ORDER BY unit, ordinal"
            ).fetchall()
            if drop:
                database.execute("DELETE FROM late")
        return [LateRow(*row) for row in found]

    def _count(self, database: sqlite3.Connection, name: str, more: int) -> int:
        found = database.execute("SELECT count FROM counts WHERE name = ?", (name,)).fetchone()
        count = (0 if found is None else int(found[0])) + more
        if more:
            database.execute("INSERT OR REPLACE INTO counts VALUES (?, ?)", (name, count))
        return count


def _signed(name: str) -> int:
    return int.from_bytes(unit_value(name).to_bytes(8), signed=True)
