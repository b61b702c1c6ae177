"""What a query's batches create in a Kafka topic, by its ends and the query's own log, through crashes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.formats.kafka import TopicLabels
from local_tracker.spark.formats.kafka_sink import SunkTopic, TopicSink, topic_output
from local_tracker.spark.formats.ranges import OffsetRanges, RangesError
from local_tracker.spark.query import ticks
from local_tracker.spark.query.compose import ComposeError
from local_tracker.spark.query.follow import Stopping
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.state.entries import Told
from local_tracker.spark.state.holds import StateHolds
from tests.fronts.fake_topic import FakeTopic
from tests.waits import HANG_S, until
from tracker.client.holds import Hold
from tracker.client.state_names import batch_name
from tracker.client.topics import TopicPlace
from tracker.core.log import Joined
from tracker.core.model import Edge, NodeKey, PipelineSpec, Refusal, RefusalCode, TickContent
from tracker.core.model.ack_values import range_value
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.errors import Code, LowmarkError, RefusedError, StateError, UnavailableError

EDGES = Edge("in", "out"), Edge("in", "more", 100), Edge("side", "end")
SPEC = PipelineSpec("p", ("in", "out", "more", "side", "end"), EDGES)
IN, OUT, MORE, SIDE, END = range(5)
P0, P1 = "orders/0", "orders/1"


class Query:
    """A query from a source of numbered records, whose slots are as the test says, to a topic: its
    checkpoint, the topic, and the runs of who follows it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.topic = directory, FakeTopic()
        self.slots: dict[int, int] = {}  # by offset
        self.min_times = dict.fromkeys(range(5), 0)
        self.elsewhere = 0  # so far ahead is min time as another shard knows it
        self.unheard: list[LowmarkError] = []  # what becomes of the first holds that are asked for
        self.root = directory / "cp"
        for folder in ("offsets", "commits"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "metadata").write_text(json.dumps({"id": "q1"}))

    def run(
        self,
        query: str = "q1",
        segments: Mapping[str, int] | None = None,
        state: StateHolds | None = None,
    ) -> Run:
        return Run(self, query, segments or {"out": OUT}, state)

    def plan(self, batch: int, end: int) -> None:
        """The batch reads the source's one partition up to `end`."""
        header = json.dumps({"batchTimestampMs": batch})
        text = f"v1\n{header}\n{json.dumps({'source': end})}"
        (self.root / "offsets" / str(batch)).write_text(text)

    def commit(self, batch: int) -> None:
        (self.root / "commits" / str(batch)).write_text("v1\n{}")

    def write(self, count: int, partition: int = 0) -> None:
        self.topic.now[partition] = self.topic.now.get(partition, 0) + count

    def over(self, batch: int, end: int, written: int) -> None:
        """The batch reads up to `end`, writes so many records, and is over."""
        self.plan(batch, end)
        self.write(written)
        self.commit(batch)

    def labels(self, segment: str = "out") -> TopicLabels:
        return TopicLabels(self.place(), segment)

    def place(self) -> TopicPlace:
        return TopicPlace(str(self.directory / "topics"), "p", "orders")

    def pieces(self, partition: str, begin: int, end: int, segment: str = "out") -> list[Any]:
        return list(self.labels(segment).slots(partition, begin, end))


class Run:
    """One run of the query's follower."""

    def __init__(
        self,
        query: Query,
        query_id: str,
        segments: Mapping[str, int],
        state: StateHolds | None = None,
    ) -> None:
        checkpoint = CheckpointLog(str(query.root))
        self.sink = TopicSink(query.place(), query.topic, segments, query_id)
        self.sink.check(checkpoint)
        self.sink.begin()
        self.sink.follow(checkpoint)

        def slots(partition: str, begin: int, end: int) -> list[tuple[int, int, int]]:
            if any(offset not in query.slots for offset in range(begin, end)):
                raise UnavailableError("it is not labelled yet", Code.UNAVAILABLE_SLOTS)
            return [(offset, offset + 1, query.slots[offset]) for offset in range(begin, end)]

        ranges = {"0": OffsetRanges("in", slots), "1": OffsetRanges("side", slots)}
        routes = Routes(SPEC, QueryReads({}, (), ranges), tuple(segments), "q")
        info = lambda name: SimpleNamespace(  # noqa: E731
            state=SimpleNamespace(
                segments=[
                    SimpleNamespace(min_time=query.min_times[n]) for n in sorted(query.min_times)
                ]
            )
        )
        joined = Joined(NodeKey("q", 1), SPEC, (), 0, ())
        holds: dict[str, Hold] = {}

        def hold(segment: str, slot: None, name: str, timeout_s: float) -> Hold:
            if query.unheard:
                raise query.unheard.pop()
            number = SPEC.segments.index(segment)
            granted = query.min_times[number] + query.elsewhere
            holds[name] = Hold(name, segment, number, granted, SPEC, lambda _: Future())
            return holds[name]

        node: Any = SimpleNamespace(
            report_waits=lambda waits: None, joined=joined, holds=holds, hold=hold
        )
        admin: Any = SimpleNamespace(pipeline=info)
        output = topic_output(self.sink, routes.creates, SunkTopic(self.sink))
        self.ticks = QueryTicks(node, admin, routes, checkpoint, lambda: [output], state=state)

    def tick(self, batch: int) -> TickContent:
        return self.ticks.tick(self.ticks.read(batch), threading.Event())


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    yield Query(tmp_path)


