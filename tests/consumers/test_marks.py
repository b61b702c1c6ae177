"""Marks of periods in tables: once for each, whoever else marks or writes, and never somebody else's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.consumers.tables import ROWS, DeltaPlace, IcebergPlace, keys, synced_files
from tests.files.s3 import s3_bucket
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.folders import PartitionMark
from tracker.consumers.periods.iceberg import IcebergMark, default_tag
from tracker.consumers.periods.names import PeriodNames
from tracker.consumers.periods.once import Action, ConflictError, do_once
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError

SECONDS = 10**9
HOURS = Cut(slots=3_600, slack_ns=SECONDS)
MIDNIGHT = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
AT = datetime(2026, 3, 2, 1, 0, 1, tzinfo=UTC)
WRITERS = 4


def hour(number: int, pipeline: str = "orders", periods: Cut = HOURS) -> Period:
    return periods.period(pipeline, "load", MIDNIGHT + number * 3_600)


Place = DeltaPlace | IcebergPlace


@pytest.fixture
def delta(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path, rows=True)


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path, rows=True)


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    """A table with rows."""
    found: Place = request.getfixturevalue(request.param)
    return found


def test_a_period_is_marked_once_however_often_it_is_asked_for(place: Place) -> None:
    first = place.mark(HOURS)
    for number in (0, 0, 1):
        do_once(first, hour(number), AT)
    place.append()
    for number in (1, 2, 2):
        do_once(place.mark(HOURS), hour(number), AT)
    assert keys(place.marks()) == [hour(number).key for number in range(3)]
    assert place.rows() == 4, "a mark is no row, and takes none away"


def test_of_those_who_mark_one_period_at_once_one_does(place: Place) -> None:
    marks, together = [place.mark(HOURS) for _ in range(WRITERS)], threading.Barrier(WRITERS)

    def run(each: Action) -> None:
        together.wait()
        do_once(each, hour(0), AT)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(run, marks))
    assert keys(place.marks()) == [hour(0).key]


def test_a_mark_goes_on_top_of_what_was_looked_at_and_nowhere_else(place: Place) -> None:
    others: list[Callable[[], object]] = [
        lambda: do_once(place.mark(HOURS), hour(0), AT),
        place.append,
    ]
    late = place.mark(HOURS)
    for number, other in enumerate(others):
        assert not late.is_done(hour(number))
        other()
        with pytest.raises(ConflictError):
            late.do(hour(number), AT)
        do_once(late, hour(number), AT)
    assert keys(place.marks()) == [hour(0).key, hour(1).key]


def test_others_may_write_rows_meanwhile(place: Place) -> None:
    started = threading.Event()

    def write() -> None:
        for _ in range(6):
            started.set()
            place.append()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        started.wait()
        for number in range(4):
            do_once(place.mark(HOURS), hour(number), AT)
        writing.result()
    assert keys(place.marks()) == [hour(number).key for number in range(4)]
    assert place.rows() == 2 + 6 * 2


def test_followers_of_other_periods_have_marks_of_their_own(place: Place) -> None:
    do_once(place.mark(HOURS), hour(0), AT)
    days = Cut(slots=86_400, slack_ns=SECONDS)
    day = hour(0, periods=days)
    do_once(place.mark(days), day, AT)
    do_once(place.mark(HOURS), hour(1), AT)
    assert keys(place.marks()) == [hour(0).key, day.key, hour(1).key]


def test_a_place_that_is_not_there_is_refused_at_once(place: Place) -> None:
    with pytest.raises(StateError, match=r"table .*nowhere cannot be marked"):
        place.mark(HOURS, "db.nowhere")


def test_the_last_period_of_a_pipeline_has_no_end(place: Place) -> None:
    last = HOURS.period("orders", "load", MIDNIGHT, FOREVER)
    for _ in range(2):
        do_once(place.mark(HOURS), last, None)
    assert keys(place.marks()) == [last.key] and last.key.endswith("..end")


# --- Delta ----------------------------------------------------------------------------------------


def test_a_delta_mark_is_a_transaction_without_files(delta: DeltaPlace) -> None:
    do_once(delta.mark(HOURS), hour(0), AT)
    commit = delta.commits()[-1]
    assert commit.keys() == {"commitInfo", "txn"}
    assert commit["txn"] == {"appId": "lowmark:orders/load/3600", "version": MIDNIGHT}
    assert delta.marks() == [hour(0).completed(AT)]
    shown = commit["commitInfo"]["operationParameters"]
    assert (shown["lowmark.pipeline"], shown["lowmark.end"]) == (
        "orders",
        "2026-03-02T01:00:00+00:00",
    )


def test_a_mark_on_a_local_disk_is_synced_before_the_position_moves(
    delta: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is found, too: whoever has made it may have died before that."""
    synced = synced_files(monkeypatch)
    for _ in range(2):
        synced.clear()
        do_once(delta.mark(HOURS), hour(0), AT)
        log = Path(delta.location, "_delta_log")
        assert synced >= {str(path) for path in log.glob("*.json")} | {str(log)}
    assert keys(delta.marks()) == [hour(0).key]


