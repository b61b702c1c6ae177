"""A front that publishes on an S3 server, as a process that is killed again and again; the server is, too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

import tracker
from tests.cluster.children import Running, now_slot
from tests.connectors.parts.s3 import KEY, REGION, SECRET, S3Server
from tests.connectors.parts.together import BUCKET
from tests.files.specification import *  # noqa: F403
from tests.files.stores import Store
from tests.waits import HANG_S, until
from tracker.core.model import Cells, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER
from tracker.core.model.units import parse_file_name, unit_name
from tracker.files import Stores, child

pytestmark = pytest.mark.long

KILLS = 3
FILES_A_RUN = 5


@pytest.fixture
def store(s3: S3Server) -> Iterator[Store]:
    """What programs without Spark reach by their environment."""
    settings = {
        "AWS_ENDPOINT_URL": s3.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
    }  # fmt: skip
    with patch.dict(os.environ, settings):
        root = f"s3://{BUCKET}/{uuid4().hex}"
        yield Store(Stores().files(root), root)


@pytest.fixture
def exclusive(store: Store) -> Store:
    return store


def labelled(store: Store) -> list[str]:
    return [name for name in store.files.names(store.root) if parse_file_name(name) is not None]


def test_a_front_that_is_killed_at_any_moment_publishes_each_file_once(
    s3: S3Server, store: Store, tmp_path: Path
) -> None:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), start_slot=now_slot(), front_count=1))
        arguments = (embedded.target, "p", "f", store.root)
        front = Running("tests.processes.front", *arguments, errors=tmp_path / "front.log")
        try:
            for kill in range(KILLS):
                before = len(labelled(store))
                front.start()
                until(lambda: len(labelled(store)) >= before + FILES_A_RUN, "it publishes")  # noqa: B023
                if kill == 1:
                    s3.kill()
                    s3.start()
                    until(lambda: len(labelled(store)) >= before + 2 * FILES_A_RUN, "it goes on")  # noqa: B023
                front.kill()
            front.start()
            front.until_says("started")
            front.tell("finish")
            front.ends_well()
        finally:
            front.discard()
        names = labelled(store)
        batches = sorted(file.batch for name in names if (file := parse_file_name(name)))
        assert batches == list(range(len(names))), "each number once, without a gap"
        written = [
            json.loads(store.files.read_whole(store.at(name), 10_000) or b"") for name in names
        ]
        assert len({row["number"] for row in written}) == len(names)
        with embedded.node("p", "reader") as reader:
            reader.join(HANG_S)
            for name in names:
                file, unit = parse_file_name(name), unit_name(child(store.root, name))
                assert file is not None
                content = TickContent(
                    consumed=Cells.of([(0, file.slot, unit_value(unit), 1)]),
                    units_consumed=(Unit(0, unit, file.slot),),
                )
                reader.commit(content, HANG_S)
            reader.flush(HANG_S)
        with embedded.subscriber("p") as subscriber:
            assert subscriber.wait_until(FOREVER, timeout_s=HANG_S), "all that is there was read"
