"""What is kept must not grow: the measures of a run's twelfths, the largest of the last three against that of the second
quarter. (What comes and goes is large at some marks and not at others; what is bounded is full by the second quarter.)

A table is what one field holds, all objects together. It grows where it has more in it, and more for each object that has
the field: then that field is where things are kept, and not what they are kept in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

EARLY, LATE = (4, 5, 6), (10, 11, 12)
"""Which marks are compared, the largest of each."""
NOISE, NOISE_ENTRIES, NOISE_BYTES = 1.1, 64, 64 * 1024
"""What a table may have more: by a factor, and beyond that by so much."""
SIZES = {
    "resident_bytes": (1.15, 32 << 20),
    "tables_bytes": (1.1, 1 << 20),
    "snapshot_bytes": (1.1, 256 << 10),
    "store_bytes": (1.25, 8 << 20),
    "log_records_most": (1.25, 1_000),
    "snapshot_s": (1.5, 0.3),
    "start_s": (1.5, 0.5),
}
"""The same of sizes by name; times are rougher than what is counted. A start reads a snapshot and `start_records`."""


@dataclass(frozen=True)
class Kept:
    """A table at one mark. most: entries of its largest container."""

    entries: int
    most: int
    size_bytes: int


@dataclass(frozen=True)
class Mark:
    """What there was at the end of a twelfth. objects: how many of each class; did: what has happened so far, counted."""

    number: int
    tables: dict[str, Kept]
    objects: dict[str, int]
    sizes: dict[str, float]
    did: dict[str, int]

    @classmethod
    def of(cls, line: dict[str, Any]) -> Mark:
        tables = {name: Kept(*map(int, each)) for name, each in line["tables"].items()}
        sizes = {name: float(size) for name, size in line["sizes"].items()}
        return cls(int(line["number"]), tables, dict(line["objects"]), sizes, dict(line["did"]))

    def per_object(self, table: str) -> int:
        """How many objects have a table's field."""
        return max(1, self.objects.get(table.partition(".")[0], 1))


@dataclass
class Measures:
    """bounds: by table how many entries a container of it may have at most, where it fills for longer than the run."""

    bounds: dict[str, int] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)


def grown(measures: Measures) -> Iterator[str]:
    """No table has more in it at the end, and no size is larger, than early on."""
    if not {*EARLY, *LATE} <= measures.marks.keys():
        yield f"nothing to check: marks {EARLY} and {LATE} are not all there"
        return
    early, late = (_largest([measures.marks[each] for each in marks]) for marks in (EARLY, LATE))
    for what, count in late.did.items():
        if count <= early.did.get(what, 0):
            yield f"nothing to check: {what} has not happened since mark {early.number}"
    for name, now in late.tables.items():
        bound = measures.bounds.get(name)
        if bound is not None:
            if now.most > bound:
                yield f"grown: {name} has {now.most} entries in one place, its bound is {bound}"
        else:
            yield from _of_table(name, early, late)
    for size, (factor, more) in SIZES.items():
        before, after = early.sizes[size], late.sizes[size]
        if size == "start_s":  # it is as long as the log is, which has no bound but its own
            before *= max(1.0, late.sizes["start_records"] / max(1.0, early.sizes["start_records"]))
        if after > before * factor + more:
            yield f"grown: {size} was {before:,.6g} by mark {early.number}, and is {after:,.6g} by mark {late.number}"


def _largest(marks: Sequence[Mark]) -> Mark:
    """Of each table, class and size the largest; what has happened, and the number, as of the last one."""
    names = {name for mark in marks for name in mark.tables}
    tables = {
        name: Kept(*map(max, *(astuple(mark.tables.get(name, Kept(0, 0, 0))) for mark in marks)))
        for name in names
    }
    classes = {name for mark in marks for name in mark.objects}
    objects = {name: max(mark.objects.get(name, 0) for mark in marks) for name in classes}
    sizes = {name: max(mark.sizes[name] for mark in marks) for name in marks[-1].sizes}
    return Mark(marks[-1].number, tables, objects, sizes, marks[-1].did)


def _of_table(name: str, early: Mark, late: Mark) -> Iterator[str]:
    before, now = early.tables.get(name, Kept(0, 0, 0)), late.tables[name]
    objects = early.per_object(name), late.per_object(name)
    for what, old, new, more in (
        ("entries", before.entries, now.entries, NOISE_ENTRIES),
        ("bytes", before.size_bytes, now.size_bytes, NOISE_BYTES),
    ):
        denser = new / objects[1] > NOISE * old / objects[0]
        if denser and new > NOISE * old + more:
            yield (
                f"grown: {name} had {old:,} {what} by mark {early.number} (of {objects[0]:,} objects), and has {new:,} by mark "
                f"{late.number} (of {objects[1]:,})"
            )
            return
