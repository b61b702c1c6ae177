"""The word count runs as its users run it, and counts right."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.word_count.__main__ import main
from examples.word_count.run import newest_counts
from examples.word_count.text import counted, lines, words


def test_every_word_is_counted_once_also_when_the_state_is_repartitioned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--partitions", "4"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    last = printed.splitlines()[-1]
    assert "word_count: OK" in last
    assert f"words={counted(lines()).total()} " in last
    assert " open_items=0 " in last
    assert "state partitions: 2 -> 4" in printed


def test_the_text_is_real_and_not_small() -> None:
    assert counted(lines()).total() > 20_000
    assert counted(lines())["the"] > 1_000


def test_words_are_told_by_letters() -> None:
    assert words("Don't print(x_1), PRINT it.") == ["don't", "print", "x", "print", "it"]


def test_the_newest_batch_tells_a_words_count(tmp_path: Path) -> None:
    for batch, rows in enumerate([{"a": 1, "b": 2}, {"a": 5}]):
        table = pa.table({"word": [*rows], "count": [*rows.values()], "batch": [batch] * len(rows)})
        pq.write_table(table, tmp_path / f"{batch}.parquet")
    assert newest_counts(tmp_path) == {"a": 5, "b": 2}
