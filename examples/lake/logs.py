"""What Kafka, Delta and Iceberg say of a batch, for the witness (`examples.flights.witness`): read from the
checkpoints and the tables' logs as the S3 server keeps them, and by nothing of what is being checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.flights.data import DAY_NS, Flight
from examples.flights.witness import Taken
from examples.lake.records import record_name
from examples.lake.site import TOPIC


class TopicSource:
    """A topic in which it is known which flights stand where."""

    def __init__(self, partitions: Mapping[int, Sequence[Flight]]) -> None:
        """partitions: the flights of each, in the order of their records."""
        self._slots = {
            record_name(partition, offset): flight.scheduled_ns // DAY_NS
            for partition, flights in partitions.items()
            for offset, flight in enumerate(flights)
        }

    def taken(self, before: str | None, after: str) -> Taken:
        begins: dict[str, int] = {} if before is None else json.loads(before)[TOPIC]
        ends: dict[str, int] = json.loads(after)[TOPIC]
        return Taken(
            [
                record_name(int(partition), offset)
                for partition, end in ends.items()
                for offset in range(begins.get(partition, 0), end)
            ]
        )

    def slot(self, name: str) -> int | None:
        return self._slots[name]


@dataclass(frozen=True, slots=True)
class Added:
    """What one commit added to a table. number: of the commit, ascending; batch: of the query that wrote
    it; files: how many it added."""

    name: str
    number: int
    batch: int
    files: int


def taken_between(added: Iterable[Added], begin: tuple[int, int], end: tuple[int, int]) -> Taken:
    """What lies between two places: each the number of a commit, and how many files before it are read."""
    whole: list[str] = []
    parts: list[str] = []
    for each in added:
        first = 0 if each.number > begin[0] else begin[1] if each.number == begin[0] else each.files
        last = each.files if each.number < end[0] else end[1] if each.number == end[0] else 0
        if first < last:
            (whole if last == each.files else parts).append(each.name)
    return Taken(whole, parts)


class DeltaLog:
    """A Delta table that one query writes and another reads from its version 0 on: source and sink."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._added: list[Added] = []
        self._next = 0

    def taken(self, before: str | None, after: str) -> Taken:
        begin = (0, 0) if before is None else self._place(before)
        return taken_between(self._commits(), begin, self._place(after))

    def slot(self, name: str) -> int | None:
        return None

    def created(self, batch: int) -> list[str]:
        return [added.name for added in self._commits() if added.batch == batch]

    @staticmethod
    def _place(offset: str) -> tuple[int, int]:
        """An offset names the last file that has been read; -1 comes before the first."""
        value = json.loads(offset)
        return value["reservoirVersion"], value["index"] + 1

    def _commits(self) -> list[Added]:
        """All that add rows."""
        while (path := self._folder / f"{self._next:020}.json").exists():
            actions = json_lines(path)
            files = sum(action["add"]["dataChange"] for action in actions if "add" in action)
            batches = [action["txn"]["version"] for action in actions if "txn" in action]
            if files:
                name = f"version {self._next} of {self._folder.parent.name}"
                self._added.append(Added(name, self._next, batches[0], files))
            self._next += 1
        return self._added


_BATCH, _FILES = "spark.sql.streaming.epochId", "added-data-files"
_NO_BATCH = -1


class IcebergLog:
    """An Iceberg table that one query writes and another reads from its beginning: source and sink."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "metadata"

    def taken(self, before: str | None, after: str) -> Taken:
        snapshots = self._snapshots()
        begin = (0, 0) if before is None else self._place(before, snapshots)
        return taken_between(_with_files(snapshots), begin, self._place(after, snapshots))

    def slot(self, name: str) -> int | None:
        return None

    def created(self, batch: int) -> list[str]:
        return [added.name for added in _with_files(self._snapshots()) if added.batch == batch]

    @staticmethod
    def _place(offset: str, snapshots: list[Added]) -> tuple[int, int]:
        value = json.loads(offset)
        numbers = {snapshot.name: snapshot.number for snapshot in snapshots}
        return numbers.get(_snapshot_name(value["snapshot_id"]), 0), value["position"]

    def _snapshots(self) -> list[Added]:
        """Of the newest metadata; each commit writes them anew, under the next number."""
        newest = max(self._folder.glob("*.metadata.json"), key=lambda path: path.name)
        found = []
        for snapshot in json.loads(newest.read_text()).get("snapshots", []):
            summary, number = snapshot["summary"], snapshot["sequence-number"]
            batch = int(summary.get(_BATCH, _NO_BATCH))
            name, files = _snapshot_name(snapshot["snapshot-id"]), summary.get(_FILES, 0)
            found.append(Added(name, number, batch, int(files)))
        return found


def _snapshot_name(snapshot: int) -> str:
    return f"snapshot {snapshot}"


def _with_files(added: Iterable[Added]) -> Iterator[Added]:
    return (each for each in added if each.files)


def delta_files(table: Path) -> list[Path]:
    """The files of which a Delta table consists now."""
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in json_lines(commit):
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            if "add" in action:
                files[action["add"]["path"]] = None
    return [table / name for name in files]


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