def test_a_delta_table_with_later_marks_is_asked_for_the_period_itself(delta: DeltaPlace) -> None:
    for number in (1, 2):
        do_once(delta.mark(HOURS), hour(number), AT)
    do_once(delta.mark(HOURS), hour(1), AT)  # by a follower whose record was lost
    with pytest.raises(StateError, match=f"up to the period from slot {MIDNIGHT + 7_200}"):
        do_once(delta.mark(HOURS), hour(0), AT)
    assert keys(delta.marks()) == [hour(1).key, hour(2).key]


# --- Iceberg --------------------------------------------------------------------------------------


def test_an_iceberg_mark_is_a_snapshot_with_a_tag_that_has_all_of_the_period(
    iceberg: IcebergPlace,
) -> None:
    do_once(iceberg.mark(HOURS), hour(13), AT)
    iceberg.append()
    (found,) = iceberg.marks()
    assert iceberg.tags() == {"lowmark-2026-03-02T13": found["id"]}
    assert (iceberg.rows("lowmark-2026-03-02T13"), iceberg.rows()) == (2, 4)
    assert found["lowmark.end"] == "2026-03-02T14:00:00+00:00"
    assert found["lowmark.complete_at"] == AT.isoformat(timespec="milliseconds")
    table = iceberg.table()
    assert table.snapshot_by_id(found["id"]).summary.operation.value == "append"
    assert "commit.retry.num-retries" not in table.metadata.properties


