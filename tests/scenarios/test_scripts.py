"""Every story in this directory is what the processes do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.script import parse, render, run, scripts


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_a_story_is_what_happens(path: Path) -> None:
    assert render(run(parse(path.read_text()))) == path.read_text()


def test_a_story_that_tells_something_else_is_noticed() -> None:
    (path, *_) = scripts()
    text = path.read_text()
    told = text.replace("announces", "does not announce", 1)
    assert told != text
    assert render(run(parse(told))) != told


def test_a_block_without_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks its line"):
        parse("settle\nok\n")
