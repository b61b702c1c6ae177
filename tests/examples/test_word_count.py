"""The word count runs as its users run it, and counts right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from examples.word_count.run import newest_counts
from examples.word_count.text import counted, lines, words
from tests.waits import PROGRAM_S


def test_every_word_is_counted_once_also_when_the_state_is_repartitioned() -> None:
    # In a process of its own: a JVM that is there already would not take the example's settings.
    command = [sys.executable, "-m", "examples.word_count", "--partitions", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROGRAM_S)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "word_count: OK" in last
    assert f"words={counted(lines()).total()} " in last
    assert " open_items=0 " in last
    assert "state partitions: 2 -> 4" in done.stdout


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
