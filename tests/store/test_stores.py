"""A store of any format opens, holds what was in it, and goes on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from structlog.stdlib import BoundLogger
from structlog.testing import capture_logs

import tracker
from tests.store import writing
from tests.store.writing import BATCH, FLIGHTS, PARSE, READ, STAGED, TRAINS, UNIT, reached
from tests.waits import HANG_S
from tracker.client import Admin, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Batch, Cells, Heartbeat, PipelineSpec, RefusalCode, TickContent
from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL
from tracker.service import engine
from tracker.store import StoreError, open_store
from tracker.store import format as store_format

STORES = Path(__file__).parent / "stores"
"""By their format, as `python -m tests.store.writing` wrote them with the code of that time."""


@pytest.fixture(params=["today", *sorted(path.name for path in STORES.iterdir())])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedTracker]:
    store = tmp_path / "store"
    if request.param == "today":
        store.mkdir()
        writing.write(store)
    else:
        shutil.copytree(STORES / request.param, store)
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


def numbers(store: Path) -> set[int]:
    """The formats that the stores of shards carry."""
    found = set()
    for shard in range(writing.SHARDS):
        with closing(sqlite3.connect(store / f"shard-{shard}.db")) as file:
            found.add(file.execute("PRAGMA user_version").fetchone()[0])
    return found


def test_a_store_of_the_release_before_stays_one_until_the_upgrade_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(STORES / str(OLDEST_LEVEL), store)
    monkeypatch.setattr(engine, "log", structlog.wrap_logger(None, wrapper_class=BoundLogger))
    with (
        capture_logs() as events,
        tracker.embedded(writing.SHARDS, store=f"sqlite:{store}", block_slots=2) as running,
    ):
        reached(running.addresses, FLIGHTS, (22, 22))
        running.register(PipelineSpec("ships", ("sail",), open=True))
        assert numbers(store) == {OLDEST_LEVEL}, "both have written, and any release reads it"
        said = [event for event in events if event["event"] == "upgrade_not_finished"]
        assert [(each["level"], each["speaks"]) for each in said] == [
            (OLDEST_LEVEL, NEWEST_LEVEL)
        ] * writing.SHARDS
        with running.admin() as admin:
            assert admin.finish_upgrade().table.level == NEWEST_LEVEL
            assert admin.finish_upgrade().table.level == NEWEST_LEVEL, "it is there already"
        assert numbers(store) == {NEWEST_LEVEL}
    monkeypatch.setattr(store_format, "NEWEST_FORMAT", OLDEST_LEVEL)  # the release before
    with pytest.raises(StoreError, match=f"format {NEWEST_LEVEL}, this version reads formats"):
        open_store(f"sqlite:{store}", 0)


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
