"""The commands that people are told to run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from scripts.check.registry import read_checks
from tests.docs.pages import ROOT, blocks, pages, without_blocks
from tests.waits import HANG_S
from tracker.cli.app import app


def _make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    return {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE), *read_checks()}


def test_the_readme_begins_with_two_commands_and_shows_two_of_a_checkout() -> None:
    commands = [b.text.strip() for b in blocks(ROOT / "README.md") if b.info == "sh"]
    assert commands[0].splitlines() == ["pip install 'lowmark[server]'", "lowmark dev"]
    assert "make demo" in commands and "make test" in commands


def test_pages_name_targets_that_the_makefile_has() -> None:
    for page in pages():
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert target in _make_targets(), f"{page.name} names make {target}"


def test_help_explains_a_few_targets_and_names_every_check() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=HANG_S,
    ).stdout  # fmt: skip
    explained = re.findall(r"^make ([A-Za-z]+): \w", shown, re.MULTILINE)
    assert {"test", "lint", "check", "setup", "clean"} < set(explained) and len(explained) <= 10
    assert shown.splitlines()[-1].split() == list(read_checks())


def _shown_commands() -> list[str]:
    """Every `lowmark ...` line in a shell block of a page, up to where its output goes."""
    shells = [b for page in pages() for b in blocks(page) if b.info == "sh"]
    lines = [line for block in shells for line in block.text.splitlines()]
    return [
        re.split("#| > | && ", line)[0].strip() for line in lines if line.startswith("lowmark ")
    ]


def test_pages_show_how_to_start_a_tracker() -> None:
    assert any(command.startswith("lowmark serve") for command in _shown_commands())


@pytest.mark.parametrize("command", _shown_commands())
def test_the_command_line_takes_what_pages_show(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tracker.cli.reaching.reach", lambda target, retry_s: None)  # none is there
    program, *words = shlex.split(command)
    for file in (word for word in words if re.fullmatch(r"[a-z]+\.(yaml|py)", word)):
        (tmp_path / file).touch()
    assert _parse(program, words)


def _command() -> Any:
    return typer.main.get_command(app)


def _named_commands() -> list[str]:
    """What stands in the text of pages as `lowmark ...`, or begins with one of its groups: `query attach --once`."""
    texts = [without_blocks(page) for page in pages()]
    named = {" ".join(found.split()) for text in texts for found in re.findall(r"`([^`]+)`", text)}
    groups = {name for name, each in _command().commands.items() if hasattr(each, "commands")}
    whole = {name.removeprefix("lowmark ") for name in named if name.startswith("lowmark ")}
    return sorted(whole | {name for name in named if " " in name and name.split()[0] in groups})


@pytest.mark.parametrize("named", _named_commands())
def test_pages_name_commands_and_options_that_there_are(named: str) -> None:
    assert _unknown(named.split()) is None


def test_a_command_that_is_not_there_is_found() -> None:
    assert _unknown(["store", "export"]) == "export"
    assert _unknown(["query", "attach", "--no-such"]) == "--no-such"


def test_parsing_finds_what_the_command_line_does_not_know() -> None:
    for words in (["no-such-command"], ["serve", "--no-such-option"]):
        with pytest.raises(Exception, match=r"[Nn]o such"):
            _parse("lowmark", words)


def _unknown(words: list[str]) -> str | None:
    """The first word that is no command where one is due, or an option that its command does not have."""
    parsed = _command()
    options = {name for parameter in parsed.params for name in parameter.opts} | {"-h", "--help"}
    for before, word in zip(["", *words], words, strict=False):
        if word.startswith("-"):
            if word.partition("=")[0] not in options:
                return word
        elif word in getattr(parsed, "commands", ()):
            parsed = parsed.commands[word]
            options |= {name for parameter in parsed.params for name in parameter.opts}
        elif hasattr(parsed, "commands") and not (before.startswith("-") or word.isupper()):
            return word
    return None


def _parse(program: str, words: list[str]) -> str:
    """Parses a command without running it; returns the name of the innermost command."""
    parsed = _command()
    context = parsed.context_class(parsed, info_name=program)
    name = ""
    while hasattr(parsed, "resolve_command"):
        name, parsed, words = parsed.resolve_command(context, words)
        context = parsed.context_class(parsed, info_name=name, parent=context)
    parsed.parse_args(context, words)
    return name
