"""Min time of what a query creates waits for what is only in its state; the logs are written as Spark writes them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tracker
from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.jvm import PlannedQuery
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.starting import StartingQuery
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.state.bounds import LogBounds
from local_tracker.spark.state.chosen import may_create
from local_tracker.spark.state.holds import StateHolds, begin_state
from local_tracker.spark.state.recorded import StateRecord, Widest
from local_tracker.spark.state.rules import (
    HeldFor,
    StateKind,
    StatePlan,
    Steps,
    Wait,
    Watermark,
    Window,
    WindowTime,
)
from tests.cluster.tracker import lowmark
from tests.spark.written_logs import QUERY, Logs, source_file
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.client.state_names import Rows, bound_of, name_of
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    HoldMove,
    PipelineSpec,
    TickContent,
    Unit,
)
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER
from tracker.errors import FilesError, TrackingError
from tracker.files import STORES
from tracker.service.rpc.nodes import MAX_RESOLVE_WAIT_MS

COUNT, REPORT, AUDIT = range(3)
SEGMENTS = ("count", "report", "audit")
STATE = HeldFor(delay_ms=5_000, span_ms=10_000, ahead_ms=0)
PLANNED_MS = 1_700_000_000_000
"""When batch 0 was planned, by the clock; those after it a millisecond later each."""
T0_MS = 1_000_000


def out_ms(next_ms: int) -> int:
    """The watermark by which all is out that a batch has absorbed that leaves `next_ms`."""
    return next_ms + 5_000 + 10_000 + 1


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=3) as embedded:
        yield embedded


class World:
    """A pipeline whose front has published a file at each of slots 1 to 19, and the query's logs."""

    def __init__(self, running: EmbeddedTracker, name: str, directory: Path) -> None:
        self.running, self.name, self.logs = running, name, Logs(directory)
        edges = (Edge("count", "report"), Edge("count", "audit", 1_000))
        running.register(PipelineSpec(name, SEGMENTS, edges, fronts=("front",)))
        self.front = running.node(name, "front")
        self.front.join(HANG_S)
        self.front.join_front("front", "count", HANG_S)
        self.publish(*range(1, 20))
        promise = Heartbeat("front", 100_000)
        self.front.commit(TickContent(heartbeats=(promise,))).result(HANG_S)
        self._batch = self._at_ms = 0
        self.query: AttachedQuery | None = None

    def publish(self, *slots: int) -> None:
        cells = Cells.of((COUNT, slot, unit_value(source_file(slot)), 1) for slot in slots)
        self.front.commit(TickContent(created=cells)).result(HANG_S)

    def consume(self, segment: int, name: str, slot: int) -> None:
        cells = Cells.of([(segment, slot, unit_value(name), 1)])
        content = TickContent(consumed=cells, units_consumed=(Unit(segment, name, slot),))
        self.front.commit(content).result(HANG_S)

    def batch(self, *slots: int, next_ms: int, written: int = 0) -> list[str]:
        """One that reads the files of those slots, and leaves a watermark to the next; returns what it wrote."""
        number, self._batch = self._batch, self._batch + 1
        files = [source_file(slot) for slot in slots]
        self.logs.windowed(number, files, at_ms=self._at_ms, next_ms=next_ms, written=written)
        self._at_ms = next_ms
        return [f"file://{self.logs.sink}/part-{number}-{n}.parquet" for n in range(written)]

    def attached(self, *, creates: tuple[str, ...] = ("report",), **more: object) -> AttachedQuery:
        options: dict[str, object] = {"reads": "count", "creates": creates, "state": STATE}
        options |= {"sink": str(self.logs.sink), **more}
        at = self.running.target, self.name, "counts", str(self.logs.checkpoint)
        return AttachedQuery(*at, **options)  # type: ignore[arg-type]

    def tell(self, **more: object) -> None:
        """A run of the query that tells what is over by now."""
        query = self.attached(**more).start()  # type: ignore[arg-type]
        assert query.wait_durable(HANG_S)
        assert query.close()

    def stands_at(self, slot: int, segment: str = "report") -> None:
        with self.running.subscriber(self.name) as subscriber:
            assert subscriber.wait_until(slot, segment, timeout_s=HANG_S)
            assert subscriber.min_time(segment) == slot

    def held(self) -> dict[str, int]:
        with NodeClient(self.running.target, self.name, "counts") as node:
            return {held.name: held.slot for held in node.check_join(HANG_S).holds}

    def label(self, name: str, segment: str = "report") -> int:
        return self.front.resolve_units(segment, [name], MAX_RESOLVE_WAIT_MS)[name]


