"""The pages of table formats show programs that are tried with the real connectors."""

from __future__ import annotations

import inspect

import pytest

from examples import tables
from tests.docs.pages import ROOT, Block, blocks

PAGES = [ROOT / "docs/delta.md", ROOT / "docs/iceberg.md"]
PROGRAMS = [block for page in PAGES for block in blocks(page) if block.info == "python"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: block.page)
def test_programs_are_those_of_the_example(program: Block) -> None:
    written = program.text.strip().split("\n\n\n")
    assert written
    shown = inspect.getsource(tables)
    for function in written:
        assert function in shown


def test_each_page_has_a_program() -> None:
    assert {block.page for block in PROGRAMS} == {f"docs/{page.name}" for page in PAGES}
