"""The parts of the flights demo that need no Spark: data, clock, letters, witness, proof."""

from __future__ import annotations

import json
import time
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import FORM
from examples.flights.data import (
    AIRPORTS,
    FLIGHTS,
    MALFORMED,
    YEAR_BEGIN_NS,
    YEAR_END_NS,
    all_lines,
    flights_of,
    parse_line,
)
from examples.flights.dead_letters import letter_cells
from examples.flights.expected import Expected, RouteTotals, expected
from examples.flights.form import DemoFailed
from examples.flights.letters import Letter, letter_values, read_letters, write_letters
from examples.flights.pipeline import Places
from examples.flights.proof import Result, dead_rows, differences, newest_totals
from examples.flights.queries import parser
from examples.flights.replay import ReplayClock
from examples.flights.run import one_at_a_time, run_demo
from examples.flights.witness import FileSink, FileSource, Witness, WitnessedQuery
from examples.history import Recorder, read

LINE = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"  # the first one
CANCELLED = (
    "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z"
)


# --- data -----------------------------------------------------------------------------------------


def test_every_flight_belongs_to_one_airport_and_comes_in_by_its_scheduled_time() -> None:
    rows: set[int] = set()
    for airport in AIRPORTS:
        flights = flights_of(airport)
        order = [(flight.scheduled_ns, flight.row) for flight in flights]
        assert order == sorted(order)
        assert order[0][0] >= YEAR_BEGIN_NS and order[-1][0] < YEAR_END_NS
        rows |= {flight.row for flight in flights}
    assert len(rows) == FLIGHTS


def test_a_line_is_parsed_and_its_moment_is_utc() -> None:
    flight = parse_line(LINE)
    assert (flight["carrier"], flight["origin"], flight["dest"]) == ("UA", "EWR", "IAH")
    assert flight["scheduled_s"] == 1357035300  # 05:15 in New York
    assert (flight["dep_delay_min"], flight["arr_delay_min"]) == (2, 11)
    assert next(all_lines()) == LINE


@pytest.mark.parametrize("line", [CANCELLED, "2013,1", ""], ids=["cancelled", "short", "empty"])
def test_a_malformed_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse_line(line)


def test_the_expected_result_has_every_flight() -> None:
    result = expected()
    assert result.flights == FLIGHTS
    assert len(result.malformed) == MALFORMED


# --- clock ----------------------------------------------------------------------------------------


def test_the_replays_clock_stands_still_before_and_after_the_year() -> None:
    now_ns = time.monotonic_ns()
    assert ReplayClock(now_ns + 10**12, 60.0).now_ns() == YEAR_BEGIN_NS
    over = ReplayClock(now_ns - 10**12, 60.0)
    assert over.now_ns() == YEAR_END_NS
    over.wait_until(YEAR_END_NS + 1)  # returns


def test_the_year_lasts_as_long_as_it_is_told_to() -> None:
    clock = ReplayClock(time.monotonic_ns() - 30 * 10**9, 60.0)
    half_ns = (YEAR_BEGIN_NS + YEAR_END_NS) // 2
    assert half_ns <= clock.now_ns() < YEAR_END_NS


# --- letters --------------------------------------------------------------------------------------


def test_the_parser_hands_over_what_is_malformed_when_it_has_seen_all() -> None:
    handed: list[tuple[int, int, str, str]] = []
    raw = pa.RecordBatch.from_pydict(
        {"row": [0, 838], "line": [LINE, CANCELLED], "day": [15706, 15707]}
    )
    output = parser(handed.extend, itemgetter("day"))(iter([raw, raw]))
    assert next(output).column("row").to_pylist() == [0]
    assert not handed
    assert [len(batch) for batch in output] == [1]
    assert handed == [(838, 15707, CANCELLED, "dep_time: NA")] * 2


def test_letters_come_back_as_they_were_written(tmp_path: Path) -> None:
    letters = [Letter(838, 15706, CANCELLED, "dep_time: NA"), Letter(839, 15707, "ä,\n", "why")]
    write_letters(tmp_path, "0-0.jsonl", letters)
    write_letters(tmp_path, "0-0.jsonl", letters)  # a task that is tried again
    assert [path.name for path in tmp_path.iterdir()] == ["0-0.jsonl"]
    assert read_letters(tmp_path / "0-0.jsonl") == letters


def test_who_creates_and_who_consumes_a_letter_agree_on_its_value() -> None:
    letters = [Letter(row, 15706, "", "") for row in (838, 839)]
    assert letter_cells(3, letters).checksums.tolist() == letter_values([838, 839]).tolist()
    assert len(set(letter_values([838, 839]).tolist())) == 2


# --- witness --------------------------------------------------------------------------------------


class Logs:
    """Spark's logs of one query, written by hand."""

    def __init__(self, root: Path, name: str) -> None:
        self.checkpoint, self.output = root / name, root / f"{name}-out"
        for folder in ("commits", "offsets", "sources/0"):
            (self.checkpoint / folder).mkdir(parents=True)
        (self.output / "_spark_metadata").mkdir(parents=True)

    def source(self, entry: str, files: dict[str, int]) -> None:
        lines = [json.dumps({"path": path, "batchId": batch}) for path, batch in files.items()]
        self._write(self.checkpoint / "sources" / "0" / entry, ["v1", *lines])

    def sink(self, entry: str, files: list[str]) -> None:
        lines = [json.dumps({"path": path}) for path in files]
        self._write(self.output / "_spark_metadata" / entry, ["v1", *lines])

    def commit(self, batch: int, offset: int) -> None:
        lines = ["v1", "{}", json.dumps({"logOffset": offset})]
        self._write(self.checkpoint / "offsets" / str(batch), lines)
        self._write(self.checkpoint / "commits" / str(batch), ["v1", "{}"])

    def query(self, segment: str, creates: str | None = None) -> WitnessedQuery:
        sinks = {creates: FileSink(self.output)} if creates else {}
        return WitnessedQuery(segment, self.checkpoint, FileSource(self.checkpoint), sinks)

    @staticmethod
    def _write(path: Path, lines: list[str]) -> None:
        path.write_text("\n".join(lines))


