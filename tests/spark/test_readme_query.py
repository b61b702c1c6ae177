"""The README's pipeline, front and query do together what it says, as they stand there."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from fronts.files import FileFront
from tests.docs.pages import ROOT, blocks
from tests.waits import HANG_S
from tracker.client import Admin, Subscriber
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model.slots import FOREVER

README = {block.info: block.text for block in blocks(ROOT / "README.md")}


def test_the_readmes_query_is_tracked(spark: SparkSession, target: str, tmp_path: Path) -> None:
    def run(info: str) -> dict[str, object]:
        text = README[info]
        assert "127.0.0.1:7070" in text
        assert "/data/" in text
        text = text.replace("127.0.0.1:7070", target).replace("/data/", f"{tmp_path}/")
        names: dict[str, object] = {}
        exec(compile(text, f"README.md, {info}", "exec"), names)
        return names

    spec, one_process = load_pipeline(README["yaml"], "README.md"), target.split(",", maxsplit=1)[0]
    with Admin(one_process) as admin, Subscriber(one_process, spec.name) as subscriber:
        admin.register(spec)
        run("python front")
        query = run("python spark")["query"]
        try:
            query.processAllAvailable()  # type: ignore[attr-defined]
        finally:
            query.stop()  # type: ignore[attr-defined]
        # The line has been split and its words have not been counted; when the front has left, that
        # is all there is.
        front = FileFront(target, "words", "shop", "split", tmp_path / "input", format="json")
        front.start().leave()
        assert subscriber.wait_until(FOREVER, "split", HANG_S)
        split, count = admin.pipeline(spec.name).state.segments
        assert (split.open_slots, count.open_slots) == (0, 1)
        assert count.min_time == count.low == front.published()[0].slot
    words = [row.word for row in spark.read.parquet(f"{tmp_path}/words").collect()]
    assert sorted(words) == ["be", "be", "not", "or", "to", "to"]
