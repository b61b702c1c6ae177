"""docs/pipelines.md: its files load, and its table is what the loader knows."""

from __future__ import annotations

import dataclasses

import pytest

from tests.docs.pages import ROOT, Block, blocks, table_rows
from tracker.client.pipeline_file import load_pipeline
from tracker.core.home.registration import check_spec
from tracker.core.model import Edge, PipelineSpec, SilentFront

PAGE = ROOT / "docs" / "pipelines.md"
MINIMAL = "name: p\nsegments: [s]\nfronts: 1\n"


def _files() -> list[Block]:
    return [block for block in blocks(PAGE) if block.info == "yaml"]


@pytest.mark.parametrize("file", _files(), ids=lambda block: block.text.split()[1])
def test_every_file_is_a_pipeline_that_would_be_registered(file: Block) -> None:
    check_spec(load_pipeline(file.text, file.page))


def test_the_long_file_means_what_the_page_says() -> None:
    spec = load_pipeline(_files()[1].text)
    assert spec.edges[1] == Edge("parse", "fetch", 100)
    assert spec.front_count == 2
    assert spec.start_slot == 1_357_016_400
    assert (spec.silent_front, spec.evict_after_ms) == (SilentFront.EVICT, 300_000)


def test_the_table_has_every_setting() -> None:
    shown = {row[0].strip("`") for row in table_rows(PAGE, "key")}
    renamed = {
        "start_slot": "start",
        "slack_ns": "slack",
        "evict_after_ms": "evict_after",
        "front_count": "fronts",
        "front_policies": "fronts",
        "lateness_slots": "lateness",
    }
    fields = {field.name for field in dataclasses.fields(PipelineSpec)} - {"removed"}
    assert shown == {renamed.get(name, name) for name in fields} | {"group"}


def test_the_table_tells_the_defaults() -> None:
    spec = load_pipeline(MINIMAL)
    for key, default, _ in table_rows(PAGE, "key"):
        name = key.strip("`")
        if name == "lateness":
            assert spec.lateness_slots == int(default)
        elif default.isdigit():
            assert getattr(spec, name) == int(default), name
        elif default.startswith("`"):
            shown = load_pipeline(f"{MINIMAL}{name}: {default.strip('`')}\n")
            assert shown == spec, f"{name}: {default} is not the default"
