"""The pipeline, front and query of the README and of docs/spark.md do together what the page says, as they stand there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fronts.files import FileFront
from tests.docs.pages import ROOT, blocks
from tests.waits import HANG_S
from tracker.client import Admin, Subscriber
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model.slots import FOREVER


@dataclass(frozen=True)
class Shown:
    """What a page shows. query: the block that starts it; front: its name; read, written: directories of the query;
    rows: that it writes."""

    page: str
    query: str
    front: str
    read: str
    written: str
    rows: tuple[str, ...]

    def run(self, info: str, spark: SparkSession, target: str, directory: Path) -> dict[str, Any]:
        """Runs a block of the page; returns what it has named."""
        text = self.text(info)
        assert "127.0.0.1:7070" in text
        assert "/data/" in text
        text = text.replace("127.0.0.1:7070", target).replace("/data/", f"{directory}/")
        names: dict[str, Any] = {"spark": spark}
        exec(compile(text, f"{self.page}, {info}", "exec"), names)
        return names

    def text(self, info: str) -> str:
        (found,) = [block.text for block in blocks(ROOT / self.page) if block.info == info]
        return found


WORDS = ("be", "be", "not", "or", "to", "to")
PAGES = [
    Shown("README.md", "python spark", "shop", "input", "words", WORDS),
    Shown("docs/spark.md", "python query", "jfk", "in", "parsed", ("EWR 2013-01-01T05:15 UA1545",)),
]


@pytest.mark.parametrize("shown", PAGES, ids=lambda shown: shown.page)
def test_the_query_of_a_page_is_tracked(
    spark: SparkSession, target: str, tmp_path: Path, shown: Shown
) -> None:
    spec = load_pipeline(shown.text("yaml"), shown.page)
    one_process = target.split(",", maxsplit=1)[0]
    with Admin(one_process) as admin, Subscriber(one_process, spec.name) as subscriber:
        admin.register(spec)
        shown.run("python front", spark, target, tmp_path)
        query = shown.run(shown.query, spark, target, tmp_path)["query"]
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        # What came in has been read, and what was made of it has not; when the front has left, that is all
        # there is.
        read = spec.segments[0]
        front = FileFront(
            target, spec.name, shown.front, read, tmp_path / shown.read, format="json"
        )
        front.start().leave()
        assert subscriber.wait_until(FOREVER, read, HANG_S)
        first, second = admin.pipeline(spec.name).state.segments
        assert (first.open_slots, second.open_slots) == (0, 1)
        assert second.min_time == second.low == front.published()[0].slot
    rows = [row[0] for row in spark.read.parquet(f"{tmp_path}/{shown.written}").collect()]
    assert tuple(sorted(rows)) == shown.rows
