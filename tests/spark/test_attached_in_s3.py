"""A query whose checkpoint and sink are in an object store is followed there, at a known price."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiobotocore.httpsession import AIOHTTPSession

from local_tracker.spark.query.follow import Follower
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.session.attached import AttachedQuery
from tests.files.s3 import s3_bucket
from tests.spark.test_attached import AnyTicks, FullNode, await_open_slots, running
from tests.spark.written_logs import Logs
from tests.waits import HANG_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.client.known import StoredKnown
from tracker.core.log import Joined
from tracker.core.model import Cells, NodeKey, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name
from tracker.files import STORES, Files, Stores

__all__ = ["running"]

REQUESTS_A_BATCH = 9
"""What docs/object-stores.md says of a batch of one file in and one file out, at most."""

AT_START = 20
"""To find out where the query is, and that it has ended."""

RECORDS = 2
"""Of what was acknowledged to the query: one in an interval, which lasts as long as the test, and one at its end."""

SENT_AGAIN = 10
"""What the client may send by itself, when it is first used and where a connection was closed: fewer than there
are batches, so that nothing that each of them sends goes uncounted."""


class LogsInS3(Logs):
    """As Spark leaves them there: each entry at once, by names of s3a."""

    def __init__(self, directory: Path, bucket: str) -> None:
        super().__init__(directory)
        self.files: Files = Stores().files(bucket)
        self.bucket, self.sink = bucket, Path("unused")
        self.files.create(f"{bucket}/q/cp/metadata", (self.checkpoint / "metadata").read_bytes())

    def write(self, folder: str, number: int, text: str) -> None:
        text = text.replace("file:///data/in/", "s3a://lake/in/").replace("file://", "s3a://")
        self.files.create(f"{self.bucket}/q/{folder}/{number}", text.encode())


@pytest.fixture
def in_s3(tmp_path: Path) -> Iterator[LogsInS3]:
    with s3_bucket() as bucket:
        yield LogsInS3(tmp_path, bucket)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The method of each request that is sent over the wire."""
    methods: list[str] = []
    send = AIOHTTPSession.send

    async def counted(self: AIOHTTPSession, request: object) -> object:
        methods.append(str(getattr(request, "method", "")))
        return await send(self, request)

    monkeypatch.setattr(AIOHTTPSession, "send", counted)
    return methods


def named_in_s3(running: EmbeddedTracker, *slots: int) -> None:
    """The front has published files in the store too, and names them by its own scheme."""
    with running.node("p", "front-in-s3") as front:
        front.join()
        names = [unit_name(f"s3://lake/in/s{slot}-front-{slot:08d}.parquet") for slot in slots]
        cells = Cells.of((0, slot, unit_value(n), 1) for slot, n in zip(slots, names, strict=True))
        front.commit(TickContent(created=cells)).result(HANG_S)


def test_batches_in_a_bucket_are_told_as_they_end(
    running: EmbeddedTracker, in_s3: LogsInS3
) -> None:
    """The reader logs `s3a:`, the writer was `s3:`: what one created the other consumes."""
    named_in_s3(running, 11, 12)
    query = AttachedQuery(
        running.target, "p", "parse", in_s3.bucket.replace("s3:", "s3a:") + "/q/cp/",
        reads="parse", creates=["after"], sink=f"{in_s3.bucket}/q/out",
    )  # fmt: skip
    in_s3.batch(0, 11)
    query.start()
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 5, 1)
    in_s3.batch(1, 12)
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 4, 2)
    assert query.close()


def test_a_batch_costs_so_many_requests(
    running: EmbeddedTracker, in_s3: LogsInS3, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of them is counted."""
    monkeypatch.setattr(StoredKnown.__init__, "__defaults__", (HANG_S,))
    batches = 30
    named_in_s3(running, *range(11, 11 + batches))
    for number in range(batches):
        in_s3.batch(number, 11 + number)
    sent.clear()
    query = AttachedQuery(
        running.target, "p", "parse", f"{in_s3.bucket}/q/cp", reads="parse",
        creates=["after"], sink=f"{in_s3.bucket}/q/out",
    )  # fmt: skip
    query.start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    counted = STORES.requests()[in_s3.bucket]
    assert 0 <= len(sent) - sum(counted.values()) <= SENT_AGAIN
    assert counted["write"] <= RECORDS
    assert (len(sent) - AT_START) / batches <= REQUESTS_A_BATCH, counted
    assert counted["list"] <= AT_START


class Reports:
    """A query's own, as it is asked."""

    def __init__(self) -> None:
        self.newest: tuple[int, str] | None = None
        self._asked = threading.Semaphore(0)

    def __call__(self) -> tuple[int, str] | None:
        self._asked.release()
        return self.newest

    def wait_asked(self, times: int) -> None:
        for _ in range(times):
            assert self._asked.acquire(timeout=HANG_S)


def test_nothing_is_asked_of_the_store_before_the_query_reports(in_s3: LogsInS3) -> None:
    """Then all batches up to the one that it reports are told, by what each of them takes."""
    reports, checkpoint = Reports(), CheckpointLog(f"{in_s3.bucket}/q/cp")
    follower = Follower(
        "parse", FullNode(), checkpoint, AnyTicks(),  # type: ignore[arg-type]
        Joined(NodeKey("parse", 1), PipelineSpec("p", ("parse",)), (), 0, ()),
        is_active=lambda: True, on_end=lambda: None, progress=reports,
    )  # fmt: skip
    follower.start()
    reports.wait_asked(3)  # by then the first listing is over
    before = checkpoint.files.requests.counted()
    in_s3.batch(0, 1)
    reports.wait_asked(5)
    assert checkpoint.files.requests.counted() == before
    assert follower.last_durable_batch == -1
    in_s3.batch(1, 2)
    reports.newest = (1, "now")
    until(lambda: follower.last_durable_batch == 1)
    reports.wait_asked(5)
    after = checkpoint.files.requests.counted()
    assert (after["read"] - before["read"], after["list"] - before["list"]) == (2, 0)
    assert follower.close(HANG_S)