def witnessed(tmp_path: Path, *queries: WitnessedQuery) -> list[tuple[str, ...]]:
    recorder = Recorder(tmp_path / "history.jsonl")
    Witness(recorder, queries).look()
    recorder.close()
    return [
        (line["kind"], line["segment"], line["item"], *([line["slot"]] if "slot" in line else []))
        for line in read(tmp_path / "history.jsonl")
    ]


def test_what_a_batch_created_has_the_oldest_slot_that_it_consumed(tmp_path: Path) -> None:
    first, second = Logs(tmp_path, "first"), Logs(tmp_path, "second")
    first.source("0", {"file:///raw/s7-EWR-00000000.parquet": 0})
    first.source("1", {"file:///raw/s5-JFK-00000000.parquet": 1})
    first.sink("0", ["file:///out/part-0"])
    first.commit(0, 1)
    second.source("0", {"file:///out/part-0": 0})
    second.commit(0, 0)
    queries = [
        second.query("enrich"),  # looked at first, though it comes after
        first.query("parse", "enrich"),
    ]
    assert witnessed(tmp_path, *queries) == [
        ("created", "enrich", "file:///out/part-0", 5),
        ("consumed", "parse", "file:///raw/s7-EWR-00000000.parquet"),
        ("consumed", "parse", "file:///raw/s5-JFK-00000000.parquet"),
        ("consumed", "enrich", "file:///out/part-0"),
    ]


def test_compacted_logs_tell_what_is_new_in_them(tmp_path: Path) -> None:
    logs = Logs(tmp_path, "query")
    logs.source("0", {"file:///raw/s1-EWR-00000000.parquet": 0})
    logs.source("1.compact", {
        "file:///raw/s1-EWR-00000000.parquet": 0, "file:///raw/s2-EWR-00000001.parquet": 1,
    })  # fmt: skip
    logs.sink("0", ["file:///out/a"])
    logs.sink("1.compact", ["file:///out/a", "file:///out/b"])
    logs.commit(0, 0)
    logs.commit(1, 1)
    assert witnessed(tmp_path, logs.query("parse", "enrich")) == [
        ("created", "enrich", "file:///out/a", 1),
        ("consumed", "parse", "file:///raw/s1-EWR-00000000.parquet"),
        ("created", "enrich", "file:///out/b", 2),
        ("consumed", "parse", "file:///raw/s2-EWR-00000001.parquet"),
    ]


def test_a_batch_that_is_not_committed_is_not_told(tmp_path: Path) -> None:
    logs = Logs(tmp_path, "query")
    logs.source("0", {"file:///raw/s1-EWR-00000000.parquet": 0})
    assert witnessed(tmp_path, logs.query("parse")) == []


# --- proof ----------------------------------------------------------------------------------------

TRUTH = Expected({("UA", "EWR", "IAH"): RouteTotals(2, 5, 2, 7, 300)}, {838, 839})


def result(root: Path, *batches: dict[str, int], dead: tuple[int, ...] = (838, 839)) -> Result:
    """What a run left: the route's totals of each batch, and the ledger."""
    places = Places(root)
    places.make()
    for batch, totals in enumerate(batches):
        row = {"carrier": "UA", "origin": "EWR", "dest": "IAH", **totals, "batch": batch}
        pq.write_table(pa.Table.from_pylist([row]), places.totals / f"{batch}.parquet")
    places.dead_letters.write_text(json.dumps({"file": "0-0.jsonl", "rows": dead}) + "\n")
    return Result(newest_totals(places.totals), dead_rows(places.dead_letters))


WHOLE = {"flights": 2, "dep_delay_min": 5, "arrived": 2, "arr_delay_min": 7, "seats": 300}
HALF = {"flights": 1, "dep_delay_min": 5, "arrived": 1, "arr_delay_min": 7, "seats": 150}


def test_the_newest_totals_count(tmp_path: Path) -> None:
    assert differences(result(tmp_path, HALF, WHOLE), TRUTH) == []


@pytest.mark.parametrize(
    ("batches", "dead", "named"),
    [
        ((WHOLE, HALF), (838, 839), "route UA EWR IAH"),
        ((), (838, 839), "route UA EWR IAH"),
        ((WHOLE | {"seats": 301},), (838, 839), "route UA EWR IAH"),
        ((WHOLE,), (838,), "1 malformed rows are missing"),
        ((WHOLE,), (838, 839, 839), "twice"),
        ((WHOLE,), (838, 839, 840), "no malformed"),
    ],
)
def test_whatever_differs_is_named(
    tmp_path: Path, batches: tuple[dict[str, int], ...], dead: tuple[int, ...], named: str
) -> None:
    (found,) = differences(result(tmp_path, *batches, dead=dead), TRUTH)
    assert named in found


# --- one at a time --------------------------------------------------------------------------------


def test_a_second_demo_leaves_the_first_ones_files_alone(tmp_path: Path) -> None:
    with one_at_a_time(tmp_path, "demo"):
        (tmp_path / "demo").mkdir()
        with pytest.raises(DemoFailed, match="another demo"):
            run_demo(FORM, tmp_path, 1.0, None)
        assert (tmp_path / "demo").exists()
    with one_at_a_time(tmp_path, "demo"):
        pass
