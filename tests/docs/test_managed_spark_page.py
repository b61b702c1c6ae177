"""docs/managed-spark.md: its file to copy follows a query whose checkpoint and sink are in a bucket, where there is
no Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import tracker
from tests.docs.pages import ROOT, blocks
from tests.files.s3 import s3_bucket
from tests.waits import HANG_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name
from tracker.files import Stores

PAGE = ROOT / "docs" / "managed-spark.md"
FILE = ROOT / "examples" / "managed_spark" / "cronjob.yaml"
LAKE = "s3a://lake"
SLOTS = (1, 2)


def container() -> dict[str, Any]:
    job = yaml.safe_load(FILE.read_text())
    (found,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


class Query:
    """The logs of a query in a bucket, by names of `s3a`, as Spark writes them."""

    def __init__(self, bucket: str) -> None:
        self._bucket, self._files = bucket, Stores().files(bucket)
        self._put(
            "checkpoints/parse/metadata", json.dumps({"id": "5f0c8a5e-98b4-4f5a-9c2b-7a1f0e7f0b11"})
        )

    def input_file(self, slot: int) -> str:
        return f"{self._bucket}/in/s{slot}-front-{slot:08d}.parquet".replace("s3:", "s3a:")

    def batch(self, number: int, slot: int) -> None:
        out = f"{self._bucket}/parsed/part-{number}.parquet".replace("s3:", "s3a:")
        read = json.dumps({"path": self.input_file(slot), "batchId": number})
        offsets = f'{{"batchTimestampMs":{number}}}\n{{"logOffset":{number}}}'
        self._put(f"checkpoints/parse/sources/0/{number}", f"v1\n{read}")
        self._put(f"checkpoints/parse/offsets/{number}", f"v1\n{offsets}")
        self._put(f"parsed/_spark_metadata/{number}", f"v1\n{json.dumps({'path': out, 'size': 1})}")
        self._put(f"checkpoints/parse/commits/{number}", "v1\n{}")

    def _put(self, key: str, text: str) -> None:
        self._files.create(f"{self._bucket}/{key}", text.encode())


@pytest.fixture
def bucket() -> Iterator[str]:
    with s3_bucket() as made:
        yield made


@pytest.fixture
def flights(bucket: str) -> Iterator[EmbeddedTracker]:
    """The pipeline of the file, whose front has published a file at each slot."""
    with tracker.embedded() as embedded:
        edge = Edge("parse", "enrich")
        embedded.register(PipelineSpec("flights", ("parse", "enrich"), (edge,), fronts=("front",)))
        with embedded.node("flights", "front") as front:
            front.join()
            front.join_front("front", "parse")
            names = {slot: unit_name(Query(bucket).input_file(slot)) for slot in SLOTS}
            created = Cells.of((0, slot, unit_value(name), 1) for slot, name in names.items())
            front.commit(TickContent(created=created)).result(HANG_S)
            front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(HANG_S)
            yield embedded


def run(flights: EmbeddedTracker, bucket: str) -> str:
    """What the container runs, where PySpark cannot be imported; returns what it has said."""
    found = container()
    assert found["command"][0] == "lowmark"
    words = [*found["command"][1:], *(word.replace(LAKE, bucket) for word in found["args"])]
    given = {entry["name"]: entry["value"] for entry in found["env"]}
    environment = os.environ | given | {"LOWMARK_TARGET": flights.target}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.without_spark", *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def open_slots(flights: EmbeddedTracker) -> list[int]:
    with flights.admin() as admin:
        return [segment.open_slots for segment in admin.pipeline("flights").state.segments]


def test_each_start_tells_what_is_over_by_then(flights: EmbeddedTracker, bucket: str) -> None:
    query = Query(bucket)
    query.batch(0, SLOTS[0])
    assert "committed up to batch 0" in run(flights, bucket)
    until(lambda: open_slots(flights) == [1, 1], lambda: f"{open_slots(flights)}")
    query.batch(1, SLOTS[1])
    assert "committed up to batch 1" in run(flights, bucket)
    until(lambda: open_slots(flights) == [0, 2], lambda: f"{open_slots(flights)}")


def test_the_page_shows_the_file() -> None:
    (shown,) = [block for block in blocks(PAGE) if block.info == "yaml"]
    found = container()
    assert yaml.safe_load(shown.text) == {name: found[name] for name in ("command", "args")}
