"""A store that an older version has written opens, holds what was in it, and goes on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tracker
from tests.cluster.tracker import Tracker
from tests.store import writing
from tests.store.writing import BATCH, FLIGHTS, PARSE, READ, STAGED, TRAINS, UNIT, reached
from tests.waits import HANG_S
from tracker.client import Admin, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Batch, Cells, Heartbeat, PipelineSpec, RefusalCode, TickContent
from tracker.store.format import FORMAT

OLDER = Path(__file__).parent / "older"
"""By the commit whose code wrote it with `python -m tests.store.writing`."""


@pytest.fixture(params=["today", *sorted(path.name for path in OLDER.iterdir())])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedTracker]:
    store = tmp_path / "store"
    if request.param == "today":
        store.mkdir()
        writing.write(store)
    else:
        shutil.copytree(OLDER / request.param, store)
    with tracker.embedded(writing.SHARDS, store=f"sqlite:{store}", block_slots=2) as running:
        yield running


def test_it_holds_what_was_written(opened: EmbeddedTracker) -> None:
    flights, trains = opened.admin().pipeline("flights"), opened.admin().pipeline("trains")
    assert (flights.spec, trains.spec) == (FLIGHTS, TRAINS)
    reached(opened.addresses, FLIGHTS, (22, 22))
    reached(opened.addresses, TRAINS, (50,))
    assert {(f.node_id, f.front) for f in flights.state.fronts} == {
        ("airport", "EWR"),
        ("harbour", "JFK"),
    }
    assert trains.state.generation == 1
    for address in opened.addresses:
        with Admin(address) as admin:
            state = admin.pipeline("flights").state
            assert (state.late_items, state.written_off_items) == (1, 1)
    query = opened.node("flights", "spark")
    assert query.resolve_units("read", [UNIT.name]) == {UNIT.name: UNIT.slot}
    (staged,) = query.list_contributions(STAGED.query, STAGED.batch)
    assert staged.key == STAGED.key


def test_its_format_is_raised_and_the_process_says_so(tmp_path: Path) -> None:
    shutil.copytree(OLDER / "0532b62", tmp_path / "store")
    with Tracker(tmp_path, writing.SHARDS, options=("--block-slots", "2")) as running:
        reached(running.addresses, FLIGHTS, (22, 22))
        running.register(
            PipelineSpec("ships", ("sail",), open=True)
        )  # which both shards write down
        events = [event for shard in running.shards for event in shard.events()]
    said = [event for event in events if event["event"] == "store_of_an_older_format"]
    assert sorted((s["shard"], s["format"], s["raised_to"]) for s in said) == [
        (shard, 2, FORMAT) for shard in range(writing.SHARDS)
    ]
    for shard in range(writing.SHARDS):
        with closing(sqlite3.connect(tmp_path / "store" / f"shard-{shard}.db")) as file:
            assert file.execute("PRAGMA user_version").fetchone() == (FORMAT,)


def test_its_nodes_come_back_and_go_on_until_all_is_complete(opened: EmbeddedTracker) -> None:
    query = opened.node("flights", "spark")
    assert query.join(HANG_S).last_batches == (BATCH,)
    with pytest.raises(RefusedError) as refused:
        rolled_back = Batch(BATCH.scope, BATCH.id, b"other")
        query.commit(TickContent(batch=rolled_back)).result(HANG_S)
    assert refused.value.refusal.code is RefusalCode.ROLLED_BACK
    rest = [(READ, 22, 4, 1), (READ, 30, 3, 1), (PARSE, 22, 5, 1), (PARSE, 60, 10, 1)]
    last = TickContent(consumed=Cells.of(rest), units_consumed=(UNIT,))
    query.commit(last).result(HANG_S)
    for node_id, front, promise in (("airport", "EWR", 70), ("harbour", "JFK", 80)):
        node = opened.node("flights", node_id, "front")
        grants = {grant.front: grant for grant in node.join(HANG_S).fronts}
        assert grants[front].granted
        node.commit(TickContent(heartbeats=(Heartbeat(front, promise),))).result(HANG_S)
    reached(opened.addresses, FLIGHTS, (70, 72))
