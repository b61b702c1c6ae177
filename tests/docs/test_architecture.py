"""ARCHITECTURE.md leads a stranger to the right file in one step, and names only what is there."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, table_rows

PAGE = ROOT / "ARCHITECTURE.md"
NAMED = re.compile(r"`([\w/]+\.py)`(?:\*\*)? \(((?:`[\w.]+`(?:, )?)+)\)")
"""A file, and in parentheses what it defines: `file.py` (`Class.member`, `function`)."""

QUESTIONS = [
    ("that a front may label", "tracker/core/pipeline/pipeline.py", "Pipeline.new_grants"),
    ("durable before an acknowledgement", "tracker/core/process/applier.py", "LogApplier.commit"),
    ("a third store", "tracker/store/interface.py", "Store"),
    ("a third store", "tracker/store/__init__.py", "open_store"),
    ("a tick refused", "tracker/core/home/home.py", "HomePipeline.check"),
    ("does min time move", "tracker/core/cut/combiner.py", "Combiner.allowed_min_times"),
    ("heard before anything is announced", "tracker/core/cut/stable.py", "StableCut.is_reached"),
    ("Who owns a slot", "tracker/core/model/routing.py", "RoutingTable.owner"),
    ("home to a node", "tracker/core/model/routing.py", "RoutingTable.home"),
    ("comes too late", "tracker/core/shard/shard.py", "ShardPipeline.late"),
    ("field outlive a crash", "tracker/core/model/durable.py", "survives"),
    ("silent front evicted", "tracker/core/admission/silence.py", "Silence.evict"),
    ("older process of a node", "tracker/core/admission/nodes.py", "Nodes.current"),
    ("restarted process know", "tracker/core/process/snapshot.py", "ProcessSnapshot"),
    ("shards tell each other", "tracker/core/log/frames.py", "ShardReport"),
    ("frame of a peer", "tracker/core/process/checking.py", "EntryJudge"),
    ("when shards change", "tracker/core/rescaling/rescaling.py", "Rescaling.go_on"),
    ("checked before a query starts", "local_tracker/spark/query/plans.py", "Routes"),
    ("batch of a Spark query", "local_tracker/spark/query/ticks.py", "QueryTicks.tick"),
    ("setting of `lowmark serve`", "tracker/service/settings.py", "ServeSettings"),
]
"""What a stranger asks, and where the answer is: words of the question, a file, what it defines."""


def members(definition: ast.ClassDef) -> set[str]:
    """The methods of a class, and the fields that it declares or assigns."""
    found = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@cache
def defined(path: Path) -> frozenset[str]:
    """What a module defines: `function`, `Class`, `Class.member`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name, *(f"{node.name}.{member}" for member in members(node))}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return frozenset(found)


def named(text: str) -> list[tuple[str, str]]:
    """(file, name) of all that stands in a text in the form of NAMED."""
    return [
        (path, name) for path, names in NAMED.findall(text) for name in re.findall(r"[\w.]+", names)
    ]


def not_there(text: str) -> list[str]:
    """What a text names that does not exist: files, and what is not defined in the file beside it."""
    missing = []
    for path, name in named(text):
        if not (ROOT / path).is_file():
            missing.append(path)
        elif name not in defined(ROOT / path):
            missing.append(f"{path}: {name}")
    return missing


def answers(text: str, question: str) -> list[tuple[str, str]]:
    """Where the rows of the last table whose question has these words lead to."""
    table = text.partition("\n## Where to change what\n")[2]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    return [found for row in rows if question in row[1] for found in named("|".join(row[2:]))]


@pytest.mark.parametrize(("question", "path", "name"), QUESTIONS)
def test_a_question_leads_to_the_file_in_one_step(question: str, path: str, name: str) -> None:
    assert (path, name) in answers(PAGE.read_text(), question)


def test_all_that_the_page_names_is_defined_in_the_file_beside_it() -> None:
    text = PAGE.read_text()
    assert len(named(text)) > 100
    assert not_there(text) == []


def test_a_name_that_is_not_there_is_found() -> None:
    text = PAGE.read_text()
    path = "tracker/core/pipeline/pipeline.py"
    wrong = text.replace("`Pipeline.new_grants`", "`Pipeline.no_such_grants`")
    assert set(not_there(wrong)) == {f"{path}: Pipeline.no_such_grants"}
    assert (path, "Pipeline.new_grants") not in answers(wrong, "that a front may label")
    moved = text.replace("`tracker/store/interface.py`", "`tracker/store/moved.py`")
    assert set(not_there(moved)) == {"tracker/store/moved.py"}
    assert answers(text.replace("a third store", "another store"), "a third store") == []


def test_components_own_the_fields_that_the_map_says() -> None:
    rows = table_rows(PAGE, "component")
    checked = 0
    for component, *cells in rows:
        classes = named(component)
        owned = {
            member.partition(".")[2]
            for path, name in classes
            for member in defined(ROOT / path)
            if member.startswith(f"{name}.")
        }
        fields = re.findall(r"`([a-z_]+)`", " ".join(cells)) if classes else []
        assert {*fields} <= owned, f"{component} owns no {sorted({*fields} - owned)}"
        checked += len(fields)
    assert checked > 60


def test_the_picture_of_the_core_is_the_contract() -> None:
    lines = next(b.text for b in blocks(PAGE) if "insight" in b.text).splitlines()
    drawn = [re.split(r" {2,}", line)[0] for line in lines]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert drawn == next(c["layers"] for c in contracts if c["name"] == "The rooms of the core")


@pytest.mark.parametrize("number", range(1, 11))
def test_what_holds_a_rule_exists(number: int) -> None:
    rules = re.split(r"\*\*Rule (\d+): ", PAGE.read_text())
    rule = dict(zip(rules[1::2], rules[2::2], strict=True))[str(number)].partition("\n\n")[0]
    tests, _, mutations = rule.partition("Held by ")[2].partition("mutations ")
    paths = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    planted = re.findall(r"`([\w-]+)`", mutations)
    assert named(rule) and paths and planted
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    for name in planted:
        mutation = tomllib.loads((ROOT / "tests" / "mutations" / f"{name}.toml").read_text())
        assert mutation["rule"] == number, f"{name} breaks rule {mutation['rule']}"
