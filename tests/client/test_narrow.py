"""Tables in terminals of any width: nothing of a row is cut off, and what is no terminal is as wide as it has to be."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from tests.client.support import various_pipelines
from tracker.cli.app import app
from tracker.cli.render.narrow import LEAST_LAST
from tracker.cli.render.status import STYLES
from tracker.cli.render.terminal import Terminal
from tracker.client.embedded import EmbeddedTracker

FRAME = "┏━┳┓┃┡╇┩│└┴┘┻┛┗"
CUT = "…"
AT_REST = ["-p", "complete", "-p", "waiting"]
"""Pipelines of which the same is shown however late it is asked."""


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with various_pipelines(shards=2) as embedded:
        yield embedded


def shown(running: EmbeddedTracker, columns: str, *words: str) -> str:
    environment = {"LOWMARK_TARGET": running.target, "COLUMNS": columns}
    result = CliRunner().invoke(app, list(words), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def words_of(text: str) -> set[str]:
    return set(text.translate(dict.fromkeys(map(ord, FRAME), " ")).split()) - {"-"}


def written(width: int | None, *tables: Table) -> str:
    output = io.StringIO()
    terminal = Terminal(file=output, width=width)
    for table in tables:
        terminal.print(table)
    return output.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("words", [["status", *AT_REST], ["shards"]], ids=" ".join)
def test_a_narrow_terminal_shows_every_word_that_a_wide_one_does(
    running: EmbeddedTracker, width: int, words: list[str]
) -> None:
    narrow, wide = (shown(running, str(columns), *words) for columns in (width, 400))
    rows = [line for line in wide.splitlines() if line.startswith("│")]
    assert len(rows) > 1 and words_of("\n".join(rows)) <= words_of(narrow)
    assert CUT not in narrow
    assert max(map(len, narrow.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_row_of_the_overview_is_a_line_however_narrow(
    running: EmbeddedTracker, width: int
) -> None:
    lines = shown(running, str(width), "watch", "--once").splitlines()
    rows = [line for line in lines if line.startswith("│")]
    names, states = ({row.split("│")[place].strip() for row in rows} for place in (1, 2))
    assert names == {"complete", "held", "numbers", "waiting"} and len(rows) == len(names)
    assert states <= STYLES.keys()
    assert max(map(len, lines)) <= width


def test_the_pipe_of_a_program_is_no_narrow_terminal(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    result = CliRunner().invoke(app, ["status", "--target", running.target])
    lines = [line for line in result.stdout.splitlines() if "waiting" in line]
    assert all("front front has never joined" in line for line in lines) and len(lines) == 3


def table(*rows: tuple[str | Text, ...]) -> Table:
    made = Table("name", "state", "why", caption="all of them")
    for row in rows:
        made.add_row(*row)
    return made


def test_a_row_that_does_not_fit_is_a_block_without_what_is_empty() -> None:
    long = "an-" + "unbroken-" * 5 + "word"
    made = table(("one", Text("well", "green"), "-"), ("two", long, ""))
    assert [line.rstrip() for line in written(40, made).splitlines()] == [
        "one", "  state  well", "two",
        f"  state  {long[:31]}", f"         {long[31:]}",
        "all of them",
    ]  # fmt: skip
    assert long in written(100, made) and "│" in written(100, made)


def test_a_text_that_may_be_cut_off_needs_no_more_than_a_few_characters() -> None:
    cut = Text("x" * 200, no_wrap=True, overflow="ellipsis")
    made = table(("one", "well", cut))
    line = next(line for line in written(40, made).splitlines() if "one" in line)
    assert CUT in line and line.count("x") >= LEAST_LAST - 5
    assert "│" not in written(20, made)


def test_names_in_blocks_are_printable() -> None:
    assert "\x1b" not in written(8, table(("a\x1b[31m", "b\x1b[0m" * 9, "c")))
