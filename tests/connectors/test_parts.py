"""The launchers: what they start answers, holds its data over a kill, and is away while it is paused."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server
from tests.connectors.places import HdfsPath, HdfsPlace, S3Place
from tests.connectors.s3_requests import S3Client
from tests.spark_matrix.places import StoreAway
from tests.waits import HANG_S, until

RACES, RACERS = 40, 8
HDFS_CLOCK_NS = 1_000_000
"""HDFS has times in milliseconds."""


# --- Kafka ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_topic_and_its_partitions_outlive_a_killed_broker(broker: KafkaBroker) -> None:
    broker.create_topic("kept", 2)
    assert broker.ends("kept") == {0: 0, 1: 0}
    broker.add_partitions("kept", 3)
    broker.kill()
    broker.start()
    assert broker.ends("kept") == {0: 0, 1: 0, 2: 0}


# --- S3 -------------------------------------------------------------------------------------------


def test_of_racing_conditional_puts_one_wins(s3: S3Server) -> None:
    client = S3Client(s3, "lowmark")
    for race in range(RACES):
        start, statuses = threading.Barrier(RACERS), [0] * RACERS

        def put(racer: int, race: int = race, start=start, statuses=statuses) -> None:  # type: ignore[no-untyped-def]
            start.wait()
            statuses[racer] = client.put(f"races/{race}", b"%d" % racer, if_absent=True)

        threads = [threading.Thread(target=put, args=(racer,)) for racer in range(RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] + [412] * (RACERS - 1)
        assert client.get(f"races/{race}") == b"%d" % statuses.index(200)


def test_objects_outlive_a_killed_server(s3: S3Server) -> None:
    client = S3Client(s3, "lowmark")
    assert client.put("kept", b"text") == 200
    before = s3.requests()
    s3.kill()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(s3.url, timeout=HANG_S)
    s3.start()
    assert client.get("kept") == b"text"
    until(lambda: s3.requests() > before, "the request was not counted")


def test_what_is_put_on_s3_can_be_looked_at(s3: S3Server) -> None:
    place = S3Place(s3, "lowmark", "row")
    place.put("in/file", b"text")
    assert place.url("in/file") == "s3a://lowmark/row/in/file"
    assert [path.name for path in place.look("in").iterdir()] == ["file"]
    assert place.look("in/file").read_bytes() == b"text"
    assert not place.look("other").exists()


def test_a_request_without_the_secret_is_refused(s3: S3Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{s3.url}/lowmark/kept", timeout=HANG_S)


# --- HDFS -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_files_outlive_a_killed_name_node(hdfs: HdfsCluster) -> None:
    begun_ns = time.time_ns() - HDFS_CLOCK_NS
    place = HdfsPlace(hdfs, hdfs.address, "row")
    place.put("in/file", b"text")
    hdfs.stop_name_node()
    with pytest.raises(StoreAway):
        place.look("in").exists()
    hdfs.start()
    assert place.url("in/file") == f"{hdfs.url}/row/in/file"
    assert [path.name for path in place.look("in").iterdir()] == ["file"]
    file = place.look("in") / "file"
    until(lambda: text_of(file) is not None, "the DataNode does not find the NameNode again")
    assert (file.read_text(), hdfs.shell("-cat", "/row/in/file")) == ("text", "text")
    assert begun_ns <= file.stat().st_mtime_ns <= time.time_ns()
    assert not place.look("other").exists()


def text_of(file: HdfsPath) -> str | None:
    """None as long as nobody can say."""
    try:
        return file.read_text()
    except StoreAway:
        return None
