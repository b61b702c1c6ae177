"""Batch jobs as a node, without Spark: what is published, told, and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracker
from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.session import jobs
from local_tracker.spark.session.jobs import JobNode
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.client.holds import Hold
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER
from tracker.errors import TrackingError, UnavailableError


def source_file(slot: int) -> str:
    return f"file:///data/in/s{slot}-front-{slot:08d}.parquet"


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker whose pipeline's front has published files at slots 1 and 2."""
    with tracker.embedded() as embedded:
        embedded.register(
            PipelineSpec("p", ("read", "after"), (Edge("read", "after"),), fronts=("front",))
        )
        front = embedded.node("p", "front")
        front.join()
        front.join_front("front", "read")
        cells = Cells.of((0, slot, unit_value(source_file(slot)), 1) for slot in (1, 2))
        front.commit(TickContent(created=cells)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 3),))).result(HANG_S)
        yield embedded


@pytest.fixture
def node(running: EmbeddedTracker, tmp_path: Path) -> Iterator[Callable[..., JobNode]]:
    made: list[JobNode] = []

    def make(creates: tuple[str, ...] = ("after",), out: Path = tmp_path, **more: Any) -> JobNode:
        options = {"reads": "read", "creates": creates, **more}
        made.append(JobNode(running.target, "p", "job", str(out), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def write(directory: str) -> None:
    Path(directory).mkdir(parents=True)
    (Path(directory) / "part-0.json").write_text("{}")


def min_time(running: EmbeddedTracker, segment: str, slot: int) -> None:
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(slot, segment, timeout_s=HANG_S)


def test_a_run_is_one_tick(
    running: EmbeddedTracker, node: Callable[..., JobNode], tmp_path: Path
) -> None:
    job = node()
    assert job.run([source_file(1), source_file(2)], write) == 0
    min_time(running, "read", 3)
    after = running.admin().pipeline("p").state.segments[1]
    assert (after.open_items, after.min_time) == (1, 1), "labelled with the oldest slot"
    assert [path.name for path in tmp_path.glob("b*")] == ["b00000000-job-part-0.json"]


def test_runs_are_numbered_over_restarts(node: Callable[..., JobNode]) -> None:
    assert node().run([source_file(1)], write) == 0
    assert node().run([source_file(2)], write) == 1


def test_of_a_pipeline_that_was_restarted_it_says_where_to_go_on(
    running: EmbeddedTracker, node: Callable[..., JobNode]
) -> None:
    """Its runs of before are told to nobody any more, nor can they be told again."""
    job = node()
    job.run([source_file(1)], write)
    with running.admin() as admin:
        assert admin.restart("p", 0, 3) == (1, 3)
    job.close()
    advice = "generation 1 begins at slot 3 .* publish to an empty directory, over input from that"
    with pytest.raises(TrackingError, match=advice):
        node()


def test_input_that_was_read_is_refused_before_anything_is_published(
    node: Callable[..., JobNode], tmp_path: Path
) -> None:
    job = node()
    job.run([source_file(1)], write)
    with pytest.raises(TrackingError, match="has been read by its run 0"):
        job.run([source_file(1), source_file(2)], write)
    assert len(list(tmp_path.glob("b*"))) == 1


def test_a_run_that_failed_has_done_nothing(
    running: EmbeddedTracker, node: Callable[..., JobNode], tmp_path: Path
) -> None:
    def fail(directory: str) -> None:
        write(directory)
        raise OSError("the disk is full")

    job = node()
    with pytest.raises(OSError, match="disk is full"):
        job.run([source_file(1)], fail)
    assert not list(tmp_path.glob("b*"))
    assert job.run([source_file(1), source_file(2)], write) == 0
    min_time(running, "read", 3)


def test_what_was_published_and_not_told_is_told_by_the_next(
    running: EmbeddedTracker, node: Callable[..., JobNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = node(creates=())
    with monkeypatch.context() as patch:
        patch.setattr(JobNode, "_commit_run", killed)
        with pytest.raises(KeyboardInterrupt):
            job.run([source_file(1), source_file(2)], write)
    node(creates=())
    min_time(running, "read", 3)
    front = running.node("p", "front")
    front.join()
    front.leave_front("front").result(HANG_S)
    min_time(running, "after", FOREVER)


@pytest.mark.parametrize("is_told", [False, True])
def test_a_node_publishes_to_one_directory(
    running: EmbeddedTracker,
    node: Callable[..., JobNode],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_told: bool,
) -> None:
    """Tuesday's run elsewhere took the number of Monday's, which was killed behind its manifest: it passed for done."""
    with monkeypatch.context() as patch:
        if not is_told:
            patch.setattr(JobNode, "_commit_run", killed)
        with suppress(KeyboardInterrupt):
            node().run([source_file(1)], write, "monday")
    with pytest.raises(
        TrackingError, match=r"was not published to .*/tue: a node publishes to one"
    ):
        node(out=tmp_path / "tue")
    job = node()
    assert job.run([source_file(1)], write, "monday") == 0
    assert job.run([source_file(2)], write, "tuesday") == 1
    min_time(running, "read", 3)


def test_a_job_that_has_published_nothing_may_publish_elsewhere(
    running: EmbeddedTracker, node: Callable[..., JobNode], tmp_path: Path
) -> None:
    def fail(directory: str) -> None:
        raise OSError("no such bucket")

    with pytest.raises(OSError, match="no such bucket"):
        node().run([source_file(1)], fail)
    assert node(out=tmp_path / "other").run([source_file(1), source_file(2)], write) == 0
    min_time(running, "read", 3)


def test_a_shard_that_is_away_when_a_run_without_input_is_told_is_asked_again(
    node: Callable[..., JobNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has published needs a slot that every shard grants. Whoever is told of an error is told that it was published."""
    hold, asked = NodeClient.hold, list[int]()

    def away_at_first(client: NodeClient, *given: Any, **more: Any) -> Hold:
        asked.append(1)
        if len(asked) == 2:
            return hold(client, *given, **more)
        raise UnavailableError("a shard is away")

    monkeypatch.setattr(NodeClient, "hold", away_at_first)
    first = node()
    assert first.run([], write) == 0
    monkeypatch.setattr(jobs, "_COMMIT_TIMEOUT_S", 0.0)
    with pytest.raises(TrackingError, match="run 1, which has been published: a shard is away"):
        first.run([], write)


def test_input_counts_by_the_one_name_that_a_store_has_for_it(tmp_path: Path) -> None:
    """Spark calls it by the scheme that it is read by; whoever has created it did not."""
    name = f"lake/in/{source_file(1).rpartition('/')[2]}"
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("read",), fronts=("front",)))
        front = embedded.node("p", "front")
        front.join()
        front.join_front("front", "read")
        created = Cells.of([(0, 1, unit_value(f"s3://{name}"), 1)])
        front.commit(TickContent(created=created)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 3),))).result(HANG_S)
        job = JobNode(embedded.target, "p", "job", str(tmp_path), reads="read", creates=())
        assert job.run([f"s3a://{name}"], write) == 0
        job.close()
        min_time(embedded, "read", 3)


# --- runs that have a name ------------------------------------------------------------------------


def test_what_was_published_and_not_put_into_place_is_so_before_it_is_told(
    node: Callable[..., JobNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the manifest: nobody would ever see the files, and all would wait for who reads them."""
    with monkeypatch.context() as patched:
        patched.setattr(PublishedBatches, "place", killed)
        with pytest.raises(KeyboardInterrupt):
            node().run([source_file(1)], write, "monday")
    assert not list(tmp_path.glob("b*"))
    assert node().run([source_file(1)], write, "monday") == 0
    assert [path.name for path in tmp_path.glob("b*")] == ["b00000000-job-part-0.json"]


def test_a_job_that_has_published_is_not_run_again(node: Callable[..., JobNode]) -> None:
    def forbidden(directory: str) -> None:
        raise AssertionError(f"written again into {directory}")

    assert node().run([source_file(1)], write, "monday") == 0
    job = node()
    assert job.run([source_file(1)], forbidden, "monday") == 0
    assert job.run([source_file(2)], write, "tuesday") == 1


def test_a_name_is_for_one_input(node: Callable[..., JobNode], tmp_path: Path) -> None:
    job = node()
    job.run([source_file(1)], write, "monday")
    with pytest.raises(TrackingError, match=r"'monday' was its run 0, .* under another job id"):
        job.run([source_file(2)], write, "monday")
    with pytest.raises(TrackingError, match="has been read by its run 0"):
        job.run([source_file(1)], write, "tuesday")
    assert len(list(tmp_path.glob("b*"))) == 1


# --- refused before anything is published ---------------------------------------------------------


def test_input_that_nobody_has_told_of(
    node: Callable[..., JobNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_RESOLVE_TIMEOUT_S", 0.5)
    with pytest.raises(TrackingError, match=r"dim.parquet, was not created by any tick"):
        node().run(["file:///data/tables/dim.parquet"], write)
    assert not list(tmp_path.glob("b*"))


def test_input_that_nobody_will_tell_of_any_more(tmp_path: Path) -> None:
    """It lies in a segment that is complete; nothing is published, though what is read in the other one counts."""
    with tracker.embedded() as embedded:
        edges = Edge("ended", "after"), Edge("read", "after")
        spec = PipelineSpec("p", ("ended", "read", "after"), edges, fronts=("front", "gone"))
        embedded.register(spec)
        for name, segment in (("front", "read"), ("gone", "ended")):
            front = embedded.node("p", name)
            front.join()
            front.join_front(name, segment)
        front.leave_front("gone").result(HANG_S)
        min_time(embedded, "ended", FOREVER)
        reads = {"/data/old": "ended", "/data/in": "read"}
        job = JobNode(embedded.target, "p", "job", str(tmp_path), reads=reads, creates=("after",))
        with pytest.raises(TrackingError, match=r"segment 'ended' .* is complete"):
            job.run(["file:///data/old/stray.csv", source_file(1)], write)
        job.close()
    assert not list(tmp_path.glob("b*"))


def test_input_in_no_segment(node: Callable[..., JobNode], tmp_path: Path) -> None:
    job = node(reads={"/data/in": "read"})
    with pytest.raises(
        TrackingError, match=r"is in none of the directories.*nothing was published"
    ):
        job.run([source_file(1), "file:///data/tables/dim.parquet"], write)
    assert not list(tmp_path.glob("b*"))


def test_tables_that_are_not_tracked_may_be_read_in_each_run(
    running: EmbeddedTracker, node: Callable[..., JobNode]
) -> None:
    table = "file:///data/tables/dim.parquet"
    job = node(untracked=["/data/tables"])
    assert job.run([source_file(1), table], write) == 0
    assert job.run([source_file(2), table], write) == 1
    min_time(running, "read", 3)


@pytest.mark.parametrize(
    ("columns", "named"),
    [({"row": [1]}, "has no column 'at'"), ({"at": [0, 7]}, "has slot 0, .* allows 1 and later")],
)
def test_rows_that_cannot_be_tracked(
    node: Callable[..., JobNode], tmp_path: Path, columns: dict[str, list[int]], named: str
) -> None:
    def write_rows(directory: str) -> None:
        Path(directory).mkdir(parents=True)
        pq.write_table(pa.table(columns), f"{directory}/part-0.parquet")

    job = node(rows={"after": "at"})
    with pytest.raises(TrackingError, match=f"{named}.*nothing was published"):
        job.run([source_file(1)], write_rows)
    assert not list(tmp_path.glob("b*"))
    assert job.run([source_file(1)], lambda d: write_slots(d, 1, 5)) == 0


def write_slots(directory: str, *slots: int) -> None:
    Path(directory).mkdir(parents=True)
    pq.write_table(pa.table({"at": slots}), f"{directory}/part-0.parquet")


def killed(*_: object) -> None:
    raise KeyboardInterrupt