@pytest.fixture
def world(
    running: EmbeddedTracker, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[World]:
    made = World(running, request.node.name, tmp_path)
    yield made
    made.front.close()


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "a run for each batch"])
def test_min_time_waits_for_what_is_only_in_state(world: World, restarts: bool) -> None:
    query = None if restarts else world.attached().start()

    def told() -> None:
        if query is None:
            world.tell()
        else:
            assert query.wait_durable(HANG_S)

    world.batch(*range(1, 10), next_ms=T0_MS)
    told()
    world.stands_at(1)
    world.batch(*range(10, 20), next_ms=T0_MS + 60_000)
    told()
    world.stands_at(100_000, "count")
    world.stands_at(1)  # 1 to 9 are out by the watermark of the next, 10 to 19 later
    assert world.held() == {f"state:1:{out_ms(T0_MS)}": 1, f"state:1:{out_ms(T0_MS + 60_000)}": 10}
    (first,) = world.batch(next_ms=T0_MS + 60_000, written=1)
    told()
    assert world.label(first) == 1
    assert world.held() == {f"state:1:{out_ms(T0_MS + 60_000)}": 10}
    world.stands_at(1)
    world.consume(REPORT, first, 1)
    world.stands_at(10)
    world.batch(next_ms=out_ms(T0_MS + 60_000) - 1)  # and one millisecond is lacking
    world.batch(next_ms=out_ms(T0_MS + 60_000))
    told()
    world.stands_at(10)
    (second,) = world.batch(next_ms=out_ms(T0_MS + 60_000), written=1)
    told()
    assert (world.held(), world.label(second)) == ({}, 10)
    world.consume(REPORT, second, 10)
    world.stands_at(100_000)
    if query is not None:
        assert query.close()


def test_a_batch_that_emits_and_absorbs_is_labelled_by_what_was_held(world: World) -> None:
    world.batch(*range(1, 8), next_ms=T0_MS)
    world.batch(*range(8, 20), next_ms=out_ms(T0_MS))
    (emitted,) = world.batch(next_ms=out_ms(T0_MS), written=1)
    world.tell()
    assert world.label(emitted) == 1
    assert list(world.held().values()) == [8]


def test_what_came_in_before_a_way_was_shorter_is_held_where_it_may_be(world: World) -> None:
    world.stands_at(1_001, "audit")
    edges = (Edge("count", "report"), Edge("count", "audit"))
    with Admin(world.running.target) as admin:
        admin.apply(PipelineSpec(world.name, SEGMENTS, edges, fronts=("front",)))
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell(creates=("audit",))
    assert [*world.held().values()] == [1_001]
    world.batch(next_ms=out_ms(T0_MS))
    (emitted,) = world.batch(next_ms=out_ms(T0_MS), written=1)
    world.tell(creates=("audit",))
    assert (world.held(), world.label(emitted, "audit")) == ({}, 1_001)
    world.consume(AUDIT, emitted, 1_001)
    world.stands_at(100_000, "audit")


def test_what_is_emitted_at_once_has_the_slot_of_what_was_held_or_read(world: World) -> None:
    """A join emits a match when its second side comes: what it was held for is still there."""
    world.batch(*range(5, 20), next_ms=T0_MS)
    (first,) = world.batch(1, 2, 3, 4, next_ms=T0_MS, written=1)
    world.tell()
    assert world.label(first) == 1
    assert list(world.held().values()) == [1]  # the lower takes the higher one's place


def test_each_segment_that_is_created_in_is_held_by_the_delay_of_its_edge(world: World) -> None:
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell(creates=("report", "audit"))
    world.stands_at(1)
    world.stands_at(1_001, "audit")
    assert {name.split(":")[1]: slot for name, slot in world.held().items()} == {
        "1": 1,
        "2": 1_001,
    }


def test_what_no_watermark_tells_of_a_batch_is_bound_by_when_it_was_planned(world: World) -> None:
    """From outside it is not known whether a batch was evaluated that moved no watermark."""
    world.batch(*range(1, 20), next_ms=0)
    world.tell()
    planned = f"state:1:{PLANNED_MS + STATE.span_ms + 1}"
    assert world.held() == {planned: 1}
    world.batch(next_ms=T0_MS)  # of rows that came after it
    world.tell()
    assert world.held() == {planned: 1}


