"""The files that `lowmark init` writes for files run, and the reader takes what is complete, each order once."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import tracker
from tests.dev.written import Written, file_orders, reported
from tests.spark_matrix.sessions import SETTINGS, submit_options
from tracker.cli.app import app
from tracker.dev.starting import FRONT, QUERY, READER


def test_the_files_for_files_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reader runs here, where there is a JVM, when the others have ended: each run of theirs costs as much."""
    directory = tmp_path / "orders"
    assert CliRunner().invoke(app, ["init", str(directory)]).exit_code == 0
    # Batches of a few rows: what Spark compiles for many takes longer than they do.
    environment = {"SPARK_SUBMIT_OPTS": submit_options(SETTINGS)}
    with tracker.embedded() as embedded:
        with Written(directory, embedded.target, environment=environment) as written:
            written.start()
            written.reach_now()
        monkeypatch.setenv("LOWMARK_TARGET", embedded.target)
        capsys.readouterr()
        runpy.run_path(str(directory / READER), run_name="__main__")
        assert "run 0: " in capsys.readouterr().out
    data = directory / "data"
    written.check_taken(file_orders(data / "orders"), reported(data / "report"))
    # It writes where it writes to, and has nothing to complain of, also as Ctrl-C ends it.
    assert len((directory / f"{FRONT}.log").read_text().splitlines()) == 1
    # Spark says much of its own when it starts.
    said = (directory / f"{QUERY}.log").read_text()
    assert "Ctrl-C ends it" in said
    assert "Traceback" not in said