def created(tick: TickContent) -> list[tuple[int, int, int, int]]:
    return sorted(tick.created.rows())


def test_a_batch_creates_what_lies_between_the_ends(query: Query) -> None:
    query.topic.now = {0: 4, 1: 0}  # was there before
    query.slots = {0: 50, 1: 60, 2: 70}
    run = query.run(segments={"out": OUT, "more": MORE})
    query.plan(0, 2)
    query.write(3)
    query.write(1, partition=1)
    query.commit(0)
    value = range_value(P0, 4, 7) ^ range_value(P1, 0, 1)
    assert created(run.tick(0)) == [(OUT, 50, value, 4), (MORE, 150, value, 4)]
    query.over(1, 3, 2)
    assert created(run.tick(1)) == [
        (OUT, 70, range_value(P0, 7, 9), 2), (MORE, 170, range_value(P0, 7, 9), 2)
    ]  # fmt: skip
    assert query.pieces(P0, 2, 9) == [(2, 4, None), (4, 7, 50), (7, 9, 70)]
    assert query.pieces(P0, 5, 8, "more") == [(5, 7, 150), (7, 8, 170)]


def test_what_the_next_batch_has_written_already_has_no_later_slot_than_its_own(
    query: Query,
) -> None:
    query.slots = {0: 50, 1: 30}  # the second batch reads what is older
    run = query.run()
    query.over(0, 1, 3)
    query.plan(1, 2)
    query.write(2)  # of batch 1, before anyone has asked for the ends of batch 0
    assert created(run.tick(0)) == [(OUT, 30, range_value(P0, 0, 5), 5)]


@pytest.mark.parametrize(("others", "least"), [((), 50), ((45,), 45), ((70,), 50)])
def test_what_the_next_batch_has_read_too_late_makes_nothing_late_that_is_in_time(
    query: Query, others: tuple[int, ...], least: int
) -> None:
    """It read what an evicted front had published. By the slot of that the tick of this one would be refused, and its
    manifest is not written anew."""
    query.slots = {0: 50, 1: 30, **{2 + n: slot for n, slot in enumerate(others)}}
    query.min_times[IN] = query.min_times[OUT] = 40
    run = query.run()
    query.over(0, 1, 3)
    query.plan(1, len(query.slots))
    query.write(2)
    assert created(run.tick(0)) == [(OUT, least, range_value(P0, 0, 5), 5)]


def test_the_ends_are_those_of_when_the_batch_was_over_not_of_its_tick(query: Query) -> None:
    query.slots = {0: 50, 1: 30}
    run = query.run()
    query.over(0, 1, 3)
    record = run.ticks.read(0)
    query.plan(1, 2)
    query.write(2)
    assert created(run.ticks.tick(record, threading.Event())) == [
        (OUT, 50, range_value(P0, 0, 3), 3)
    ]


def test_a_manifest_stands_before_the_tick_and_the_next_run_repeats_it(query: Query) -> None:
    query.slots = {0: 50, 1: 30}
    query.run()
    query.over(0, 1, 3)
    first = created(query.run().tick(0))  # and it dies before the tick is sent
    query.plan(1, 2)
    query.write(2)
    assert query.pieces(P0, 0, 3) == [(0, 3, 50)]
    assert created(query.run().tick(0)) == first


def test_a_run_killed_before_the_manifest_is_covered_by_the_next_with_the_oldest_slot(
    query: Query,
) -> None:
    query.slots = {0: 50, 1: 40, 2: 30}
    query.run()
    query.over(0, 1, 3)
    query.over(1, 2, 2)
    query.plan(2, 3)
    query.write(1)  # and the driver is killed
    run = query.run()
    assert created(run.tick(0)) == [(OUT, 30, range_value(P0, 0, 6), 6)]
    assert created(run.tick(1)) == []
    query.write(1)  # batch 2 again
    query.commit(2)
    assert created(query.run().tick(1)) == []
    assert created(run.tick(2)) == [(OUT, 30, range_value(P0, 6, 7), 1)]