def test_what_is_read_too_late_holds_nothing_and_blocks_nobody(world: World) -> None:
    """It came after min time had passed it: it is counted as late, and told of."""
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell()
    world.batch(next_ms=out_ms(T0_MS))
    (emitted,) = world.batch(next_ms=out_ms(T0_MS), written=1)
    world.tell()
    world.consume(REPORT, emitted, 1)
    world.stands_at(100_000)
    world.batch(7, next_ms=out_ms(T0_MS) + 1)  # again, say: nobody has created it
    world.tell()
    assert world.held() == {}
    world.publish(100_007)
    world.batch(8, 100_007, next_ms=out_ms(T0_MS) + 2)
    world.tell()
    assert list(world.held().values()) == [100_007]
    (emitted,) = world.batch(9, next_ms=out_ms(T0_MS) + 3, written=1)
    world.tell()
    assert world.label(emitted) == 100_007, "what it emits is labelled as if it had not read that"
    assert list(world.held().values()) == [100_007]


def test_a_query_without_state_goes_on_behind_what_it_reads_too_late(world: World) -> None:
    """That is counted as late; what it has written is labelled by what else it has read, or where min time is."""
    (written,) = world.batch(*range(1, 20), next_ms=T0_MS, written=1)
    world.tell(state=None)
    world.consume(REPORT, written, 1)
    world.stands_at(100_000)
    world.publish(100_007)
    (beside,) = world.batch(7, 100_007, next_ms=T0_MS, written=1)
    (alone,) = world.batch(8, next_ms=T0_MS, written=1)
    world.tell(state=None)
    assert (world.label(beside), world.label(alone)) == (100_007, 100_000)


def test_what_a_hold_covers_that_min_time_has_passed_is_held_anew(world: World) -> None:
    """Its entry stands lower than what the next batch reads, and holds nothing: an operator has written it off."""
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell()
    world.stands_at(1)
    with Admin(world.running.target) as admin:

        def held() -> list[tuple[int, int, int, int]]:
            """Of the shard that counts it, which hears of the tick from the query's home."""
            parts = admin.explain(world.name, "report").parts
            cells = [cell for part in parts for cell in part.cells]
            return [(REPORT, cell.slot, cell.checksum, cell.items) for cell in cells]

        admin.retire(world.name, "counts", Cells.of(until(held)))
    world.stands_at(100_000)
    world.publish(100_007)
    world.batch(100_007, next_ms=T0_MS)
    world.tell()
    world.front.commit(TickContent(heartbeats=(Heartbeat("front", 200_000),))).result(HANG_S)
    world.stands_at(200_000, "count")
    world.stands_at(100_007)
    assert list(world.held().values()) == [100_007]
    world.batch(next_ms=out_ms(T0_MS))
    (emitted,) = world.batch(next_ms=out_ms(T0_MS), written=1)
    world.tell()
    assert world.label(emitted) == 100_007


def test_a_query_that_holds_is_not_started_so_that_it_would_let_go_of_nothing(world: World) -> None:
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell()
    with pytest.raises(TrackingError, match=r"1 holds stand for rows in its state, .*state:1:"):
        world.attached(state=None).start()
    world.stands_at(1)


def test_batches_that_wait_for_the_tracker_hold_one_after_the_other(world: World) -> None:
    """The query is ahead: what each batch does to holds is made when that before it is durable."""
    for number in range(1, 20):
        world.batch(number, next_ms=T0_MS + number)
    query = world.attached().start()
    until(lambda: query.last_durable_batch == 18)
    assert len(world.held()) == 19
    world.stands_at(1)
    assert query.close()


def test_a_query_whose_segment_is_complete_comes_to_rest_and_its_reader_does(
    world: World, tmp_path: Path
) -> None:
    """It goes on writing files that are empty, as one with timers does; what it wrote before is complete."""
    query = world.attached(state=None).start()
    (first,) = world.batch(*range(1, 20), next_ms=T0_MS, written=1)
    assert query.wait_durable(HANG_S)
    world.front.leave_front("front").result(HANG_S)
    world.consume(REPORT, first, 1)
    world.stands_at(FOREVER)
    (empty,) = world.batch(next_ms=T0_MS, written=1)
    world.batch(next_ms=T0_MS, written=1)
    assert query.wait_durable(HANG_S), "nothing is waited for"
    until(lambda: query.rest is not None)
    assert query.rest is not None
    assert re.search(
        r"\['report'\] .* are complete, and batch 1 has written 1 units", str(query.rest)
    )
    assert (query.failure, query.close()) == (None, True)
    again = world.attached(state=None).start()
    until(lambda: again.rest is not None)
    assert again.close()
    logs = Logs(tmp_path / "reader")
    (logs.checkpoint / "metadata").write_text(json.dumps({"id": "reader"}))
    logs.windowed(0, [empty], at_ms=0, next_ms=0, written=0)
    at = world.running.target, world.name, "reports", str(logs.checkpoint)
    reader = AttachedQuery(*at, reads="report").start()
    until(lambda: reader.rest is not None)
    assert re.search(r"'report' .* is complete, and batch 0 has read 1 units", str(reader.rest))
    assert (reader.failure, reader.close()) == (None, True)


