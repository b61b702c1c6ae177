"""docs/start.md: what it shows runs."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, blocks
from tracker.dev.sample import NAME

PAGE = ROOT / "docs" / "start.md"


def test_the_program_of_a_few_lines_reaches_min_time(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.info == "python"]
    exec(compile(program, str(PAGE), "exec"), {})
    assert "is shipped" in capsys.readouterr().out


def test_the_sample_pipeline_has_its_name() -> None:
    assert f"lowmark watch -p {NAME}\n" in PAGE.read_text()