def test_a_table_without_rows_is_marked_too(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    do_once(place.mark(HOURS, keep_ms=5), hour(0), AT)
    assert keys(place.marks()) == [hour(0).key]
    assert place.table().metadata.refs["lowmark-2026-03-02T00"].max_ref_age_ms == 5


def test_a_tag_of_somebody_else_is_refused(iceberg: IcebergPlace) -> None:
    do_once(iceberg.mark(HOURS), hour(0), AT)
    with pytest.raises(StateError, match=r"mark of period orders/load/.*\(--set tag=TEMPLATE\)"):
        do_once(iceberg.mark(HOURS), hour(0, "others"), AT)
    table = iceberg.table()
    table.manage_snapshots().create_tag(
        table.current_snapshot().parent_snapshot_id, "lowmark-2026-03-02T01"
    ).commit()
    with pytest.raises(StateError, match="made by somebody else"):
        do_once(iceberg.mark(HOURS), hour(1), AT)
    own = iceberg.mark(HOURS, tag="{pipeline}-{start:%Y%m%d%H}")
    do_once(own, hour(0, "others"), AT)
    assert "others-2026030200" in iceberg.tags()


@pytest.mark.parametrize(
    ("slots", "slack_ns", "tag"),
    [
        (86_400, SECONDS, "lowmark-2026-03-02"),
        (3_600, SECONDS, "lowmark-2026-03-02T00"),
        (900, SECONDS, "lowmark-2026-03-02T0000"),
        (90, SECONDS, "lowmark-2026-03-02T000000"),
        (50, SECONDS // 100, "lowmark-2026-03-02T000000.000000"),
        (10, None, f"lowmark-{MIDNIGHT * 100}"),
    ],
)
def test_tags_are_as_short_as_tells_periods_apart(
    slots: int, slack_ns: int | None, tag: str
) -> None:
    periods = Cut(slots, slack_ns=slack_ns)
    slot = MIDNIGHT * SECONDS // slack_ns if slack_ns else MIDNIGHT * 100
    names = PeriodNames(default_tag(periods), periods)
    assert names.of(periods.period("p", None, slot)) == tag


# --- partition folders ----------------------------------------------------------------------------


def test_a_success_file_is_of_its_period_and_stays_as_it_is(tmp_path: Path) -> None:
    mark = PartitionMark(HOURS, f"{tmp_path}/t/dt={{start:%Y-%m-%d}}/hour={{start:%H}}")
    do_once(mark, hour(5), AT)
    marker = tmp_path / "t/dt=2026-03-02/hour=05/_SUCCESS"
    before = marker.read_bytes()
    do_once(mark, hour(5), AT)
    assert marker.read_bytes() == before
    for field in (b'"creationTime": ', b'"modificationTime": ', hour(5).key.encode()):
        assert field in before
    marker.write_bytes(b"")  # another writer's
    do_once(mark, hour(5), AT)
    assert marker.read_bytes() == b""
    with pytest.raises(StateError, match="is the mark of period orders"):
        for pipeline in ("orders", "others"):
            do_once(mark, hour(6, pipeline), AT)


@pytest.mark.parametrize(
    "layout",
    ["all", "dt={start:%Y-%m-%d}", "hour={start:%H}", "{start:%m-%d-%H}", "{segment}", ""],
)
def test_a_folder_of_two_periods_is_refused(tmp_path: Path, layout: str) -> None:
    """It would say of the second that it is complete when the first one is."""
    with pytest.raises(ValueError, match="each needs its own"):
        PartitionMark(HOURS, f"{tmp_path}/{layout}")


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("{hour}", "names nothing"),
        ("{start:%Y", "names nothing"),
        ("{start.nothing}", "names nothing"),
        ("{slot}/../../{slot}", "leads out of the table"),
    ],
)
def test_what_names_no_folder_of_the_table_is_refused(
    tmp_path: Path, layout: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        do_once(PartitionMark(HOURS, f"{tmp_path}/{layout}"), hour(0), AT)


def test_numbers_are_no_moments() -> None:
    numbers = Cut(slots=10)
    with pytest.raises(ValueError, match="moments only where slots are times"):
        PeriodNames("{start:%Y}", numbers)
    assert (
        PeriodNames("v{from_slot}-{to_slot}", numbers).of(numbers.period("p", None, 20)) == "v20-30"
    )


def test_a_location_without_a_folder_below_it_is_refused() -> None:
    for template in ("{slot}", "/{slot}", "/{start:%Y-%m-%dT%H}"):
        with pytest.raises(ValueError, match="no location with a partition folder"):
            PartitionMark(HOURS, template)


# --- what is installed ----------------------------------------------------------------------------


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, mark in (("deltalake", DeltaMark), ("pyiceberg.catalog", IcebergMark)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(StateError, match=rf"needs {module}.*pip install 'lowmark\[tables\]'"):
            mark(HOURS, "db.orders")


# --- in a store -----------------------------------------------------------------------------------


def test_tables_in_a_bucket_are_marked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with s3_bucket() as bucket, ThreadPoolExecutor(WRITERS) as pool:
        properties: dict[str, Any] = {
            "warehouse": bucket,
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        }
        orders = IcebergPlace(tmp_path, **properties)
        orders.append()
        do_once(orders.mark(HOURS), hour(0), AT)
        write_deltalake(f"{bucket}/delta", ROWS)
        marks = [DeltaMark(HOURS, f"{bucket}/delta") for _ in range(WRITERS)]
        for number in range(2):
            list(pool.map(lambda mark, number=number: do_once(mark, hour(number), AT), marks))
        assert keys(orders.marks()) == [hour(0).key] and orders.rows("lowmark-2026-03-02T00") == 2
        table = DeltaTable(f"{bucket}/delta")
        assert table.version() == 2, "two periods, a commit each"
        assert table.transaction_version("lowmark:orders/load/3600") == hour(1).from_slot
