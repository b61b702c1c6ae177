"""Tracked queries of a tracker that asks for certificates and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.security.serving import Served, serving, wait_for
from tests.spark.support import SCHEMA, Pipeline, parse_operator, take_out_of_side
from tests.waits import HANG_S
from tracker.client import SecureTarget
from tracker.core.model import Edge


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A process with mutual TLS and tokens."""
    made = Served(tmp_path / "tracker")
    made.token("operator", _any=["register", "commit", "subscribe"])
    made.token("query", orders=["commit", "subscribe"])
    made.token("other", payments=["commit", "subscribe"])
    with serving(made, "--tls-ca", made.authority.cert, "--tokens", str(made.tokens_file)):
        wait_for(target_of(made, "operator"))
        yield made


def token_file(served: Served, token: str) -> str:
    return str(served.directory / f"{token}.token")


def target_of(served: Served, token: str) -> SecureTarget:
    return served.target(served.client, token_file(served, token))


@pytest.fixture
def pipeline(served: Served, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(
        target_of(served, "operator"), "orders", tmp_path, ["parse"], Edge("parse", "side")
    )
    yield made
    made.close()


def start(tracked: Tracked, spark: SparkSession, pipeline: Pipeline) -> TrackedQuery:
    tracked.track(acks)
    return tracked.start(
        spark.readStream.schema(SCHEMA)
        .parquet(pipeline.input)
        .mapInArrow(parse_operator(), SCHEMA)
        .writeStream.foreachBatch(tracked.writer(str(pipeline.directory / "out"), "json"))
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        node_id="parse", reads="parse",
    )  # fmt: skip


def test_a_query_is_tracked_over_mutual_tls_with_a_token(
    served: Served, spark: SparkSession, pipeline: Pipeline
) -> None:
    """Its driver, and its tasks, whose workers have the driver's variables, by a token for this pipeline alone."""
    tracked = Tracked(spark, target_of(served, "query"), pipeline.name)
    for slot in (3, 4):
        pipeline.publish(slot, rows=5)
    query = start(tracked, spark, pipeline)
    query.processAllAvailable()
    assert tracked.min_time("parse") <= 5
    take_out_of_side(pipeline)
    pipeline.leave()
    pipeline.assert_finished()
    tracked.stop()
    rows = spark.read.schema(SCHEMA).json(str(pipeline.directory / "out")).collect()
    assert sorted(row.row for row in rows) == list(range(len(pipeline.slots)))


def test_the_credentials_of_executors_count_there_and_a_wrong_token_fails_the_batch(
    served: Served, spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_executors = {  # as spark.executorEnv would have set them when the session began
        "LOWMARK_TLS_CA": served.authority.cert, "LOWMARK_TLS_CERT": served.client.cert,
        "LOWMARK_TLS_KEY": served.client.key, "LOWMARK_TOKEN_FILE": token_file(served, "other"),
    }  # fmt: skip
    for name, path in of_executors.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, path)
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    pipeline.publish(3)
    query = start(tracked, spark, pipeline)
    with pytest.raises(Exception, match="token 'other' may not look at pipeline 'orders'"):
        query.awaitTermination(int(HANG_S))
    tracked.stop()
    assert pipeline.describe().segments[0].open_slots == 1, "nothing was committed"
