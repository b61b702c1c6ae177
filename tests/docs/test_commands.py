"""The commands that people are told to run."""

from __future__ import annotations

import re
import subprocess

from tests.docs.pages import ROOT, blocks, pages


def _make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_readme_needs_two_commands() -> None:
    commands = [b.text.strip() for b in blocks(ROOT / "README.md") if b.info == "sh"]
    assert commands[:2] == ["make demo", "make test"]


def test_pages_name_targets_that_the_makefile_has() -> None:
    for page in pages():
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert target in _make_targets(), f"{page.name} names make {target}"


def test_every_shown_target_is_explained() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for target in ("demo", "test", "lint", "sim", "setup", "clean"):
        assert re.search(rf"^make {target}: \w", shown, re.MULTILINE), target


def test_continuous_integration_runs_the_tests_and_nothing_else() -> None:
    lines = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert lines == ["exec make test"]