def test_it_waits_for_the_slots_of_the_batch_that_may_have_written_too(query: Query) -> None:
    query.slots = {0: 50}
    run = query.run()
    query.over(0, 1, 3)
    query.plan(1, 2)
    record = run.ticks.read(0)
    stopping = threading.Event()
    ticks: list[TickContent] = []
    thread = threading.Thread(target=lambda: ticks.append(run.ticks.tick(record, stopping)))
    thread.start()
    query.slots[1] = 20
    thread.join()
    assert created(ticks[0]) == [(OUT, 20, range_value(P0, 0, 3), 3)]


def test_what_was_written_at_rest_is_nobodys_and_readers_do_not_wait_for_it(query: Query) -> None:
    query.slots = {0: 50, 1: 60}
    run = query.run()
    query.over(0, 1, 3)
    run.tick(0)
    query.write(2)  # of a task that was lost
    labels = query.labels()
    assert not run.sink.sweep(-1)  # batch 0 is not durable yet
    assert run.sink.sweep(0)
    assert not run.sink.sweep(0)
    assert list(labels.slots(P0, 1, 5)) == [(1, 3, 50), (3, 5, None)]
    query.plan(1, 2)
    query.write(1)
    assert not run.sink.sweep(0)  # it may be of batch 1
    query.commit(1)
    assert created(run.tick(1)) == [(OUT, 60, range_value(P0, 5, 6), 1)]
    assert created(query.run().tick(1)) == [(OUT, 60, range_value(P0, 5, 6), 1)]


def test_brokers_that_are_away_when_a_batch_ends_are_asked_again(query: Query) -> None:
    query.slots = {0: 50}
    run = query.run()
    query.over(0, 1, 3)
    query.topic.is_away = True
    record = run.ticks.read(0)
    query.topic.is_away = False
    assert created(run.ticks.tick(record, threading.Event())) == [
        (OUT, 50, range_value(P0, 0, 3), 3)
    ]


def test_a_batch_without_input_creates_where_every_shard_grants_it_and_holds_that(
    query: Query,
) -> None:
    """By the manifest, which stands before the tick and is not written anew, its readers label what they read."""
    query.slots = {0: 50}
    run = query.run()
    query.over(0, 0, 3)
    query.min_times[OUT], query.elsewhere = 500, 7
    tick = run.tick(0)
    assert created(tick) == [(OUT, 507, range_value(P0, 0, 3), 3)]
    assert [(move.name, move.slot) for move in tick.holds] == [(batch_name(0, OUT), FOREVER)]


def test_what_min_time_has_passed_is_late(query: Query) -> None:
    query.slots = {0: 50}
    run = query.run()
    query.over(0, 1, 1)
    record = run.ticks.read(0)
    run.ticks.tick(record, threading.Event())
    query.min_times[OUT] = 500
    refusal = Refusal(RefusalCode.BELOW_MIN_TIME, "min time is there")
    # Of input that is not late, it was announced before the way there was as short as it is now.
    again = run.ticks.relabelled(record, refusal)
    assert again is not None and created(again) == []
    query.min_times[IN] = 500
    again = run.ticks.relabelled(record, refusal)
    assert again is not None and created(again) == [], "what came of late input is late, too"


def test_what_is_written_for_a_complete_segment_is_late(query: Query) -> None:
    """Nothing can be created there any more, and no item lies behind the last slot: its readers see that it is late."""
    run = query.run()
    query.over(0, 0, 3)
    query.min_times[OUT] = FOREVER
    record = run.ticks.read(0)
    run.ticks.tick(record, threading.Event())
    again = run.ticks.relabelled(record, Refusal(RefusalCode.BELOW_MIN_TIME, "it is complete"))
    assert again is not None and created(again) == []
    assert query.pieces(P0, 0, 3) == [(0, 3, LOWEST_SLOT)]


def test_batches_whose_ticks_are_to_come_keep_their_manifests(query: Query) -> None:
    query.slots = {0: 50, 1: 60, 2: 70}
    run = query.run()
    for batch in range(3):
        query.over(batch, batch + 1, batch + 1)
        run.sink.cover(batch, run.sink.look(), {"out": 50 + 10 * batch})
    again = query.run()
    for sink in (run.sink, again.sink):
        covered = [sink.covered(batch) for batch in (1, 2, 3)]
        found = [None if manifest is None else manifest.ranges for manifest in covered]
        assert found == [((P0, 1, 3),), ((P0, 3, 6),), None]


