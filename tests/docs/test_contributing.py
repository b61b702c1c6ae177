"""What those find who join: how to read a failure, how to report something, how to offer a change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, blocks, blocks_below, without_blocks
from tests.simulation.run import KINDS, replay

PAGE = ROOT / "CONTRIBUTING.md"
READING = "How to read a failed simulation"
ISSUES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
TEMPLATES = [*ISSUES, ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"]
FILE = re.compile(r"(?:\w+/)*\w[\w-]*\.md")


def is_line(shown: str, line: str) -> bool:
    """Whether a line is what a page shows of it, with `...` for what it leaves out."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), line, re.DOTALL) is not None


def missing(shown: list[str], lines: list[str]) -> list[str]:
    """What is shown and is no line, or not in this order."""
    rest = iter(lines)
    return [each for each in shown if not any(is_line(each.rstrip(), line) for line in rest)]


def test_the_failed_simulation_is_what_the_command_above_it_prints() -> None:
    command, story = blocks_below(PAGE, READING)
    found = re.fullmatch(
        r"\.venv/bin/python -m tests\.simulation --replay (\d+) --fault (\w+)", command.text.strip()
    )
    assert found is not None
    seed, fault = int(found[1]), found[2]
    lines, failed = replay(seed, fault)
    assert failed is not None
    assert len(lines) <= 60
    said = [*lines, f"seed {seed}: {failed.message}"]
    again = "; if the simulator was changed, show another seed, and say what is in it"
    assert missing(story.text.splitlines(), said) == [], again
    _, holds = replay(seed, None)
    assert holds is None, "the failure is the fault's, and not the schedule's"


def test_every_kind_of_failure_is_explained() -> None:
    text = PAGE.read_text().partition(READING)[2]
    assert {kind for kind in KINDS if f"`{kind}`: " in text} == set(KINDS)


def test_lines_are_found_in_their_order_alone() -> None:
    said = ["a (x=1, y=2)", "b", "c"]
    assert missing(["a (... y=2)", "c"], said) == []
    assert missing(["a (... y=3)"], said) == ["a (... y=3)"]
    assert missing(["c", "b"], said) == ["b"]


def test_a_release_is_made_by_the_script_that_there_is() -> None:
    (shown,) = blocks_below(PAGE, "How a release is made")
    modules = set(re.findall(r"-m ([\w.]+)", shown.text))
    assert modules == {"scripts.release"}
    assert all((ROOT / module.replace(".", "/")).with_suffix(".py").is_file() for module in modules)


@pytest.mark.parametrize("template", ISSUES, ids=lambda path: path.name)
def test_a_host_lists_what_can_be_reported(template: Path) -> None:
    _, head, body = template.read_text().split("---\n", 2)
    listed = yaml.safe_load(head)
    assert listed["name"] and listed["about"]
    assert {"lowmark explain --json", "lowmark doctor --json"} <= set(
        re.findall(r"`([^`]+)`", body)
    )


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_templates_name_files_that_there_are_and_link_to_none(template: Path) -> None:
    """A link in what somebody fills in leads from where it is filled in."""
    text = template.read_text()
    assert not re.search(r"\]\(", text)
    assert not blocks(template)
    for name in FILE.findall(without_blocks(template)):
        assert (ROOT / name).is_file(), f"{template.name} names {name}"


def test_a_file_that_is_not_there_is_found() -> None:
    assert FILE.findall("as docs/no-such.md says, and `NO.md`") == ["docs/no-such.md", "NO.md"]


def test_support_names_no_version_that_would_have_to_follow() -> None:
    assert not re.search(r"\d\.\d", (ROOT / "SECURITY.md").read_text())
