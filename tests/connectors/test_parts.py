"""The launchers: what they start answers, holds its data over a kill, and is away while it is paused."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.children import until
from tests.connectors.parts.cache import FETCH_TIMEOUT_S
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server
from tests.connectors.s3_requests import S3Client

pytestmark = pytest.mark.timeout(3 * FETCH_TIMEOUT_S)  # where a part is fetched first
RACES, RACERS = 40, 8


# --- Kafka ----------------------------------------------------------------------------------------


def test_a_topic_outlives_a_killed_broker(broker: KafkaBroker) -> None:
    broker.create_topic("kept", 2)
    assert broker.ends("kept") == {0: 0, 1: 0}
    broker.kill()
    broker.start()
    assert "PartitionCount: 2" in broker.describe("kept")


def test_a_topic_gets_more_partitions(broker: KafkaBroker) -> None:
    broker.create_topic("grows", 2)
    broker.add_partitions("grows", 3)
    assert broker.ends("grows") == {0: 0, 1: 0, 2: 0}


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
        urllib.request.urlopen(s3.url, timeout=5)
    s3.start()
    assert client.get("kept") == b"text"
    until(lambda: s3.requests() > before, "the request was not counted")


def test_a_request_without_the_secret_is_refused(s3: S3Server) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{s3.url}/lowmark/kept", timeout=5)


# --- HDFS -----------------------------------------------------------------------------------------


def test_files_outlive_a_killed_name_node(hdfs: HdfsCluster, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("kept")
    hdfs.shell("-put", str(text), "/kept")
    hdfs.stop_name_node()
    hdfs.start()
    assert hdfs.shell("-cat", "/kept") == "kept"