def test_a_writer_goes_on_with_what_it_has_claimed_and_nothing_else(query: Query) -> None:
    def sink(name: str) -> TopicSink:
        return TopicSink(query.place(), query.topic, {"out": OUT}, name)

    assert sink("q1").resume() is None
    query.run("q1")
    query.topic.is_away = True  # its brokers are not asked
    assert sink("q1").resume() is True
    assert sink("q2").resume() is False


def test_an_end_that_moves_back_is_an_error(query: Query) -> None:
    query.slots = {0: 50, 1: 60}
    run = query.run()
    query.over(0, 1, 3)
    run.tick(0)
    query.topic.now = {0: 2}
    with pytest.raises(StateError, match="'orders/0' ends at offset 2, and ended at 3 before"):
        run.ticks.read(0)
    with pytest.raises(StateError, match="'orders/0' ends at offset 2"):
        query.run()


def test_a_topic_that_was_made_anew_is_refused(query: Query) -> None:
    run = query.run()
    query.topic.topic_id = "id-2"
    query.plan(0, 1)
    query.commit(0)
    with pytest.raises(
        StateError, match="has id id-2, and query q1 has labelled the one with id id-1"
    ):
        run.ticks.read(0)


def test_a_topic_has_one_tracked_writer(query: Query) -> None:
    query.run("q1")
    with pytest.raises(StateError, match="belongs to query q1, so query q2 cannot label it too"):
        query.run("q2")


def test_a_writer_does_not_get_segments_later(query: Query) -> None:
    query.run()
    with pytest.raises(StateError, match=r"has created in \['out'\]"):
        query.run(segments={"out": OUT, "more": MORE})


def test_batches_of_before_it_was_tracked_are_refused(query: Query) -> None:
    query.plan(0, 1)
    query.commit(0)
    with pytest.raises(StateError, match="has batches up to 0, which were planned before"):
        query.run()


def test_a_writer_and_a_front_do_not_label_one_segment(query: Query) -> None:
    query.run()
    place = query.place()
    claim = place.claim_of(place.writer)
    assert claim is not None
    place.claim(place.front("out"), claim)
    with pytest.raises(RangesError, match="by query q1 and by query q1"):
        query.pieces(P0, 0, 1)


def test_no_edge_no_slot(query: Query) -> None:
    run = query.run(segments={"end": END})
    query.slots = {0: 50}
    query.over(0, 1, 1)
    with pytest.raises(ComposeError, match="no edge leads there"):
        run.tick(0)


def test_manifests_that_no_reader_needs_are_deleted(query: Query) -> None:
    query.slots = {offset: offset for offset in range(400)}
    run = query.run()
    for batch in range(300):
        query.over(batch, batch + 1, 1)
        run.tick(batch)
        query.min_times[OUT] = min(batch, 120)
        run.ticks.durable(batch)
    numbers = sorted(path.name for path in (query.directory / "topics/p/orders/writer").glob("0*"))
    assert int(numbers[0].split(".")[0]) == 120
    assert len(numbers) == 180
    assert query.pieces(P0, 120, 122) == [(120, 121, 120), (121, 122, 121)]
    query.run()


def test_a_reader_passes_what_was_nobodys_and_whose_manifest_is_deleted(query: Query) -> None:
    """It had read batch 0 when it stopped, and has what a lost run left behind it still before it."""
    query.slots = {offset: offset for offset in range(400)}
    run = query.run()
    query.over(0, 1, 1)
    run.tick(0)
    run.ticks.durable(0)
    query.write(5)
    runs_on = query.labels()
    assert list(runs_on.slots(P0, 0, 1)) == [(0, 1, 0)]
    assert run.sink.sweep(0)
    query.min_times[OUT] = 1
    for batch in range(1, 300):
        query.over(batch, batch + 1, 1)
        run.tick(batch)
        run.ticks.durable(batch)
    assert not (query.directory / f"topics/p/orders/writer/{1:020d}.json").exists()
    expected = [(1, 6, None), (6, 7, 1), (7, 8, 2)]
    assert query.pieces(P0, 1, 8) == expected
    until(
        lambda: is_labelled(runs_on, P0, 8), lambda: "it does not look for the next that is there"
    )
    assert list(runs_on.slots(P0, 1, 8)) == expected


