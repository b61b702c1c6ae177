"""Following the flows of a declarative pipeline; the logs are written as Spark writes them.

`tests/spark/test_declarative.py` runs a real one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import tracker
from local_tracker.spark.session import declarative
from local_tracker.spark.session.declarative import FollowedPipeline, check_edges
from local_tracker.spark.session.flows import (
    Tables,
    derived_pipeline,
    find_flows,
    pipeline_text,
    what_flows_read,
)
from tests.waits import HANG_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.errors import TrackingError

CATALOG = "_checkpoints/spark_catalog/default"


class Table:
    """A streaming table and the flow of its name, one file a batch. Its versions are those of the flow."""

    def __init__(self, top: Path, name: str, catalog: str = CATALOG, flow: str = "") -> None:
        self.name, self._flow = name, top / "storage" / catalog / name / (flow or name)
        self.directory = top / "warehouse" / name
        self.version, self.batches = -1, 0
        self.refresh()

    def refresh(self) -> None:
        """The next version: the table is emptied, and nothing has been read."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.begin_version()
        for folder in ("offsets", "commits", "sources/0"):
            (self.checkpoint / folder).mkdir(parents=True)
        (self.directory / "_spark_metadata").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": f"{self.name}-{self.version}"}))

    def begin_version(self) -> None:
        self.version, self.batches = self.version + 1, 0
        self.checkpoint.mkdir(parents=True)

    @property
    def checkpoint(self) -> Path:
        return self._flow / str(self.version)

    def batch(self, source: str, *, commit: bool = True) -> str:
        """Reads a file and writes one, whose name it returns."""
        number = self.batches
        written = f"file://{self.directory}/part-{self.version}-{number}.parquet"
        self.write("sources/0", f"v1\n{json.dumps({'path': source, 'batchId': number})}")
        header = json.dumps({"batchTimestampMs": 1_700_000_000_000 + number})
        self.write("offsets", f"v1\n{header}\n{json.dumps({'logOffset': number})}")
        self.write(
            self.directory / "_spark_metadata", f"v1\n{json.dumps({'path': written, 'size': 1})}"
        )
        if commit:
            self.write("commits", 'v1\n{"nextBatchWatermarkMs":0}')
            self.batches += 1
        return written

    def write(self, folder: str | Path, text: str) -> None:
        hidden = self.checkpoint / folder / f".{self.batches}"
        hidden.write_text(text)
        os.replace(hidden, hidden.with_name(str(self.batches)))


def source_file(slot: int) -> str:
    return f"file:///data/in/s{slot}-front-{slot:08d}.parquet"


