"""`lowmark init --from`: the pipeline of queries that there are, by a program that starts them, or by a checkpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from local_tracker.spark.session.drafting import (
    Draft,
    draft_of_checkpoint,
    drafts_of_program,
)
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model import Edge
from tracker.dev.existing import pipeline_of
from tracker.errors import TrackingError

PROGRAM = """
from pyspark.sql import SparkSession
from lowmark import Tracked

spark = SparkSession.builder.getOrCreate()

def stream(directory):
    return spark.readStream.schema("row long").parquet(directory)

def written(frame, name):
    writer = frame.writeStream.format("parquet").option("path", "{top}/" + name)
    return writer.option("checkpointLocation", "{top}/checkpoints/" + name)

orders = stream("{top}/in")
first = written(orders, "parsed").queryName("parse").start()
second = written(stream("{top}/parsed").union(stream("file:{top}/manual/")), "enriched").start()
third = Tracked(spark, "127.0.0.1:1", "p").start(
    stream("{top}/enriched").writeStream.format("noop"), node_id="audit", reads="audit"
)
while first.isActive:
    raise AssertionError("it has begun")
first.awaitTermination()
spark.streams.awaitAnyTermination()
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("in", "parsed", "enriched", "manual"):
        (tmp_path / name).mkdir()
    (tmp_path / "flights.py").write_text(PROGRAM.format(top=tmp_path))
    return tmp_path


def init(directory: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["init", str(directory), *words])


def test_a_program_makes_a_pipeline_that_is_right_in_names_and_edges(
    spark: SparkSession, top: Path
) -> None:
    before = sorted(path.name for path in top.iterdir())
    done = init(top / "new", "--from", str(top / "flights.py"), "--json")
    assert done.exit_code == 0, done.output
    text = (top / "new" / "pipeline.yaml").read_text()
    assert json.loads(done.stdout)["pipeline"] == text
    spec = load_pipeline(text)
    assert (spec.name, spec.segments) == ("flights", ("parse", "enriched", "audit"))
    assert spec.edges == (Edge("parse", "enriched", 0), Edge("enriched", "audit", 0))
    assert spec.fronts == ("in", "manual") and spec.start_slot > 0
    assert f"# Front in labels what comes to {top}/in, for segment parse." in text
    assert "node_id='parse', reads='parse', creates=['enriched'])" in text
    assert spark.streams.active == []
    assert sorted(path.name for path in top.iterdir()) == sorted([*before, "new"])
    assert not (top / "checkpoints").exists()


def test_nothing_that_is_there_is_overwritten(spark: SparkSession, top: Path) -> None:
    (top / "pipeline.yaml").write_text("mine")
    refused = init(top, "--from", str(top / "flights.py"))
    assert refused.exit_code == EXIT_REFUSED and "nothing was written" in refused.stderr
    assert (top / "pipeline.yaml").read_text() == "mine"


def test_afterwards_queries_start_as_ever(spark: SparkSession, top: Path) -> None:
    drafts_of_program(top / "flights.py")
    query = run(spark, top, "in", "out")
    assert query and draft_of_checkpoint(query).reads == (f"{top}/in",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print(1)", "starts no streaming query"),
        ("raise ValueError('no')", "ended before it started a query: ValueError: no"),
        (PROGRAM.replace('"parse"', '"audit"'), "two queries are called 'audit'"),
        (PROGRAM.replace('"{top}/parsed")', '"{top}/in")'), "both read /"),
        (PROGRAM.replace('"{top}/in"', '"{top}/enriched"').replace("file:{top}/manual/", "{top}/parsed"),
         "no query reads what a front could label"),
    ],
)  # fmt: skip
def test_what_makes_no_pipeline_is_named(
    spark: SparkSession, top: Path, text: str, says: str
) -> None:
    (top / "flights.py").write_text(text.replace("{top}", str(top)))
    refused = init(top / "new", "--from", str(top / "flights.py"))
    assert refused.exit_code == EXIT_REFUSED and says in refused.stderr, refused.output
    assert not (top / "new").exists()


