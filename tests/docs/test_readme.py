"""The README's programs run as they stand there."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Block, blocks

README = ROOT / "README.md"


def _programs(info: str) -> list[Block]:
    return [block for block in blocks(README) if block.info == info]


@pytest.mark.parametrize("program", _programs("python"), ids=lambda block: block.text[:20])
def test_plain_programs_run(program: Block) -> None:
    exec(compile(program.text, "README.md", "exec"), {"__name__": "readme"})


def test_there_is_a_plain_program_and_a_tracked_query_of_ten_lines() -> None:
    assert _programs("python")
    (query,) = _programs("python spark")
    assert len([line for line in query.text.splitlines() if line]) <= 10