class Copies:
    """A pipeline of two tables, `parse` of files at slots 1 to 4 and `enrich` of that, its tracker, and who
    follows it."""

    def __init__(self, top: Path, running: EmbeddedTracker) -> None:
        self.top, self.running = top, running
        self.parse, self.enrich = Table(top, "parse"), Table(top, "enrich")
        self.followed: FollowedPipeline | None = None

    @property
    def tables(self) -> Tables:
        return Tables(str(self.top / "warehouse"))

    @property
    def storage(self) -> str:
        return str(self.top / "storage")

    def follow(self, *, from_now: bool = False) -> FollowedPipeline:
        spec = self.running.admin().pipeline("p").spec
        self.followed = FollowedPipeline(self.running.target, spec, self.storage, self.tables)
        if from_now:
            self.followed.begin_now()
        self.followed.look()
        return self.followed

    def told(self) -> None:
        """All that is over is durable."""
        followed = self.followed or self.follow()

        def is_told() -> bool:
            followed.look()
            return followed.wait_durable(0.2)  # expires: it is held back

        until(is_told)

    def stop(self) -> None:
        if self.followed is not None:
            self.followed.close(HANG_S)
            self.followed = None

    def open_items(self) -> list[int]:
        return [s.open_items for s in self.running.admin().pipeline("p").state.segments]

    def await_open(self, *expected: int) -> None:
        """In `parse` and `enrich`; a durable tick is applied a moment later."""
        until(lambda: self.open_items() == list(expected), lambda: f"{self.open_items()}")

    def await_min_time(self, segment: str, slot: int) -> None:
        with self.running.subscriber("p") as subscriber:
            assert subscriber.wait_until(slot, segment, timeout_s=HANG_S)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with tracker.embedded() as embedded:
        embedded.register(
            PipelineSpec(
                "p", ("parse", "enrich"), (Edge("parse", "enrich"),), front_count=1, open=True
            )
        )
        front = embedded.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        cells = Cells.of((0, slot, unit_value(source_file(slot)), 1) for slot in range(1, 5))
        front.commit(TickContent(created=cells)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(HANG_S)
        made = Copies(tmp_path, embedded)
        yield made
        made.stop()


# --- what there is --------------------------------------------------------------------------------


def test_a_pipeline_is_derived_from_what_flows_read_and_write(tmp_path: Path) -> None:
    parse, enrich = Table(tmp_path, "parse"), Table(tmp_path, "enrich")
    audit = Table(tmp_path, "audit", "_checkpoints/lake/raw", flow="late")
    enrich.batch(parse.batch("file:///data/in/day=1/a.parquet"))
    audit.batch("file:///data/other/b.parquet")
    (tmp_path / "storage/_checkpoints/.hidden.crc").write_text("")
    reads = what_flows_read(
        find_flows(str(tmp_path / "storage")), Tables(str(tmp_path / "warehouse"))
    )
    spec = derived_pipeline("copies", reads, ["/data/other"], 7)
    assert spec.segments == ("lake.raw.audit.late", "enrich", "parse")
    assert spec.edges == (Edge("parse", "enrich"),)
    assert (spec.front_count, spec.open, spec.start_slot) == (1, True, 7)
    text = pipeline_text(spec, reads, ["/data/other"])
    assert load_pipeline(text) == spec
    assert text.endswith("# a front of segment parse labels what comes to /data/in\n")


def test_tables_elsewhere_are_named(tmp_path: Path) -> None:
    Table(tmp_path, "parse")
    (flow,) = find_flows(str(tmp_path / "storage"))
    for name in ("parse", "default.parse", "spark_catalog.default.parse"):
        assert Tables("/warehouse", {name: "/else"}).directory(flow) == "/else"
    assert Tables("/warehouse", {"other.parse": "/else"}).directory(flow) == "/warehouse/parse"


def test_tables_of_other_databases_have_a_folder_of_it(tmp_path: Path) -> None:
    Table(tmp_path, "parse", "_checkpoints/spark_catalog/raw")
    (flow,) = find_flows(str(tmp_path / "storage"))
    assert Tables("/warehouse").directory(flow) == "/warehouse/raw.db/parse"


def test_what_cannot_be_derived_is_refused(tmp_path: Path) -> None:
    storage, tables = str(tmp_path / "storage"), Tables(str(tmp_path / "warehouse"))
    parse = Table(tmp_path, "parse")
    with pytest.raises(TrackingError, match="flow 'parse' has read nothing yet"):
        derived_pipeline("p", what_flows_read(find_flows(storage), tables), [], 0)
    parse.batch(source_file(1))
    offsets = parse.checkpoint / "offsets/0"
    offsets.write_text(offsets.read_text().replace('"logOffset"', '"0"'))
    reads = what_flows_read(find_flows(storage), tables)
    with pytest.raises(TrackingError, match=r"reads source 0.*--set untracked=parse=0"):
        derived_pipeline("p", reads, [], 0)
    assert derived_pipeline("p", reads, ["parse=0"], 0).front_count == 0
    assert derived_pipeline("p", reads, ["/data/day=1", "parse=0"], 0).front_count == 0
    Table(tmp_path, "parse", flow="more")
    with pytest.raises(TrackingError, match="'more' and 'parse' write one table of files"):
        what_flows_read(find_flows(storage), tables)


def test_an_edge_that_the_registered_pipeline_lacks_is_named(copies: Copies) -> None:
    copies.parse.batch(copies.enrich.batch(source_file(1)))
    reads = what_flows_read(find_flows(copies.storage), copies.tables)
    with pytest.raises(TrackingError, match="'parse' reads the table of flow 'enrich', but"):
        check_edges(copies.running.admin().pipeline("p").spec, reads)


# --- following ------------------------------------------------------------------------------------


def run_both(copies: Copies, *slots: int) -> None:
    for slot in slots:
        copies.enrich.batch(copies.parse.batch(source_file(slot)))


def test_all_flows_are_followed_and_new_ones_found(copies: Copies) -> None:
    shutil.rmtree(copies.top / "storage")
    copies.follow()
    copies.parse = Table(copies.top, "parse")
    written = [copies.parse.batch(source_file(slot)) for slot in (1, 2)]
    copies.told()
    copies.await_open(2, 2)
    copies.enrich = Table(copies.top, "enrich")
    copies.enrich.batch(written[0])
    copies.told()
    copies.await_open(2, 1)
    copies.await_min_time("enrich", 2)


def test_a_second_flow_of_a_table_is_refused_when_it_comes(copies: Copies) -> None:
    """Both would number their batches in one log."""
    run_both(copies, 1)
    copies.told()
    Table(copies.top, "parse", flow="more")
    assert copies.followed is not None
    with pytest.raises(TrackingError, match="'more' and 'parse' write one table of files"):
        copies.followed.look()


def test_a_flow_that_the_pipeline_does_not_have_is_left_alone(copies: Copies) -> None:
    Table(copies.top, "stranger").batch("file:///elsewhere/a")
    run_both(copies, 1)
    copies.told()
    copies.await_open(3, 0)


def test_a_refreshed_table_is_new_to_its_readers_and_what_was_complete_stays_so(
    copies: Copies,
) -> None:
    run_both(copies, 1, 2)
    copies.told()
    copies.await_min_time("enrich", 3)
    copies.parse.refresh()
    again = [copies.parse.batch(source_file(slot)) for slot in (1, 2, 3)]
    copies.told()
    copies.await_open(1, 3)  # slots 1 and 2 were consumed before, and are not taken out again
    state = copies.running.admin().pipeline("p").state
    assert [segment.min_time for segment in state.segments] == [4, 3]
    for name in again:
        copies.enrich.batch(name)
    copies.told()
    copies.await_open(1, 0)
    copies.await_min_time("enrich", 4)


def test_a_reader_that_is_refreshed_reads_its_input_again(copies: Copies) -> None:
    written = [copies.parse.batch(source_file(slot)) for slot in (1, 2)]
    copies.enrich.batch(written[0])
    copies.told()
    copies.await_open(2, 1)
    copies.enrich.refresh()
    for name in written:
        copies.enrich.batch(name)
    copies.told()
    copies.await_open(2, 0)


def test_what_was_not_told_before_a_refresh_is_told_by_the_new_version(copies: Copies) -> None:
    copies.parse.batch(source_file(1))
    copies.told()
    copies.stop()
    copies.parse.batch(source_file(2))  # while nobody follows
    copies.parse.refresh()
    for slot in (1, 2):
        copies.enrich.batch(copies.parse.batch(source_file(slot)))
    copies.told()
    # The file that the old version wrote for slot 1 went with the table, and is waited for.
    copies.await_open(2, 1)


@pytest.mark.parametrize("told", [1, 2], ids=["in the middle", "at the end"])
def test_it_goes_on_with_a_refreshed_version_where_it_was(copies: Copies, told: int) -> None:
    run_both(copies, 1, 2)
    copies.told()
    copies.parse.refresh()
    names = [copies.parse.batch(source_file(slot)) for slot in (1, 2)[:told]]
    copies.told()
    copies.stop()
    names += [copies.parse.batch(source_file(slot)) for slot in (1, 2, 3)[told:]]
    copies.told()
    copies.await_open(1, 3)
    for name in names:
        copies.enrich.batch(name)
    copies.told()
    copies.await_open(1, 0)


def test_refreshed_twice(copies: Copies) -> None:
    run_both(copies, 1)
    copies.told()
    for slots in ((1, 2), (1, 2, 3)):
        copies.parse.refresh()
        for name in [copies.parse.batch(source_file(slot)) for slot in slots]:
            copies.enrich.batch(name)
        copies.told()
    copies.await_open(1, 0)
    copies.await_min_time("enrich", 4)


def test_an_older_version_is_not_told_by_the_log_of_a_newer(copies: Copies) -> None:
    """Both number their batches from 0, in one log of the table."""
    copies.parse.batch(source_file(1))
    (flow,) = [f for f in find_flows(copies.storage) if f.segment == "parse"]
    copies.parse.begin_version()  # between finding the flow and reading its batch
    spec = copies.running.admin().pipeline("p").spec
    copies.followed = FollowedPipeline(copies.running.target, spec, copies.storage, copies.tables)
    query = copies.followed.query(flow, take_over=False)
    with pytest.raises(TrackingError, match="version 1 of flow 'parse' is there"):
        query.start().wait_durable(HANG_S)
    query.close()
    assert copies.open_items() == [4, 0]


def test_a_table_that_is_emptied_before_its_new_version_begins_is_waited_for(
    copies: Copies,
) -> None:
    copies.follow()
    sink = copies.parse.directory / "_spark_metadata"
    shutil.move(sink, copies.top / "gone")  # emptied
    sink.mkdir()
    copies.parse.batch(source_file(1), commit=False)
    (sink / "0").unlink()
    copies.parse.write("commits", 'v1\n{"nextBatchWatermarkMs":0}')
    assert copies.followed is not None
    failing = copies.followed.queries["parse"]
    until(lambda: failing.failure is not None)
    copies.followed.look()  # not an error yet
    copies.parse.refresh()
    copies.parse.batch(source_file(1))
    copies.told()
    copies.await_open(3, 1)


def test_a_flow_that_cannot_be_followed_is_an_error_in_the_end(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarative, "REFRESH_GRACE_S", 0.0)
    copies.parse.batch(source_file(1))
    (copies.parse.directory / "_spark_metadata/0").unlink()
    followed = copies.follow()
    until(lambda: followed.queries["parse"].failure is not None)
    with pytest.raises(TrackingError, match="published nothing for"):
        until(followed.look)


# --- from now on ----------------------------------------------------------------------------------


def labelled(slots: Sequence[int]) -> list[str]:
    return [source_file(slot) for slot in slots]


def test_what_was_before_is_not_told_and_not_after_a_refresh_either(copies: Copies) -> None:
    old = "file:///data/in/before.parquet"
    copies.enrich.batch(copies.parse.batch(old))
    copies.follow(from_now=True)
    run_both(copies, 1)
    copies.told()
    copies.await_open(3, 0)
    copies.stop()
    copies.parse.refresh()
    for name in [copies.parse.batch(name) for name in (old, *labelled((1, 2)))]:
        copies.enrich.batch(name)
    copies.told()
    copies.await_open(2, 0)


def test_a_refresh_before_anything_is_told(copies: Copies) -> None:
    old = "file:///data/in/before.parquet"
    copies.enrich.batch(copies.parse.batch(old))
    copies.follow(from_now=True)
    copies.parse.refresh()
    for name in [copies.parse.batch(name) for name in (old, source_file(1))]:
        copies.enrich.batch(name)
    copies.told()
    copies.await_open(3, 0)


def test_it_is_now_once_only(copies: Copies) -> None:
    """As where a unit file says --from-now: what comes after the first start is told after any other."""
    copies.enrich.batch(copies.parse.batch("file:///data/in/before.parquet"))
    copies.follow(from_now=True)
    copies.stop()
    copies.parse.refresh()
    copies.parse.batch(source_file(1))
    copies.follow(from_now=True)  # not at rest, and with batches that are to be told
    copies.told()
    copies.await_open(3, 1)


def test_a_query_that_was_followed_before_goes_on_where_it_was(copies: Copies) -> None:
    run_both(copies, 1)
    copies.told()
    copies.stop()
    run_both(copies, 2)
    copies.follow(from_now=True)
    copies.told()
    copies.await_open(2, 0)


def test_it_begins_at_rest_only(copies: Copies) -> None:
    written = copies.parse.batch("file:///data/in/before.parquet")
    with pytest.raises(TrackingError, match=r"'enrich' has not read .* of flow 'parse' yet"):
        copies.follow(from_now=True)
    copies.enrich.batch(written)
    copies.parse.batch(source_file(1), commit=False)
    with pytest.raises(TrackingError, match="'parse' is in the middle of batch 1"):
        copies.follow(from_now=True)


def test_min_time_follows_the_front(copies: Copies) -> None:
    run_both(copies, 1, 2, 3, 4)
    copies.told()
    copies.await_min_time("enrich", 5)
