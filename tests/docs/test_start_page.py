"""docs/start.md: what it shows runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.install import trial
from tests.install.__main__ import UVX
from tracker.dev.sample import NAME

PAGE = ROOT / "docs" / "start.md"


def test_the_program_of_a_few_lines_reaches_min_time(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.info == "python"]
    exec(compile(program, str(PAGE), "exec"), {})
    assert "is shipped" in capsys.readouterr().out


def test_the_sample_pipeline_has_its_name() -> None:
    assert f"lowmark watch -p {NAME}\n" in PAGE.read_text()


@pytest.mark.parametrize("page", [ROOT / "README.md", PAGE], ids=lambda page: page.name)
def test_uvx_is_named_as_the_install_matrix_runs_it(page: Path) -> None:
    assert f"`{UVX}`" in " ".join(page.read_text().split())


def test_a_query_comes_to_be_waited_for_in_ten_lines() -> None:
    assert 0 < trial.changed_lines(trial.section()) <= trial.MOST_LINES


def test_what_changes_in_the_query_fits_the_query() -> None:
    by_name = {block.info: block.text for block in trial.section()}
    query = trial.changed(by_name["python query.py"], by_name["diff query.py"])
    assert query.startswith("from lowmark import Tracked\n")
    assert "writer.start()" not in query
    with pytest.raises(ValueError, match="fits 0 times"):
        trial.changed(query, by_name["diff query.py"])