def run(spark: SparkSession, top: Path, source: str, sink: str) -> str:
    """A query over what is there, to its end; its checkpoint."""
    checkpoint = top / "checkpoints" / f"to_{sink}"
    if source == "in":
        spark.range(3).selectExpr("id AS row").write.mode("append").parquet(str(top / source))
    frame = spark.readStream.schema("row long").parquet(str(top / source))
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(top / sink), format="parquet")
    assert query.awaitTermination(HANG_S)
    return str(checkpoint)


def test_a_checkpoint_shows_what_its_query_reads(spark: SparkSession, top: Path) -> None:
    checkpoint = run(spark, top, "in", "out")
    done = init(top / "new", "--from", checkpoint)
    assert done.exit_code == 0, done.output
    spec = load_pipeline((top / "new" / "pipeline.yaml").read_text())
    assert (spec.name, spec.segments, spec.edges, spec.fronts) == (
        "to_out",
        ("to_out",),
        (),
        ("in",),
    )


def test_who_writes_what_a_checkpoint_reads_is_not_guessed(spark: SparkSession, top: Path) -> None:
    run(spark, top, "in", "out")
    with pytest.raises(TrackingError, match=r"out, which another one writes.*--from query.py"):
        draft_of_checkpoint(run(spark, top, "out", "last"))


def test_a_checkpoint_without_a_batch_shows_nothing(top: Path) -> None:
    with pytest.raises(TrackingError, match="is no checkpoint"):
        draft_of_checkpoint(str(top))
    (top / "metadata").write_text('{"id": "x"}')
    with pytest.raises(TrackingError, match="has read nothing yet"):
        draft_of_checkpoint(str(top))


def test_a_checkpoint_shows_sources_of_which_its_last_batch_had_nothing(
    spark: SparkSession, top: Path
) -> None:
    def took(*places: str) -> str:
        for place in places:
            spark.range(1).selectExpr("id AS row").write.mode("append").parquet(str(top / place))
        one, other = (
            spark.readStream.schema("row long").parquet(str(top / name))
            for name in ("in", "manual")
        )
        writer = one.union(other).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(top / "checkpoint")).start()
        assert query.awaitTermination(HANG_S)
        return str(top / "checkpoint")

    with pytest.raises(TrackingError, match=r"source 1 of the query of .* has read nothing yet"):
        draft_of_checkpoint(took("in"))
    took("manual")
    assert {*draft_of_checkpoint(took("in")).reads} == {f"{top}/in", f"{top}/manual"}


def test_a_program_that_ends_before_its_end_is_named(spark: SparkSession, top: Path) -> None:
    text = (top / "flights.py").read_text()
    for how, said in (("1 / 0", "ZeroDivisionError: division by zero"), ("exit(0)", "")):
        (top / "flights.py").write_text(text.replace("second =", f"{how}\nsecond =", 1))
        directory = top / how[:1]
        assert init(directory, "--from", str(top / "flights.py")).exit_code == 0
        written = (directory / "pipeline.yaml").read_text()
        assert ("its program ended" in written) == bool(said), written
        assert not said or f"# Behind query parse its program ended by {said}: what" in written


def test_a_table_that_one_query_writes_by_name_and_another_reads_is_one_place(
    spark: SparkSession, top: Path
) -> None:
    spark.sql(f"CREATE TABLE middle (row long) USING parquet LOCATION '{top}/middle'")
    try:
        spark.sql("INSERT INTO middle VALUES (1)")
        (top / "flights.py").write_text(
            PROGRAM.format(top=top).partition("first =")[0]
            + f"""
first = orders.writeStream.queryName("first").option("checkpointLocation", "{top}/1").toTable("middle")
spark.readStream.table("middle").writeStream.format("noop").queryName("last").start()
"""
        )
        first, last = drafts_of_program(top / "flights.py")
    finally:
        spark.sql("DROP TABLE middle")
    assert first.writes == last.reads == (f"{top}/middle",)


def test_fronts_have_names_of_their_own() -> None:
    drafts = [Draft(name, (f"/{name}/{place}",)) for name, place in
              (("a", "orders-2"), ("b", "orders"), ("c", "orders"), ("d", "orders"))]  # fmt: skip
    spec = load_pipeline(pipeline_of("p", drafts, datetime.now(UTC)))
    assert spec.fronts == ("orders-2", "orders", "orders-3", "orders-4")
