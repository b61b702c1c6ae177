"""The parts of the demo over tables that need neither Spark nor a broker: logs, and what the reader counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.flights.data import AIRPORTS, DAY_NS, FLIGHTS, MALFORMED, Flight
from examples.flights.witness import Taken, Witness, WitnessedQuery
from examples.history import Recorder, read
from examples.lake.logs import Added, DeltaLog, IcebergLog, TopicSource, delta_files, taken_between
from examples.lake.reader import QUARTERS_S, flights_before, problems
from examples.lake.site import TOPIC


def flights(*slots: int) -> list[Flight]:
    return [Flight(row, AIRPORTS[0], slot * DAY_NS, "") for row, slot in enumerate(slots)]


# --- the topic ------------------------------------------------------------------------------------

FLIGHTS_OF = {0: flights(10, 10, 11), 1: flights(10)}


def offset(**ends: int) -> str:
    return json.dumps({TOPIC: {name.removeprefix("p"): end for name, end in ends.items()}})


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        (None, offset(p0=2, p1=0), ["flights/0/0", "flights/0/1"]),
        (offset(p0=2, p1=0), offset(p0=3, p1=1), ["flights/0/2", "flights/1/0"]),
        (offset(p0=2), offset(p0=2, p1=1), ["flights/1/0"]),
    ],
)
def test_a_batch_takes_the_records_between_two_offsets(
    before: str | None, after: str, taken: list[str]
) -> None:
    source = TopicSource(FLIGHTS_OF)
    assert source.taken(before, after) == Taken(taken)
    assert [source.slot(name) for name in ("flights/0/1", "flights/0/2")] == [10, 11]


# --- tables ---------------------------------------------------------------------------------------


def test_a_commit_is_taken_with_the_last_of_its_files() -> None:
    added = [Added("a", 1, 0, 2), Added("b", 3, 1, 1), Added("c", 4, 2, 2)]
    assert taken_between(added, (0, 0), (3, 1)) == Taken(["a", "b"])
    assert taken_between(added, (0, 0), (1, 1)) == Taken([], ["a"])
    assert taken_between(added, (1, 1), (4, 1)) == Taken(["a", "b"], ["c"])
    assert taken_between(added, (3, 1), (4, 0)) == Taken([])


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, actions))
    (table / "_delta_log" / f"{version:020}.json").write_text(text)


def add(name: str, *, changes: bool = True) -> dict[str, Any]:
    return {"add": {"path": name, "dataChange": changes}}


def delta_offset(version: int, index: int) -> str:
    return json.dumps({"reservoirVersion": version, "index": index})


def test_a_delta_log_tells_what_batches_did(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    commit(tmp_path, 0, {"metaData": {}})
    assert log.created(0) == []
    commit(tmp_path, 1, {"txn": {"appId": "q", "version": 0}}, add("a"), add("b"))
    commit(tmp_path, 2, add("ab", changes=False), {"remove": {"path": "a"}})
    commit(tmp_path, 3, {"txn": {"appId": "q", "version": 1}}, add("c"))
    first, last = f"version 1 of {tmp_path.name}", f"version 3 of {tmp_path.name}"
    assert (log.created(0), log.created(1), log.created(2)) == ([first], [last], [])
    assert log.taken(None, delta_offset(1, 0)) == Taken([], [first])
    assert log.taken(delta_offset(1, 0), delta_offset(2, -1)) == Taken([first])
    assert log.taken(delta_offset(2, -1), delta_offset(4, -1)) == Taken([last])
    assert [path.name for path in delta_files(tmp_path)] == ["b", "ab", "c"]


def metadata(table: Path, number: int, *batches: int) -> None:
    """One snapshot for each number of files that a batch has added."""
    (table / "metadata").mkdir(parents=True, exist_ok=True)
    snapshots = [
        {
            "snapshot-id": 100 + batch,
            "sequence-number": 1 + batch,
            "summary": {
                "spark.sql.streaming.epochId": str(batch),
                **({"added-data-files": str(files)} if files else {}),
            },
        }
        for batch, files in enumerate(batches)
    ]
    path = table / "metadata" / f"{number:05}-{number}.metadata.json"
    path.write_text(json.dumps({"snapshots": snapshots} if snapshots else {}))


def iceberg_offset(snapshot: int, position: int) -> str:
    return json.dumps({"snapshot_id": snapshot, "position": position})


def test_an_iceberg_log_tells_what_batches_did(tmp_path: Path) -> None:
    log = IcebergLog(tmp_path)
    metadata(tmp_path, 0)
    assert log.created(0) == []
    metadata(tmp_path, 1, 2)
    metadata(tmp_path, 2, 2, 0, 1)
    assert log.created(0) == ["snapshot 100"]
    assert log.created(1) == []
    assert log.taken(None, iceberg_offset(-1, -1)) == Taken([])
    assert log.taken(iceberg_offset(-1, -1), iceberg_offset(100, 1)) == Taken([], ["snapshot 100"])
    after = iceberg_offset(102, 1)
    assert log.taken(iceberg_offset(100, 1), after) == Taken(["snapshot 100", "snapshot 102"])


def test_what_a_batch_wrote_into_a_table_has_the_oldest_day_of_which_it_read(
    tmp_path: Path,
) -> None:
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "table"
    for folder in ("commits", "offsets"):
        (checkpoint / folder).mkdir(parents=True)
    commit(table, 0, {"txn": {"appId": "q", "version": 0}}, add("a"))
    (checkpoint / "offsets/0").write_text("\n".join(["v1", "{}", offset(p0=3, p1=1)]))
    (checkpoint / "commits/0").write_text("v1\n{}")
    recorder = Recorder(tmp_path / "history.jsonl")
    query = WitnessedQuery(
        "parse", checkpoint, TopicSource(FLIGHTS_OF), {"enrich": DeltaLog(table)}
    )
    Witness(recorder, [query]).look()
    recorder.close()
    lines = read(tmp_path / "history.jsonl")
    assert [(line["kind"], line["item"], line.get("slot")) for line in lines] == [
        ("created", "version 0 of table", 10),
        ("consumed", "flights/0/0", None),
        ("consumed", "flights/0/1", None),
        ("consumed", "flights/0/2", None),
        ("consumed", "flights/1/0", None),
    ]


# --- the reader -----------------------------------------------------------------------------------


def test_the_reader_must_have_counted_every_quarter(tmp_path: Path) -> None:
    counts = flights_before(QUARTERS_S)
    assert list(counts.values())[-1] == FLIGHTS - MALFORMED
    reads = tmp_path / "reads.jsonl"
    assert len(problems(reads)) == len(QUARTERS_S)
    lines = [{"before_s": before_s, "flights": count} for before_s, count in counts.items()]
    reads.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert problems(reads) == []
    lines[1]["flights"] -= 1
    reads.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (problem,) = problems(reads)
    assert "before 2013-07-01" in problem
