"""Progress as Spark streams it, without Spark: what is between two offsets, whoever asks, whenever, and how often."""

from __future__ import annotations

import io
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull

import tracker
from local_tracker.spark.progress import streams
from local_tracker.spark.progress.asked import Asked, as_tuples, named_by
from local_tracker.spark.progress.registered import _data_source, _table_functions
from local_tracker.spark.progress.streams import CompletedStream, MinTimeStream, Offset, Stream
from tests.client.support import TWO_SEGMENTS, done, joined_front, promise, use_again
from tests.waits import HANG_S
from tracker.client import NodeClient, NodeList
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model.slots import FOREVER
from tracker.errors import InvalidError, LowmarkError, RefusedError, StateError, UnavailableError
from tracker.view.tables import TABLES

EVERY, SLOTS = "100ms", 10
"""A period, and its slots."""
MINUTE = 6_000
"""Slots of a period whose end the tracker's history knows, when the pipeline is complete."""


class Running:
    """A tracker with one pipeline, whose min time a test moves."""

    def __init__(self, tracker: EmbeddedTracker, front: NodeClient) -> None:
        self.tracker, self.front = tracker, front

    def move(self, slot: int) -> None:
        done(
            self.front.leave_front("front") if slot == FOREVER else self.front.commit(promise(slot))
        )
        assert self.tracker.subscriber("two").wait_until(slot, timeout_s=HANG_S)

    def min_times(self, segment: str | None = None) -> MinTimeStream:
        return MinTimeStream(self.tracker.target, "two", segment, HANG_S)

    def completed(self, every: str = EVERY, since: str | None = None) -> CompletedStream:
        return CompletedStream(self.tracker.target, "two", "second", HANG_S, every, since)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(streams, "LOOK_INTERVAL_S", 0.0)
    with tracker.embedded() as embedded:
        embedded.register(TWO_SEGMENTS)
        yield Running(embedded, joined_front(embedded.node("two", "n")))


def kept(offset: Offset) -> Offset:
    """As Spark keeps it."""
    return json.loads(json.dumps(offset))


def moved(stream: Stream, start: Offset, end: Offset) -> list[tuple[str | None, int]]:
    return [(row["segment"], row["min_time"]) for row in stream.between(start, end)]


def keys(rows: list[dict[str, Any]]) -> list[str]:
    return [row["key"] for row in rows]


def test_a_batch_has_the_newest_min_time_of_each_segment_that_has_moved(running: Running) -> None:
    with running.min_times() as stream:
        begin = stream.initial()
        running.move(5)
        first = stream.latest(begin)
        assert moved(stream, begin, first) == [(None, 5), ("first", 5), ("second", 5)]
        assert stream.latest(first) is first, "nothing has moved: Spark makes no batch"
        running.move(7)
        running.move(9)
        second = stream.latest(first)
        assert moved(stream, first, second) == [(None, 9), ("first", 9), ("second", 9)]
        running.move(FOREVER)
        last = stream.latest(second)
        rows = stream.between(second, last)
        assert [(row["min_time"], row["complete"], row["time"]) for row in rows] == [
            (FOREVER, True, None)
        ] * 3
    with running.min_times("first") as one:
        assert moved(one, one.initial(), one.latest()) == [("first", FOREVER)]


def test_a_batch_that_is_planned_again_later_has_the_same_rows(running: Running) -> None:
    with running.min_times() as stream:
        begin = kept(stream.initial())
        running.move(5)
        end = kept(stream.latest(begin))
        rows = stream.between(begin, end)
    running.move(50)
    with running.min_times() as again:
        assert again.between(begin, end) == rows
        assert moved(again, end, again.latest())[0] == (None, 50)


def test_a_stream_that_begins_again_never_goes_back(running: Running) -> None:
    """Another process of the tracker may be behind the one that was asked before."""
    running.move(5)
    with running.min_times() as stream:
        begin = stream.initial()
        ahead = {**stream.latest(begin), "min_times": {"": 5, "first": 8, "second": 5}}
    with running.min_times() as again:
        assert again.between(ahead, ahead) == []  # as Spark shows it where it was
        assert again.latest() == ahead
        running.move(6)
        end = again.latest()
        assert moved(again, ahead, end) == [(None, 6), ("second", 6)]
        assert end["min_times"]["first"] == 8
    with running.completed() as periods:
        ahead = {**periods.initial(), "next": 70}
        assert periods.between(ahead, ahead) == [] and periods.latest() == ahead
    with running.completed() as periods:
        assert periods.latest(ahead) == ahead, "as Spark shows it since 4.2"


