"""What every command has: a version, help, completion, a pipeline that need not be named, and a tracker that is not
there."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import tracker
from tests.client.support import TWO_SEGMENTS
from tests.cluster.network import NOBODY
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.cli.common import EXIT_REFUSED, EXIT_UNAVAILABLE, MAX_NAMED_PIPELINES
from tracker.cli.reaching import reach
from tracker.client import Admin, PipelineInfo
from tracker.client.embedded import EmbeddedTracker

WRONG_USAGE = 2


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        yield embedded


def run(target: str, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"LOWMARK_TARGET": target, "COLUMNS": "200"})


def test_the_version_is_an_option_too() -> None:
    result = run(NOBODY, "--version")
    assert result.exit_code == 0 and result.stdout == f"{tracker.__version__}\n"


def test_a_command_is_imported_when_it_is_run_and_no_other() -> None:
    program = (
        "import atexit, sys; from tracker.cli import main; sys.argv = ['lowmark', 'wait', '--help']; "
        "atexit.register(lambda: print(*sys.modules, sep=chr(10))); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert "Usage: lowmark wait" in done.stdout
    imported = set(done.stdout.splitlines())
    assert "tracker.cli.wait" in imported
    assert not imported & {"tracker.cli.serve", "tracker.cli.watch", "tracker.cli.attach"}


@pytest.mark.parametrize(
    "words", [[], ["wait"], ["pipelines"], ["pipelines", "apply"], ["credentials", "token"]]
)
def test_help_has_a_short_word_everywhere(words: list[str]) -> None:
    short, long = run(NOBODY, *words, "-h"), run(NOBODY, *words, "--help")
    assert short.exit_code == 0 and short.stdout == long.stdout and "Usage" in short.stdout


def test_a_local_tracker_is_run_where_only_the_client_is_installed() -> None:
    program = (
        "import sys; sys.modules['typer'] = sys.modules['pydantic'] = None; from tracker.cli import main; "
        "sys.argv = ['lowmark', 'local-tracker', '--help']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert done.stdout.startswith("usage: lowmark local-tracker")


DURATIONS = [
    ["wait", "--until", "now", "--timeout"], ["wait", "--until", "now", "--silent-after"],
    ["explain", "--silent-after"], ["watch", "--interval"], ["status", "--freshness", "-p", "two", "--within"],
    ["shards", "1", "--timeout"], ["nodes", "retire", "--yes", "--silent-for"],
    ["periods", "list", "--every"], ["periods", "follow", "--record", "record", "--every"],
    ["periods", "follow", "--record", "record", "--timeout"],
    ["credentials", "create", "--out", "credentials", "--valid-for"],
]  # fmt: skip
"""Commands, up to an option that takes a duration."""


@pytest.mark.parametrize("words", DURATIONS, ids=lambda words: f"{words[0]} {words[-1]}")
def test_every_duration_is_a_number_and_its_unit(
    running: EmbeddedTracker, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    running.register(TWO_SEGMENTS)
    for given in ("2", "soon"):
        refused = run(running.target, *words, given)
        assert refused.exit_code == WRONG_USAGE, refused.output
        told = " ".join(refused.output.replace("│", " ").split())
        assert f"'{given}' is not a duration; write a number and ns, us, ms, s, m, h or d" in told
    assert not list(tmp_path.iterdir())


def test_no_option_is_left_that_counts_in_seconds_or_days() -> None:
    options = _options(typer.main.get_command(app))
    assert len(options) > 100
    for option in options:
        assert not re.search(r"\b(seconds|days) ", option.help or ""), option.opts


def _options(command: Any) -> list[Any]:
    """Of a command and of those below it."""
    below = getattr(command, "commands", {}).values()
    return [*command.params, *(each for one in below for each in _options(one))]


def test_what_every_command_takes_counts_before_it_and_behind_it(running: EmbeddedTracker) -> None:
    for words in (
        ["--json", "--target", running.target, "status"],
        ["status", "--json", "-t", running.target],
        ["--target", NOBODY, "--json", "status", "-t", running.target],
    ):
        result = run(NOBODY, *words)
        assert (result.exit_code, result.stdout) == (0, "[]\n"), result.output


def test_shells_complete_commands() -> None:
    asked = {"_LOWMARK_COMPLETE": "complete_bash", "COMP_WORDS": "lowmark pip", "COMP_CWORD": "1"}
    assert "pipelines" in CliRunner().invoke(app, [], env=asked, prog_name="lowmark").stdout


@pytest.mark.parametrize("words", [["periods", "list"], ["explain"], ["watch", "--once"]])
def test_the_only_pipeline_need_not_be_named(running: EmbeddedTracker, words: list[str]) -> None:
    none = run(running.target, *words)
    assert none.exit_code == WRONG_USAGE and "no pipeline is registered" in none.stderr
    running.register(replace(TWO_SEGMENTS, name="only"))
    named = [*words, "-p", "only"]
    result, told = run(running.target, *words, "--json"), run(running.target, *named, "--json")
    assert result.exit_code == told.exit_code == 0, result.stderr


def test_of_several_pipelines_one_is_to_be_named_and_no_more_are_asked_for_than_are_shown(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()

    class Listening(Admin):
        def pages(self, size: int | None = None) -> Iterator[list[PipelineInfo]]:
            for page in super().pages(size):
                told.extend(info.spec.name for info in page)
                yield page

    monkeypatch.setattr("tracker.cli.common.Admin", Listening)
    names = [f"p{number:02}" for number in range(MAX_NAMED_PIPELINES + 5)]
    for name in names:
        running.register(replace(TWO_SEGMENTS, name=name))
    result = run(running.target, "explain")
    assert result.exit_code == WRONG_USAGE
    assert "there are p00, p01" in result.stderr and "p09 and more" in result.stderr
    assert told == names[: MAX_NAMED_PIPELINES + 1]


def test_a_tracker_that_is_not_there_is_said_at_once() -> None:
    target = NOBODY
    result = run(target, "status")
    assert result.exit_code == EXIT_UNAVAILABLE
    assert f"no process of a tracker can be reached at {target}" in result.stderr
    assert "refused" in result.stderr and "--retry-for" in result.stderr


def test_one_of_the_named_processes_is_enough(running: EmbeddedTracker) -> None:
    assert run(f"{NOBODY},{running.target}", "status", "--json").stdout == "[]\n"


def test_it_is_waited_for_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are refused until that was said; then somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        said: list[str] = []

        def hear(text: str, err: bool) -> None:
            said.append(text)
            listener.listen()

        monkeypatch.setattr("tracker.cli.reaching.typer.echo", hear)
        target = "127.0.0.1:{1}".format(*listener.getsockname())
        reach(target, 60.0)
        assert (
            len(said) == 1
            and f"waiting: no process of a tracker can be reached at {target}" in said[0]
        )


def test_how_long_it_is_waited_for_is_a_duration() -> None:
    result = run(NOBODY, "--retry-for", "soon", "status")
    assert result.exit_code == WRONG_USAGE and "not a duration" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["credentials", "token", "me", "--out", "{none}/token"],
        ["credentials", "token", "--webhook", "--out", "{none}/secret"],
        ["pipelines", "apply", "-f", "{unreadable}"],
        ["pipelines", "apply", "-f", "{binary}"],
        ["init", "{file}/orders"],
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_is_said_by_name(
    running: EmbeddedTracker, tmp_path: Path, words: list[str]
) -> None:
    running.register(TWO_SEGMENTS)
    places = {name: tmp_path / name for name in ("none", "file", "unreadable", "binary")}
    places["binary"].write_bytes(b"\xff\xfe")
    places["file"].write_text("")
    places["unreadable"].mkdir()
    (places["unreadable"] / "one.yaml").symlink_to(tmp_path / "gone.yaml")
    result = run(running.target, *(word.format(**places) for word in words))
    assert isinstance(result.exception, SystemExit) and result.exit_code == EXIT_REFUSED
    assert str(tmp_path) in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["periods", "list", "--from", "soon"],
        ["periods", "list", "--to", "soon"],
        ["periods", "follow", "--record", "{place}", "--since", "soon"],
        ["pipelines", "restart", "--from", "soon", "--yes"],
        ["wait", "--until", "soon"],
        ["explain", "--at", "soon"],
        ["explain", "--slots", "soon"],
    ],
    ids=" ".join,
)
def test_what_is_no_moment_is_wrong_usage(
    running: EmbeddedTracker, tmp_path: Path, words: list[str]
) -> None:
    running.register(TWO_SEGMENTS)
    result = run(running.target, *(word.format(place=tmp_path / "record") for word in words))
    assert result.exit_code == WRONG_USAGE and "'soon' is not a moment" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mark", ["/data/orders", "hive:orders", "delta:", "iceberg"])
def test_a_mark_that_is_none_is_refused_and_nothing_is_begun(
    running: EmbeddedTracker, tmp_path: Path, mark: str
) -> None:
    running.register(TWO_SEGMENTS)
    record = str(tmp_path / "record")
    result = run(running.target, "periods", "follow", "--record", record, "--mark", mark)
    assert result.exit_code == WRONG_USAGE
    assert f"--mark {mark!r} is none of partition:FOLDERS" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_no_period_says_so(running: EmbeddedTracker) -> None:
    running.register(TWO_SEGMENTS)
    none = run(running.target, "periods", "list", "--from", "now")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no period has ended there yet\n")
    told = run(running.target, "periods", "list", "--from", "now", "--json")
    assert (told.exit_code, told.output) == (0, "")