# --- what is recorded beside the logs -------------------------------------------------------------


def test_a_batch_that_was_found_in_the_sink_is_held_whatever_the_watermark_says(
    world: World,
) -> None:
    """The driver was killed behind the sink's commit: Spark takes the batch from there, without evaluating it. What it
    absorbed was there when it was planned."""
    log = CheckpointLog(str(world.logs.checkpoint))
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.batch(*range(10, 20), next_ms=T0_MS, written=1)
    (world.logs.checkpoint / "commits/1").unlink()
    record, plan = StateRecord(log), StatePlan.given(STATE)
    record.begun(record.read(), plan, lambda batch: False)
    assert record.read().unseen == frozenset()
    record.begun(record.read(), plan, lambda batch: batch == 1)
    world.logs.write("cp/commits", 1, f'v1\n{{"nextBatchWatermarkMs":{T0_MS}}}')
    record.begun(record.read(), plan, lambda batch: True)
    assert record.read().unseen == {1}, "it is known also when the batch is over"
    world.batch(next_ms=10 * T0_MS)
    world.batch(next_ms=10 * T0_MS)
    world.tell()
    assert list(world.held()) == [f"state:1:{PLANNED_MS + 1 + STATE.span_ms + 1}"]


def test_a_query_that_gets_another_plan_holds_for_as_long_as_either_may_take(world: World) -> None:
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.tell()
    world.batch(*range(10, 20), next_ms=T0_MS + 60_000)  # by the old one, and told by the new one
    longer = HeldFor(delay_ms=1_000, span_ms=100_000, ahead_ms=0)
    world.tell(state=longer)
    held = {slot: bound_of(name) for name, slot in world.held().items()}
    assert held[1] == out_ms(T0_MS) + 100_001 + 1, "rows that were absorbed may wait by the new one"
    second = held[10]
    assert isinstance(second, int) and second >= T0_MS + 60_000 + 5_000 + 10_000 + 100_000
    world.tell(state=longer)
    assert {slot: bound_of(name) for name, slot in world.held().items()} == held, "once"


@pytest.mark.parametrize(
    ("steps", "moves"),
    [
        ((Window(10_000_000, 10_000_000),), False),
        ((Window(10_000_000, 10_000_000), WindowTime(), Window(90_000_000, 90_000_000)), True),
    ],
    ids=["windows", "windows of windows"],
)
def test_rows_on_their_way_to_an_outer_window_wait_for_that_of_the_plan_that_runs_next(
    world: World, steps: Steps, moves: bool
) -> None:
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.tell()
    waits = (Wait(steps, what="windows"),)
    plan = StatePlan(StateKind.BOUNDED, (Watermark("ts", 5_000),), waits=waits)
    with NodeClient(world.running.target, world.name, "counts") as node:
        node.join(HANG_S)
        log = CheckpointLog(str(world.logs.checkpoint))
        (held,) = begin_state(plan, log, node)
    assert held.slot == 1
    longer_ms = Widest.of(plan, 0).span_ms if moves else 0
    assert bound_of(held.name) == out_ms(T0_MS) + longer_ms


def test_sessions_that_are_held_as_the_user_says_from_now_on_are_let_go_of(world: World) -> None:
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.tell()
    node = NodeClient(world.running.target, world.name, "counts")
    node.join(HANG_S)
    rows = HoldMove(name_of(REPORT, Rows(T0_MS)), REPORT, 1)
    (by_watermark,) = world.held()
    let_go = HoldMove(by_watermark, REPORT, FOREVER)
    node.commit(TickContent(holds=(rows, let_go))).result(HANG_S)
    node.close()
    world.tell()
    assert world.held() == {f"state:1:{T0_MS + 10_001}": 1}
    world.batch(next_ms=T0_MS + 10_001)
    world.batch(next_ms=T0_MS + 10_001)
    world.tell()
    assert world.held() == {}