def test_a_reader_forgets_the_manifests_that_are_deleted_and_it_has_passed(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query writes for years. What a late reader has not come to yet stays."""
    monkeypatch.setattr("local_tracker.spark.formats.kafka._LISTED_AFTER_LOOKS", 5)
    for name in ("KEPT_MANIFESTS", "_PRUNE_EVERY"):
        monkeypatch.setattr(f"local_tracker.spark.formats.kafka_sink.{name}", 5)
    query.slots = {offset: offset for offset in range(400)}
    run, reader, late = query.run(), query.labels(), query.labels()
    for batch in range(40):
        query.over(batch, batch + 1, 1)
        run.tick(batch)
        query.min_times[OUT] = batch
        run.ticks.durable(batch)
        until(lambda: is_labelled(reader, P0, batch + 1))  # noqa: B023 - it is called at once
        until(lambda: is_labelled(late, P0, batch + 1, 0))  # noqa: B023
    kept, all_of_them = (
        each._noted._records.published[P0].ends  # type: ignore[union-attr]  # noqa: SLF001
        for each in (reader, late)
    )
    assert len(kept) <= 16 and len(all_of_them) == 40
    assert next(iter(late.slots(P0, 0, 40))) == (0, 1, 0)
    assert list(reader.slots(P0, 39, 40)) == [(39, 40, 39)]


def is_labelled(labels: TopicLabels, partition: str, end: int, begin: int | None = None) -> bool:
    try:
        return bool(labels.slots(partition, end - 1 if begin is None else begin, end))
    except UnavailableError:
        return False


# --- what is only in the query's state ------------------------------------------------------------


class OutAfter:
    """What each batch absorbs is out with the batch after the next."""

    def told(self, batch: int) -> Told:
        return Told(batch, batch + 2)


def held_query(query: Query) -> tuple[Run, StateHolds]:
    """Its first batch has read slot 50 and emitted nothing, and its second, slot 70."""
    query.slots = {0: 50, 1: 70}
    state = StateHolds(OutAfter(), (), -1)
    run = query.run(state=state)
    for batch in (0, 1):
        query.plan(batch, batch + 1)
        query.commit(batch)
        assert created(run.tick(batch)) == []
        run.ticks.durable(batch)
    return run, state


def test_what_is_emitted_from_state_has_the_slot_that_was_held(query: Query) -> None:
    run, state = held_query(query)
    query.over(2, 2, 3)
    tick = run.tick(2)
    assert created(tick) == [(OUT, 50, range_value(P0, 0, 3), 3)]
    assert [(move.slot, move.name) for move in tick.holds] == [(FOREVER, "state:1:2")]
    run.ticks.durable(2)
    assert state.labels({}) == {OUT: 70}


def test_who_writes_while_a_batch_goes_on_waits_for_the_tick_of_the_one_before(
    query: Query,
) -> None:
    """What is held then is what is held when the batch is told."""
    run, _ = held_query(query)
    query.plan(2, 2)
    query.commit(2)
    run.tick(2)
    query.plan(3, 2)
    stopping, found = threading.Event(), list[dict[int, int]]()
    writer = threading.Thread(
        target=lambda: found.append(run.ticks.slots_to_write(3, [OUT], stopping))
    )
    writer.start()
    run.ticks.durable(2)
    writer.join(HANG_S)
    assert found == [{OUT: 70}]
    query.commit(3)
    query.plan(4, 2)
    stopping.set()
    with pytest.raises(Stopping):
        run.ticks.slots_to_write(4, [OUT], stopping)


def test_who_writes_asks_until_every_shard_grants_a_slot(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard is started again, or the tick of the batch before was refused: no reason for the batch to fail."""
    monkeypatch.setattr(ticks, "_ASK_AGAIN_S", 0.0)
    run = query.run()
    query.plan(0, 0)
    refusal = Refusal(RefusalCode.BELOW_MIN_TIME, "what the batch before has read is late")
    behind = RefusedError(refusal, of_tick=True, behind=True)
    query.min_times[OUT], query.unheard = 40, [behind, UnavailableError("a shard is away")]
    assert run.ticks.slots_to_write(0, [OUT], threading.Event()) == {OUT: 40}
    query.unheard = [RefusedError(refusal, of_tick=True)]
    with pytest.raises(RefusedError):
        run.ticks.slots_to_write(0, [OUT], threading.Event())
    stopping, query.unheard = threading.Event(), [UnavailableError("a shard is away")]
    stopping.set()
    with pytest.raises(Stopping):
        run.ticks.slots_to_write(0, [OUT], stopping)
