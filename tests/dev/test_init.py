"""`lowmark init`: what it writes, and that it takes nothing away. The files run in tests/spark and tests/connectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tracker
from scripts.summary import ROOT
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED
from tracker.client.pipeline_file import load_pipeline
from tracker.dev.starting import NAMES, Source

SOURCES = [source.value for source in Source]


def init(directory: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["init", str(directory), *words])


@pytest.mark.parametrize("source", SOURCES)
def test_it_writes_files_that_are_well_formed_and_says_what_to_do_next(
    source: str, tmp_path: Path
) -> None:
    directory = tmp_path / "new" / "orders"
    done = init(directory, "--source", source)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in directory.iterdir()) == sorted(NAMES)
    for name in NAMES:
        assert f" {name}" in done.output
        assert len((directory / name).read_text().splitlines()) < 60
    ruff, rules = str(Path(sys.executable).parent / "ruff"), str(ROOT / "pyproject.toml")
    for words in (["check"], ["format", "--check"]):
        command = [ruff, *words, "--config", rules, "--no-cache", str(directory)]
        checked = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=HANG_S
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("source", SOURCES)
def test_the_pipeline_is_one_and_applying_it_again_changes_nothing(
    source: str, tmp_path: Path
) -> None:
    init(tmp_path, "--source", source)
    spec = load_pipeline((tmp_path / "pipeline.yaml").read_text())
    with tracker.embedded() as embedded:
        assert embedded.register(spec) == spec
        again = load_pipeline((tmp_path / "pipeline.yaml").read_text())
        assert embedded.register(again) == spec


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text("mine")
    refused = init(tmp_path)
    assert refused.exit_code == EXIT_REFUSED
    assert "query.py" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["query.py"]
    assert (tmp_path / "query.py").read_text() == "mine"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    directory = tmp_path / "orders"
    directory.mkdir()
    (directory / "front.py").symlink_to(other)
    assert init(directory).exit_code == EXIT_REFUSED
    assert not other.exists()


def test_for_scripts_it_says_what_it_wrote_as_json(tmp_path: Path) -> None:
    done = init(tmp_path, "--source", "kafka", "--json")
    assert json.loads(done.output) == {
        "directory": str(tmp_path), "source": "kafka", "files": list(NAMES)
    }  # fmt: skip
