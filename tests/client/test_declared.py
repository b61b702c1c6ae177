"""Commands whose settings are declared: where each may be given, and what does not go together."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner, Result

from tracker.cli.app import app
from tracker.cli.declared import by_settings
from tracker.client.settings import Settings

WRONG_USAGE = 2


class Made(Settings):
    """Settings of a command."""

    name: str = Field(default="", description="who")
    reads: list[str] = Field(default=[], description="what")
    rows: int | None = Field(default=None, ge=1, description="how many")
    wait_s: float | None = Field(default=None, ge=0, description="how long")


def run(*words: str, environment: dict[str, str] | None = None) -> Result:
    taken = typer.Typer()

    @by_settings(Made, ("name", "reads", "wait_s"), {"name": "MADE_NAME"})
    def command(context: typer.Context, settings: Made) -> None:
        print(settings.model_dump_json())

    taken.command()(command)
    return CliRunner().invoke(taken, list(words), env=environment)


def given(*words: str, environment: dict[str, str] | None = None) -> Made:
    result = run(*words, environment=environment)
    assert result.exit_code == 0, result.output
    return Made.model_validate_json(result.stdout)


def test_options_count_before_words_those_before_the_environment_and_that_before_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "made.yaml"
    file.write_text("name: of the file\nreads: [a, b]\nrows: 1\n")
    named = {"MADE_NAME": "of the environment"}
    assert given() == Made()
    assert given("--config", str(file)) == Made(name="of the file", reads=["a", "b"], rows=1)
    assert given("--config", str(file), environment=named).name == "of the environment"
    assert given("--set", "name=of a word", environment=named).name == "of a word"
    assert given("--name", "of an option", "--set", "name=of a word").name == "of an option"
    assert given("--config", str(file), "--set", "rows=3", "--wait-s", "0.5") == Made(
        name="of the file", reads=["a", "b"], rows=3, wait_s=0.5
    )


def test_a_list_has_an_element_for_each_time_that_it_is_named() -> None:
    assert given("--set", "reads=0=a:b").reads == ["0=a:b"]
    assert given("--set", "reads=a", "--set", "reads=b,c").reads == ["a", "b,c"]
    assert given("--reads", "a", "--reads", "b", "--set", "reads=c").reads == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "rows=0"], "--set rows: Input should be greater than or equal to 1"),
        (["--set", "row=1"], "--set row: there is no such setting; there are name, reads, rows"),
        (["--set", "name=a", "--set", "name=b"], "--set name: Input should be a valid string"),
        (["--config", "none.yaml"], "--config none.yaml cannot be read"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_what_cannot_be_is_named_with_its_place(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == WRONG_USAGE
    assert said in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --checkpoint of a query, or --storage of a declarative pipeline"),
        (["--checkpoint", "c", "--storage", "s"], "give --checkpoint of a query, or --storage"),
        (["--checkpoint", "c", "--set", "start=now"], "start: not with checkpoint"),
        (["--storage", "s", "--set", "rows=a=b", "--sink", "x"], "rows, sink: not with storage"),
        (["--checkpoint", "c", "-p", "p"], "name the node that the query is: --node-id"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_a_query_and_a_declarative_pipeline_are_attached_by_settings_of_their_own(
    words: list[str], said: str
) -> None:
    result = CliRunner().invoke(app, ["query", "attach", *words], env={"COLUMNS": "200"})
    assert result.exit_code == WRONG_USAGE and said in result.stderr
