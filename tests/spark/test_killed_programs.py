"""Programs of other people, each in a process of its own, whose driver is killed and started again; `make testing` kills
at every moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.pages import ROOT
from tests.testing.__main__ import QUERIES, write_sample
from tests.testing.stranger import outcomes, run_pytest, write_page
from tests.waits import PROGRAM_S
from tracker.cli.app import app
from tracker.errors import StateError
from tracker.testing.checking import check_program, sample_rows
from tracker.testing.drivers import ProgramFailed, kill_and_restart
from tracker.testing.moments import Moment


def test_the_recipe_of_the_page_passes_with_two_of_its_kills(tmp_path: Path) -> None:
    write_page(tmp_path, with_spark=True)
    (tmp_path / "conftest.py").write_text("from lowmark.fixtures import *\n")
    recipe = tmp_path / "test_query.py"
    assert "at=Moment," in recipe.read_text()
    recipe.write_text(recipe.read_text().replace("at=Moment,", 'at=["sink", "sent"],'))
    paths = f"{ROOT}:{ROOT / 'proto'}"
    done = run_pytest(
        tmp_path, ROOT, "-p", "no:lowmark", "test_query.py", environment={"PYTHONPATH": paths}
    )
    assert (done.returncode, outcomes(done)) == (0, {"passed": 1}), done.stdout + done.stderr


def test_a_query_that_appends_a_batch_again_doubles_its_rows(tmp_path: Path) -> None:
    checked = check_program(
        QUERIES / "appends.py", write_sample(tmp_path / "sample.jsonl"), (Moment.COMMIT,)
    )
    assert (checked.ok, checked.is_tracked) == (False, False)
    assert checked.one.killed == [Moment.COMMIT] and checked.one.doubled > 0, checked
    assert (checked.one.lost, checked.one.strange) == (0, 0), checked
    assert not Path("data").exists(), "it wrote where it says, and not in folders of the check"
    assert json.loads(checked.as_json())["one"]["differences"]["doubled"]


def test_a_program_that_fails_is_shown_with_what_it_said(tmp_path: Path) -> None:
    program = tmp_path / "query.py"
    program.write_text("raise RuntimeError('no such table')\n")
    with pytest.raises(ProgramFailed, match=r"query.py ended with status 1:(.|\n)*no such table"):
        kill_and_restart(program, at="tick")


def test_a_program_that_starts_no_query_never_comes_to_a_moment(tmp_path: Path) -> None:
    program = tmp_path / "query.py"
    program.write_text("import sys; assert sys.argv[1:] == ['a', 'b']\n")
    with pytest.raises(AssertionError, match="without coming to the moment 'commit'"):
        kill_and_restart(program, "a", "b")
    with pytest.raises(ValueError, match="'nowhere' is not a valid Moment"):
        kill_and_restart(program, at="nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n', "has 1 rows; a sample has 2 to 100000"),
        ('{"a": 1}\nb\n', "line 2 is no JSON"),
        ('{"a": 1}\n[1]\n', r"line 2 is no object of columns: \[1\]"),
    ],
)
def test_a_sample_that_is_none_is_refused_before_anything_is_started(
    text: str, said: str, tmp_path: Path
) -> None:
    sample, program = tmp_path / "sample.jsonl", tmp_path / "query.py"
    sample.write_text(text)
    program.touch()
    with pytest.raises(StateError, match=said):
        sample_rows(sample)
    shown = CliRunner().invoke(app, ["query", "check", str(program), str(sample)])
    assert shown.exit_code == 1, shown.output


def test_the_command_says_what_a_program_that_fails_has_said(tmp_path: Path) -> None:
    program = tmp_path / "query.py"
    program.write_text("raise RuntimeError('no such table')\n")
    sample = write_sample(tmp_path / "sample.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "tracker.cli", "query", "check", str(program), str(sample)],
        cwd=ROOT, check=False, capture_output=True, text=True, timeout=PROGRAM_S,
    )  # fmt: skip
    assert done.returncode == 1 and "no such table" in done.stderr, done
