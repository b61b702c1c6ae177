"""Fronts with a real tracker on loopback: what they publish holds min time until it is consumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import tracker
from fronts.files import FileFront
from fronts.front import Front, FrontOptions, OpenBatch
from tests.cluster.children import now_slot
from tests.fronts.support import consume, consume_cells, file_front, new_reader, reached, start_all
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.client import FencedError, LowmarkError, NodeClient
from tracker.core.insight.explain import NodeExplanation
from tracker.core.model import (
    Cells,
    Edge,
    FrontPolicy,
    PipelineSpec,
    SilentFront,
    TickContent,
)
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import DEFAULT_SLACK_NS, FOREVER, slot_of
from tracker.core.model.units import file_name, unit_name
from tracker.errors import TrackingError

NAMES = ("a", "b", "c")
SPEC = PipelineSpec("p", ("in",), fronts=NAMES, start_slot=now_slot())
ROWS = [{"n": 1}, {"n": 2}]


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=3) as embedded:
        embedded.register(SPEC)
        yield embedded


@pytest.fixture
def reader(embedded: EmbeddedTracker) -> NodeClient:
    return new_reader(embedded)


def test_min_time_waits_for_every_file_and_the_pipeline_completes(
    embedded: EmbeddedTracker, reader: NodeClient, tmp_path: Path
) -> None:
    fronts = [file_front(embedded, tmp_path, name).start() for name in NAMES]
    files = [front.write(ROWS) for _ in range(3) for front in fronts]
    now = now_slot()
    subscriber = embedded.subscriber("p")
    oldest, *others = sorted((f for f in files if f is not None), key=lambda f: f.slot)
    for front in fronts:
        assert front.wait_durable(HANG_S)
    assert reader.resolve_units("in", [unit_name(str(f.path)) for f in others], 1000) == {
        unit_name(str(f.path)): f.slot for f in others
    }, "open units can be named"
    for file in others:
        consume(reader, file)
    # All fronts promise on and on; the one file that is left holds.
    assert subscriber.wait_until(oldest.slot, timeout_s=HANG_S)
    assert subscriber.min_time() == oldest.slot
    consume(reader, oldest)
    assert subscriber.wait_until(now, timeout_s=HANG_S)
    for front in fronts:
        front.leave()
    assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_a_front_that_was_killed_holds_min_time_until_it_is_started_again(
    embedded: EmbeddedTracker, reader: NodeClient, tmp_path: Path
) -> None:
    fronts = {name: file_front(embedded, tmp_path, name).start() for name in NAMES}
    file = fronts["b"].write(ROWS)
    assert file is not None and fronts["b"].wait_durable(HANG_S)
    consume(reader, file)
    fronts["b"].front._node.close()
    fronts["b"].close()
    held = now_slot() + 1
    subscriber = embedded.subscriber("p")
    assert not subscriber.wait_until(held, timeout_s=0.2)  # expires: nobody promises
    fronts["b"] = file_front(embedded, tmp_path, "b").start()
    assert subscriber.wait_until(held, timeout_s=HANG_S)
    second = fronts["b"].write(ROWS)
    assert second is not None and second.batch == 1
    for front in fronts.values():
        front.close()


def test_a_front_that_has_left_goes_on_from_there_when_it_is_started_again(
    embedded: EmbeddedTracker, reader: NodeClient, tmp_path: Path
) -> None:
    """The tracker has forgotten it, and its files are still in the directory."""
    others = [file_front(embedded, tmp_path, name).start() for name in NAMES[1:]]
    for number in range(3):
        front = file_front(embedded, tmp_path, "a").start()
        file = front.write(ROWS)
        assert file is not None and file.batch == number
        assert front.wait_durable(HANG_S)
        consume(reader, file)
        front.leave()
    for other in others:
        other.leave()
    # Each file was created once and consumed once: created again, it would be open for ever.
    assert embedded.subscriber("p").wait_until(FOREVER, timeout_s=HANG_S)


def test_files_published_while_the_home_was_away_are_committed_by_the_next_run(
    embedded: EmbeddedTracker, reader: NodeClient, tmp_path: Path
) -> None:
    fronts = {name: file_front(embedded, tmp_path, name).start() for name in NAMES}
    front = fronts["a"]
    for shard in range(len(embedded.addresses)):
        embedded.kill_shard(shard)
    files = [front.write(ROWS) for _ in range(3)]
    assert not front.wait_durable(0.05)  # expires: nobody answers
    front.front._node.close()
    front.close()
    for shard in range(len(embedded.addresses)):
        embedded.start_shard(shard)
    again = file_front(embedded, tmp_path, "a").start()
    assert again.wait_durable(HANG_S) and again.front.last_durable == 2
    subscriber = embedded.subscriber("p")
    now = now_slot()
    for file in files:
        assert file is not None
        consume(reader, file)
    assert subscriber.wait_until(now, timeout_s=HANG_S)
    for each in (again, fronts["b"], fronts["c"]):
        each.leave()
    assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_a_second_incarnation_ends_the_first(embedded: EmbeddedTracker, tmp_path: Path) -> None:
    """In another directory, as on another host, where no lock keeps it out."""
    first = file_front(embedded, tmp_path / "one", "a").start()
    second = file_front(embedded, tmp_path / "two", "a").start()
    with pytest.raises(TrackingError) as refused:
        while True:
            first.write(ROWS)
            first.wait_durable(HANG_S)
    assert isinstance(refused.value.__cause__, FencedError)
    assert second.write(ROWS) is not None and second.wait_durable(HANG_S)
    first.close()
    second.close()


def test_a_late_front_labels_from_what_was_announced(
    embedded: EmbeddedTracker, tmp_path: Path
) -> None:
    """Its clock is an hour behind: nothing that it labels is below what was said."""
    subscriber = embedded.subscriber("p")
    fronts = [file_front(embedded, tmp_path, name).start() for name in NAMES]
    assert subscriber.wait_until(now_slot(), timeout_s=HANG_S)
    announced = subscriber.min_time()
    late = file_front(embedded, tmp_path, "late", clock=lambda: time.time_ns() - 3600 * 10**9)
    file = late.start().write(ROWS)
    assert file is not None and file.slot >= announced
    assert late.wait_durable(HANG_S)
    for front in (*fronts, late):
        front.close()


@pytest.mark.parametrize("beyond", ["its own promise", "the promise of another front"])
def test_items_beyond_the_horizon_wait_until_min_time_comes_nearer(beyond: str) -> None:
    now_ns = 10**9
    spec = PipelineSpec("p", ("in",), fronts=("a", "b"), slack_ns=1, horizon_slots=1000)
    with tracker.embedded() as embedded:
        embedded.register(spec)

        def front(name: str, clock_ns: list[int]) -> Front:
            return Front(
                embedded.target,
                "p",
                name,
                "in",
                options=FrontOptions(clock=lambda: clock_ns[0], heartbeat_interval_ms=2),
            )

        ahead, behind = [0], [0]
        fronts = [front("a", ahead), front("b", behind)]
        start_all(*fronts)
        ahead[0] = now_ns
        if beyond == "its own promise":
            behind[0] = now_ns

        def send(batch: OpenBatch) -> None:
            assert batch.slots.tolist() == [now_ns]

        fronts[0].publish_now(1, send)
        if beyond != "its own promise":
            assert not fronts[0].wait_durable(0.2)  # expires: it is ahead
            behind[0] = now_ns
        assert fronts[0].wait_durable(HANG_S)
        for each in fronts:
            each.close()


class SilentNode(NodeClient):
    """A client of the time when nobody said that a node lives."""

    @property
    def _keep_alive_s(self) -> float:
        return 0.0

    @_keep_alive_s.setter
    def _keep_alive_s(self, _: float) -> None:
        pass


def test_a_silent_front_is_evicted_where_the_pipeline_says_so_and_told_when_it_goes_on() -> None:
    start = now_slot()
    spec = PipelineSpec(
        "p", ("in",), fronts=("a", "b"), start_slot=start,
        silent_front=SilentFront.EVICT, evict_after_ms=2_000,
    )  # fmt: skip
    with tracker.embedded() as embedded:
        embedded.register(spec)
        lively = Front(
            embedded.target, "p", "a", "in", options=FrontOptions(heartbeat_interval_ms=10)
        )
        silent = Front(
            embedded.target,
            "p",
            "b",
            "in",
            options=FrontOptions(
                heartbeat_interval_ms=3_600_000,
                node=SilentNode(embedded.target, "p", "b", kind="front"),
            ),
        )
        start_all(lively, silent)
        # Only without the silent one can min time come as far as this.
        later = now_slot() + 1
        assert embedded.subscriber("p").wait_until(later, timeout_s=HANG_S)
        with pytest.raises(TrackingError, match="fenced"):
            silent.publish_now(1, lambda batch: None)
            silent.wait_durable(HANG_S)
        again = Front(
            embedded.target, "p", "b", "in", options=FrontOptions(heartbeat_interval_ms=10)
        ).start()
        assert again.label().slot >= later
        for front in (lively, silent, again):
            front.close()


def test_a_front_that_publishes_for_long_lives(embedded: EmbeddedTracker) -> None:
    """Its `send` takes longer than a front may be silent: as long as one takes to be evicted that says
    nothing. What it published is in time, and it goes on."""
    spec = PipelineSpec(
        "evicting", ("in",), fronts=("a", "b"), silent_front=SilentFront.EVICT, evict_after_ms=1_000,
        start_slot=now_slot(),
    )  # fmt: skip
    embedded.register(spec)
    with ThreadPoolExecutor() as pool:
        fronts = [
            Front(embedded.target, "evicting", name, "in", options=FrontOptions(heartbeat_interval_ms=3_600_000, node=kind(embedded.target, "evicting", name, kind="front")))
            for name, kind in (("a", NodeClient), ("b", SilentNode))
        ]  # fmt: skip
        start_all(*fronts)
        busy, silent = fronts
        evicted = threading.Event()

        def send(batch: OpenBatch) -> None:
            assert evicted.wait(HANG_S)

        publishing = pool.submit(busy.publish_now, 1, send)
        node = silent._node
        assert isinstance(node, NodeClient)
        with node._changed:
            assert node._changed.wait_for(lambda: node.failure is not None, HANG_S)
        evicted.set()
        publishing.result(HANG_S)
        assert busy.wait_durable(HANG_S)
        with embedded.admin() as admin:
            assert admin.pipeline("evicting").state.late_items == 0
        for front in fronts:
            front.close()


def test_what_an_evicted_front_had_published_is_late_and_said_so(tmp_path: Path) -> None:
    """A file that was published and never committed: its front was cut off, and evicted."""
    clock_ns = [10**12]
    policy = FrontPolicy("b", SilentFront.EVICT, 6_000)
    spec = PipelineSpec("p", ("in",), fronts=("a", "b"), start_slot=0, front_policies=(policy,))

    def front(name: str, **more: Any) -> FileFront:
        return FileFront(
            running.target,
            "p",
            name,
            "in",
            tmp_path,
            format="json",
            options=FrontOptions(clock=lambda: clock_ns[0], heartbeat_interval_ms=10, **more),
        )

    with tracker.embedded() as running:
        running.register(spec)
        steady, cut_off = front("a"), front("b")
        start_all(steady, cut_off)
        cut_off.close()
        slot = slot_of(clock_ns[0], DEFAULT_SLACK_NS)
        late = tmp_path / file_name(slot, "b", 0, "json")
        late.write_text('{"row": 1}\n')
        clock_ns[0] *= 2
        beyond = slot_of(clock_ns[0], DEFAULT_SLACK_NS)
        assert running.subscriber("p").wait_until(beyond, timeout_s=HANG_S), (
            "b is evicted, a is not"
        )

        refused = front("b").start()
        with pytest.raises(TrackingError, match="below_min_time"):
            refused.wait_durable(HANG_S)
        refused.close()
        again = front("b", pass_over_late=True).start()
        assert again.front.late_batches == (0,)
        file = again.write([{"row": 2}])
        assert file is not None and (file.batch, file.slot) == (1, beyond)
        assert again.wait_durable(HANG_S)

        # Whoever reads both consumes one of them late; min time waits for the other alone.
        reader = new_reader(running)
        for path, at in ((late, slot), (file.path, beyond)):
            consume_cells(reader, (at, unit_value(unit_name(str(path))), 1))
        steady.leave()
        again.leave()
        assert running.subscriber("p").wait_until(FOREVER, timeout_s=HANG_S)
        with running.admin() as admin:
            assert admin.pipeline("p").state.late_items == 1


def test_of_a_batch_that_is_late_in_part_the_rest_is_waited_for() -> None:
    """Rows in slots of their own, published and not committed when the front was evicted: some lie below
    where it may label now, and others above."""
    clock_ns = [10**12]
    spec = PipelineSpec("p", ("in",), fronts=("a", "b"), start_slot=0)
    with tracker.embedded() as running:
        running.register(spec)

        def front(name: str, **more: Any) -> Front:
            return Front(
                running.target,
                "p",
                name,
                "in",
                options=FrontOptions(clock=lambda: clock_ns[0], heartbeat_interval_ms=10, **more),
            )

        steady, cut_off = front("a"), front("b")
        start_all(steady, cut_off)
        cut_off.close()
        with running.admin() as admin:
            admin.retire("p", "b")
        clock_ns[0] *= 2
        granted = slot_of(clock_ns[0], DEFAULT_SLACK_NS)
        assert running.subscriber("p").wait_until(granted, timeout_s=HANG_S)

        values = [11, 22, 33]
        slots = [granted - 5, granted + 3, granted + 4]
        again = front("b", pass_over_late=True)
        with pytest.raises(LowmarkError, match="no segment 'out'"):
            again.batch_of(0, slots, values, segment="out")
        again.start([again.batch_of(0, slots, values, segment="in")])
        assert again.late_batches == (0,)
        assert again.wait_durable(HANG_S) and again.last_durable == 0
        for each in (steady, again):
            each.leave()
        reached(running, slots[1])  # what is in time holds min time
        consume_cells(new_reader(running), *zip(slots, values, (1, 1, 1), strict=True))
        assert running.subscriber("p").wait_until(FOREVER, timeout_s=HANG_S)
        with running.admin() as admin:
            assert admin.pipeline("p").state.late_items == 1


def test_a_front_that_meets_a_full_table_goes_on_as_it_empties() -> None:
    """A worker with children empties it, by ticks that are never refused for space; explain names who is
    refused; and an operator may raise the limit meanwhile."""
    spec = PipelineSpec("q", ("in", "out"), (Edge("in", "out"),), ("f",), max_open_cells=3)
    clock = count(10)
    with tracker.embedded(shards=3) as embedded:
        embedded.register(spec)
        front = Front(
            embedded.target,
            "q",
            "f",
            "in",
            options=FrontOptions(
                clock=lambda: next(clock) * spec.slack_ns, heartbeat_interval_ms=2
            ),
        )
        published: list[OpenBatch] = []
        with front:
            front.publish_now(1, published.append)
            assert front.wait_durable(HANG_S), "an empty table would take all at once"
            for _ in range(39):
                front.publish_now(1, published.append)
            front_node = until_refused(embedded)
            assert "max_open_cells of 3" in front_node.refused
            worker = embedded.node("q", "worker")
            worker.join(HANG_S)
            for place, batch in enumerate(published):
                for slot, value in zip(batch.slots.tolist(), batch.values.tolist(), strict=True):
                    parent, child = (0, slot, value, 1), (1, slot, value ^ 1, 1)
                    step = TickContent(consumed=Cells.of([parent]), created=Cells.of([child]))
                    worker.commit(step).result(HANG_S)
                    if place != 20:  # one child holds min time for a while
                        done = TickContent(consumed=Cells.of([child]))
                        worker.commit(done).result(HANG_S)
                    else:
                        held = child
            raised = embedded.admin().apply(replace(spec, max_open_cells=4))
            assert raised.changes == {"max_open_cells": (3, 4)}
            assert front.wait_durable(HANG_S)
            subscriber = embedded.subscriber("q")
            assert subscriber.wait_until(held[1], timeout_s=HANG_S)
            worker.commit(TickContent(consumed=Cells.of([held]))).result(HANG_S)
            front.leave()
            assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def until_refused(embedded: EmbeddedTracker) -> NodeExplanation:
    """Waits until some node is refused: nobody is told when that happens but the node."""

    def refused() -> list[NodeExplanation]:
        parts = embedded.admin().explain("q").parts
        return [node for part in parts for node in part.nodes if node.refused]

    return until(refused, "nobody was refused")[0]
