"""docs/spark.md and its reference name what exists; the README's query runs among the Spark tests."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

from local_tracker import acks
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.docs.pages import ROOT, Block, blocks, table_rows

PAGES = [ROOT / "docs" / "spark.md", ROOT / "docs" / "spark-reference.md"]
TEXT = "".join(page.read_text() for page in (*PAGES, ROOT / "README.md"))
PROGRAMS = [
    block for page in PAGES for block in blocks(page) if block.info.split()[:1] == ["python"]
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: block.text[:20])
def test_programs_are_python(program: Block) -> None:
    compile(program.text, program.page, "exec")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\btracked\.(\w+)\(", TEXT))))
def test_named_methods_of_tracked_exist(name: str) -> None:
    assert callable(getattr(Tracked, name))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\backs\.(\w+)", TEXT))))
def test_named_acks_exist(name: str) -> None:
    assert name in acks.__all__


def test_named_arguments_and_attributes_exist() -> None:
    taken = [name for name in inspect.signature(Tracked.start).parameters if name != "self"]
    assert sorted(row[0].strip("`") for row in table_rows(PAGES[0], "argument")) == sorted(taken)
    rare = TEXT.partition("## Rare options")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)`", rare, re.MULTILINE) == [
        f.name for f in fields(TrackingOptions)
    ]
    assert {"node_id", "reads", "creates", "rows"} <= set(inspect.signature(Tracked.job).parameters)
    assert "fmt" in inspect.signature(Tracked.writer).parameters
    for name in ("wait_durable", "tracking_failure"):
        assert name in TEXT
        assert hasattr(TrackedQuery, name)