def test_what_was_kept_of_a_pipeline_that_was_deleted_is_refused(running: Running) -> None:
    """Another one has its name: a batch that was planned has periods that are not complete in that, and what was given out
    counts for nothing."""
    running.move(50)
    offsets = {}
    for name, make in (("min_times", running.min_times), ("completed", running.completed)):
        with make() as stream:
            begin = stream.initial()
            offsets[name] = kept(begin), kept(stream.latest(begin))
    use_again(running.tracker)
    for name, make in (("min_times", running.min_times), ("completed", running.completed)):
        begin, end = offsets[name]
        with make() as stream, pytest.raises(RefusedError, match="another one has its name"):
            stream.between(begin, end)
        with make() as stream, pytest.raises(RefusedError, match="another one has its name"):
            stream.latest(end)
    with running.completed() as anew:
        assert anew.latest()["next"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_each_period_is_given_out_once_however_often_the_stream_dies(
    running: Running, seed: int
) -> None:
    """Against all periods, counted one by one. Some moves are not looked at before the next."""
    chance, slots = random.Random(seed), MINUTE
    moves = [each * 600 for each in sorted(chance.sample(range(1, 200), 8))]
    stream = running.completed("1m")
    position, given = kept(stream.initial()), []
    for slot in [*moves, FOREVER]:
        running.move(slot)
        if slot != FOREVER and chance.random() < 0.4:
            continue
        end = kept(stream.latest(position))
        rows = stream.between(position, end)
        if chance.random() < 0.5:  # it dies with the batch planned, perhaps with all of it written
            stream.close()
            stream = running.completed("1m")
            assert stream.between(position, end) == rows
        given += keys(rows)
        position = end
        last = min(slot, moves[-1])
        full = [
            f"two/second/{begin}..{begin + slots}" for begin in range(0, last - slots + 1, slots)
        ]
        if slot == FOREVER:
            full.append(f"two/second/{len(full) * slots}..end")
        assert given == full
    assert stream.latest(position) == position
    stream.close()


def test_a_stream_of_periods_begins_where_it_is_told(running: Running) -> None:
    running.move(45)
    for since, first in (("slot:20", 20), ("slot:21", 30), ("1970-01-01T00:00:00.3", 30)):
        with running.completed(since=since) as stream:
            begin = stream.initial()
            assert (
                keys(stream.between(begin, stream.latest(begin)))[0]
                == f"two/second/{first}..{first + SLOTS}"
            )
    running.move(10**7)
    with (
        running.completed() as stream,
        pytest.raises(ValueError, match=r"1000000 periods .* the limit is 100000"),
    ):
        stream.initial()


def test_what_was_kept_of_another_stream_is_refused(running: Running) -> None:
    running.move(45)
    with running.completed() as stream, running.completed("200ms") as longer:
        end = stream.latest()
        with pytest.raises(StateError, match=r"offset is the record of two/second by 10 slots"):
            longer.between(longer.initial(), end)
    with running.min_times() as every, running.min_times("first") as one:
        with pytest.raises(StateError, match=r"is not one of min times of two/first"):
            one.between(one.initial(), every.latest())
        with pytest.raises(StateError, match="a checkpoint of its own"):
            one.latest(end)
    with (
        running.min_times("third") as unknown,
        pytest.raises(RefusedError, match="no segment 'third'"),
    ):
        unknown.initial()


def test_every_table_has_the_columns_that_it_declares(running: Running) -> None:
    running.tracker.register(replace(TWO_SEGMENTS, name="other"))
    asked = Asked((running.tracker.target,), None, HANG_S)
    for name, table in TABLES.items():
        options = {"table": name}
        rows = asked.rows("lowmark", options, None)
        columns = list(table.types)
        assert rows and {len(row) for row in rows} == {len(columns)}, name
        with running.tracker.admin() as admin:
            found = {column for row in table.rows(admin, ()) for column in row}
        assert name == "causes" or found <= set(columns), "a cause has details beside its columns"
        pipelines = {row[0] for row in asked.rows("lowmark", {**options, "pipeline": "two"}, None)}
        assert pipelines == {"two"}
        # A filter asks for less, and for nothing that is not there.
        assert {row[0] for row in asked.rows("lowmark", options, frozenset(["two", "none"]))} == {
            "two"
        }
    with pytest.raises(RefusedError, match="none"):
        asked.rows("lowmark", {"pipeline": "none"}, None)
    assert asked.min_time("two", None)[0][:2] == ("two", None)
    with pytest.raises(InvalidError, match="no segment 'third'; it has first, second"):
        asked.min_time("two", "third")


@pytest.mark.parametrize(
    ("format", "options", "wrong"),
    [
        ("lowmark", {"tabel": "status"}, "no option 'tabel'; it has table, pipeline, segment"),
        ("lowmark", {"table": "statuses"}, "no table 'statuses'; there are min_times, status"),
        (
            "lowmark",
            {"table": "status", "pipeline": "two"},
            "'status' is read at once, by spark.read",
        ),
        ("lowmark", {}, "is of one pipeline: name it"),
        ("lowmark.completed", {"pipeline": "two", "table": "status"}, "no option 'table'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    format: str, options: dict[str, str], wrong: str
) -> None:
    with pytest.raises(InvalidError, match=wrong):
        Asked(("127.0.0.1:9",), None, HANG_S).stream(format, options)


def test_a_tracker_that_is_away_is_named() -> None:
    asked = Asked(("127.0.0.1:9",), None, 0.05)
    with pytest.raises(UnavailableError, match=r"tracker at 127\.0\.0\.1:9 did not answer"):
        asked.rows("lowmark", {}, None)


def test_nodes_that_nobody_answers_for_are_not_left_out_in_silence() -> None:
    class Half:
        def nodes(self, pipeline: str) -> NodeList:
            return NodeList(TWO_SEGMENTS, (), 0, {1: "it does not answer"})

    half: Any = Half()
    with pytest.raises(
        UnavailableError, match=r"nodes of pipeline 'two' are not all there: shard 1 "
    ):
        TABLES["nodes"].rows(half, ["two"])


def test_filters_by_name_leave_over_what_all_of_them_allow() -> None:
    name = ("pipeline",)
    assert named_by([]) is None
    assert named_by([IsNotNull(name), GreaterThan(name, "a"), EqualTo(("segment",), "x")]) is None
    assert named_by([EqualTo(name, "a")]) == frozenset("a")
    assert named_by([In(name, ("a", "b")), In(name, ("b", "c"))]) == frozenset("b")
    assert named_by([EqualTo(name, "a"), EqualTo(name, "b")]) == frozenset()


WITHOUT_LOWMARK = """
import pickle, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("lowmark", "tracker", "local_tracker", "fronts", "acker", "grpc"):
            raise ImportError(f"an executor has no {name}")

sys.meta_path.insert(0, Blocked())
readers, partition, function, analysed = pickle.load(sys.stdin.buffer)
for reader in readers:
    print(list(reader.read(partition)))
print(list(function(analysed).eval("orders")))
"""


def test_executors_need_nothing_of_lowmark(running: Running) -> None:
    running.move(5)
    where = ((running.tracker.target,), None, HANG_S)
    source = _data_source("lowmark", where)({"pipeline": "two"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    function = _table_functions(where)["lowmark_status"].func

    class Argument:
        value, isConstantExpression = "two", True

    analysed = function.analyze(Argument)
    sent = ([reader, source.streamReader(None)], partition, function, analysed)
    file = io.BytesIO()
    cloudpickle.dump(sent, file)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOWMARK], input=file.getvalue(), capture_output=True, check=False,
        timeout=HANG_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stdout.decode().splitlines() == [
        str(partition.value), str(partition.value), str(list(analysed.rows)),
    ]  # fmt: skip
    assert len(partition.value) == len(analysed.rows) == 3


def test_moments_are_values_and_what_lacks_is_null() -> None:
    types = {"at": "time", "n": "int64", "gone": "string"}
    (row,) = as_tuples([{"n": 1, "at": "1970-01-01T00:00:01+00:00"}], types)
    assert (row[0].timestamp(), row[1], row[2]) == (1.0, 1, None)
    assert as_tuples([{"at": None}], types) == [(None, None, None)]


def test_a_code_goes_with_what_is_said(running: Running) -> None:
    with running.min_times() as stream, pytest.raises(LowmarkError) as refused:
        stream.latest({"of": "something"})
    assert refused.value.code == "state.position"
    assert pickle.loads(pickle.dumps(refused.value)).code == refused.value.code
