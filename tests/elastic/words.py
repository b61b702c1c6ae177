"""Word count over real text, whose state gets another number of partitions in the middle: by real
processes, with a history.

    python -m tests.elastic.words DIRECTORY SHARDS PARTITIONS

What each batch read and when it was done is taken from Spark's checkpoint, by the matrix's account of it. The
last line says what came of it, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from examples.history import Recorder
from examples.sessions import make_session
from examples.word_count.run import (
    PIPELINE,
    checkpoint_of,
    make_rescalable,
    newest_counts,
    publish_and_rescale,
    spec,
    start_counting,
)
from examples.word_count.text import counted, lines
from fronts.files import FileFront
from local_tracker.spark.session.tracked import Tracked
from tests.check.judging import judge
from tests.cluster.told import end_with_parent
from tests.elastic.fleet import Fleet
from tests.spark_matrix.recording import recording
from tests.spark_matrix.truth import Followed, Truth
from tests.waits import HANG_S
from tracker.client import Subscriber
from tracker.core.model.slots import FOREVER
from tracker.core.model.units import unit_name


def count(spark: Any, fleet: Fleet, directory: Path, partitions: int) -> dict[str, Any]:
    """Counts the words, rescaling in the middle; returns what came of it."""
    parts, source, counts = directory / "parts", directory / "lines", directory / "counts"
    source.mkdir(parents=True)
    registered = spec()
    fleet.register(registered)
    recorder = Recorder(parts / "run.jsonl")
    recorder.header(registered, {"reference": "count"})
    truth = Truth(recorder)
    truth.follow(Followed(checkpoint_of(counts), "count"))
    text = lines()
    listener = fleet.listening(parts, PIPELINE)
    with recording(lambda pipeline: recorder), Subscriber(fleet.target, PIPELINE) as subscriber:
        tracked = Tracked(spark, fleet.target, PIPELINE)
        query = start_counting(spark, tracked, source, counts)
        with FileFront(
            fleet.target, PIPELINE, "reference", "count", source, format="json"
        ) as front:
            query, done, files = publish_and_rescale(
                spark, tracked, query, front, subscriber, text, counts, partitions
            )
            published = front.published()
            front.leave()
        complete = subscriber.wait_until(FOREVER, timeout_s=HANG_S)
        assert complete, f"min time is {subscriber.min_time()}: {query.exception()}"
        tracked.stop()
    listener.ends_well()
    for file in published:
        truth.created("count", unit_name(str(file.path)), file.slot)
    truth.close()
    history = fleet.completed(recorder, registered)
    found, expected = newest_counts(counts), counted(text)
    wrong = [
        f"{w!r}: {found[w]}, not {expected[w]}" for w in expected | found if found[w] != expected[w]
    ]
    judged = judge(history)
    return {
        **asdict(done), "words": found.total(), "files": files, "wrong": wrong[:5] + [
            line for line in judged.said if not line.startswith("check")
        ], "false": judged.false, "lost": judged.lost + len(wrong), "history": str(history),
        "judged": judged.said[-1],
    }  # fmt: skip


def main(directory: str, shards: str, partitions: str) -> None:
    end_with_parent()
    os.environ["PYTHONUNBUFFERED"] = "1"
    root, began_s = Path(directory), time.monotonic()
    # The JVM is started before any thread of gRPC's runs: a fork would take those with it.
    spark = make_session("elastic", root)
    make_rescalable(spark)
    try:
        with Fleet(root / "tracker", int(shards)) as fleet:
            found = count(spark, fleet, root, int(partitions))
    finally:
        spark.stop()
    print(json.dumps({**found, "seconds": round(time.monotonic() - began_s, 1)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