def test_what_a_writer_names_is_held_in_before_it_has_written_anything(tmp_path: Path) -> None:
    edges = (Edge("count", "report"), Edge("report", "audit"))
    spec = PipelineSpec("p", SEGMENTS, edges)
    named = [None, ("audit",), ("report",)]
    assert may_create((), named, {"count"}, spec) == ["report"]
    assert may_create(("audit",), [], {"count"}, spec) == ["audit"]
    logs = Logs(tmp_path)
    logs.windowed(0, [source_file(1)], at_ms=0, next_ms=T0_MS, written=0)
    log = CheckpointLog(str(logs.checkpoint))
    state = StateHolds(LogBounds(StatePlan.given(STATE), log), (), -1)
    with NodeClient("127.0.0.1:1", "p", "counts") as node, Admin("127.0.0.1:1") as admin:
        routes = Routes(spec, QueryReads("count"), (), "counts")
        ticks = QueryTicks(node, admin, routes, log, state=state, may_create=[REPORT])
        record = ticks.read(0)
        ticks.tick(record, threading.Event())
    assert [(move.segment, move.slot) for move in state.moves(0)] == [(REPORT, 1)]


def test_what_was_absorbed_before_it_was_held_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.tell(state=None)
    for number in (1, 2):
        world.batch(*range(10, 20) if number == 1 else (), next_ms=T0_MS)
        world.tell()
    said = [r.getMessage() for r in caplog.records if "absorbed before" in r.getMessage()]
    assert said == [
        "query 'counts': from batch 1 on what is in its state is held; what it absorbed before is not"
    ]
    assert list(world.held().values()) == [10]


def test_a_record_that_is_not_as_it_was_written_is_refused_by_name(world: World) -> None:
    world.batch(*range(1, 10), next_ms=T0_MS)
    world.tell()
    path = world.logs.checkpoint / "_lowmark/state"
    path.write_text('{"plans": 1}')
    with pytest.raises(FilesError, match="_lowmark/state does not say how state was held"):
        world.attached().start()


def test_what_a_retired_query_holds_is_let_go_of_on_request(world: World) -> None:
    world.batch(*range(1, 20), next_ms=T0_MS)
    world.tell()
    world.stands_at(1)
    at = ("counts", "--pipeline", world.name, "--target", world.running.target)
    done = lowmark("nodes", "retire", *at, "--release-holds", "--yes")
    assert done.returncode == 0, done.stderr
    world.stands_at(100_000)


def test_the_command_that_follows_takes_the_same(world: World) -> None:
    world.batch(*range(1, 20), next_ms=T0_MS)
    follow = (
        "query", "attach", "--target", world.running.target, "--pipeline", world.name, "--node-id", "counts",
        "--checkpoint", str(world.logs.checkpoint), "--sink", str(world.logs.sink), "--reads", "count",
        "--creates", "report", "--once", "--set",
    )  # fmt: skip
    refused = lowmark(*follow, "state=an hour")
    assert refused.returncode == 2 and "delay=5s,span=1h,ahead=1m" in refused.stderr
    refused = lowmark(*follow, "state=delay=5s,span=10s")
    assert refused.returncode == 1 and "ahead=1m" in refused.stderr
    told = lowmark(*follow, "state=delay=5s,span=10s,ahead=1m")
    assert told.returncode == 0, told.stderr
    assert world.held() == {f"state:1:{out_ms(T0_MS)}": 1}


def test_an_earlier_run_in_the_session_has_ended_when_it_is_looked_what_is_in_the_sink(
    world: World,
) -> None:
    """Spark ends it when the query is started again. What it brings into the sink until then is found there, and not
    evaluated again; had it been looked before, nobody would know that its rows are in the state."""
    world.batch(1, next_ms=T0_MS)
    ended: list[str] = []

    def stop() -> None:
        ended.append(QUERY)
        world.batch(2, next_ms=T0_MS, written=1)
        (world.logs.checkpoint / "commits/1").unlink()

    other = SimpleNamespace(id="other", name=None, stop=lambda: ended.append("other"))
    active = [other, SimpleNamespace(id=QUERY, name=None, stop=stop)]
    session: Any = SimpleNamespace(streams=SimpleNamespace(active=active))
    plan = StatePlan.given(STATE)
    planned = PlannedQuery(
        session, (), "parquet", str(world.logs.sink), None, str(world.logs.checkpoint), False, None,
        state=plan,
    )  # fmt: skip
    starting = StartingQuery(world.running.target, world.name, "again", planned, False, STORES)
    starting.join()
    assert ended == [QUERY]
    assert starting.planned_before == 1
    starting.node.close()
