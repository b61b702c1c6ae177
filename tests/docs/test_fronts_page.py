"""The page about fronts: its examples run, on a real tracker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracker
from fronts.ranges import RangeFront
from tests.docs.pages import ROOT, blocks
from tests.waits import until
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.ranges import parse_note
from tracker.core.model.units import parse_file_name

FILES, PARTITIONS = [block.text for block in blocks(ROOT / "docs/fronts.md")]


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("orders", ("parse",), open=True))
        yield embedded


def run(text: str, embedded: EmbeddedTracker, path: Path, names: dict[str, Any]) -> None:
    exec(text.replace("127.0.0.1:7070", embedded.target).replace("/data", str(path)), names)


def test_a_group_labels_the_files_of_a_directory(embedded: EmbeddedTracker, tmp_path: Path) -> None:
    source, labelled = tmp_path / "in", tmp_path / "labelled"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.json").write_text(json.dumps({"n": number}))

    def wait_until_told_to_stop() -> None:
        until(lambda: not list(source.iterdir()))

    run(FILES, embedded, tmp_path, {"wait_until_told_to_stop": wait_until_told_to_stop})
    files = [path for path in labelled.iterdir() if parse_file_name(path.name)]
    assert sorted(json.loads(path.read_text())["n"] for path in files) == [0, 1, 2]
    with embedded.admin() as admin:
        until(lambda: not admin.pipeline("orders").state.fronts)  # it has left


def test_a_group_labels_the_partitions_of_a_log(embedded: EmbeddedTracker, tmp_path: Path) -> None:
    ends = {"orders/0": 5, "orders/1": 7}
    journals = tmp_path / "journals"

    def labelled() -> dict[str, int]:
        lines = [
            line for path in journals.glob("*.ranges") for line in path.read_text().splitlines()
        ]
        return {partition: end for line in lines for partition, _, end in parse_note(line).ranges}

    names = {
        "list_partitions": lambda: list(ends),
        "ends_of": lambda asked: {partition: ends[partition] for partition in asked},
        "wait_until_told_to_stop": lambda: until(lambda: labelled() == ends),
    }
    run(PARTITIONS, embedded, tmp_path, names)
    again = RangeFront(
        embedded.target, "orders", "topic/orders/0", "parse", journals / "orders%2F0.ranges"
    )
    with again:
        assert again.ends == {"orders/0": 5}, "the next run goes on from there"
