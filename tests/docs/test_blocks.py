"""Each block of code in a page is code: it parses, names what there is, and is of a language that is checked here. What
else its page says of it, the tests of that page run."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib

import pytest
import yaml

from scripts.site_pages import FACE, public_names
from tests.docs.pages import Block, blocks, pages
from tests.waits import HANG_S

OFFERED = {
    f"lowmark.{module}".rstrip("."): {*public_names(module)}
    | ({*FACE[1:]} if not module else set())
    for module in FACE
}
"""By module of the public face what can be imported from it."""
SAMPLES = {"text", "", "mermaid", "properties", "diff"}
"""What is shown, and is no code: output, figures, settings of others, changes (which `make newcomer` applies)."""


def _of(*languages: str) -> list[Block]:
    found = [block for page in pages() for block in blocks(page)]
    return [block for block in found if block.info.split(" ")[0] in languages]


def _name(block: Block) -> str:
    return f"{block.page}: {block.text.strip().splitlines()[0][:50] if block.text.strip() else ''}"


@pytest.mark.parametrize("block", _of("python"), ids=_name)
def test_python_compiles_and_imports_what_there_is(block: Block) -> None:
    tree = compile(
        block.text, block.page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in OFFERED:
            missing = {alias.name for alias in node.names} - OFFERED[node.module]
            assert not missing, f"{block.page}: {node.module} has no {missing}"
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "lowmark"
        ):
            assert node.attr in OFFERED["lowmark"], f"{block.page} names lowmark.{node.attr}"


@pytest.mark.parametrize("block", _of("sh", "bash"), ids=_name)
def test_shell_is_shell(block: Block) -> None:
    shell = block.text.replace("$ ", "", 1) if block.text.startswith("$ ") else block.text
    # What a page leaves to the reader to fill in.
    shell = re.sub(r"\.\.\.|<[A-Z_]+>", "x", shell)
    said = subprocess.run(
        ["bash", "-n"], input=shell, check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("block", _of("yaml", "json", "toml"), ids=_name)
def test_data_parses(block: Block) -> None:
    match block.info.split(" ")[0]:
        case "yaml":
            assert list(yaml.safe_load_all(block.text))
        case "json":
            assert [json.loads(line) for line in _documents(block.text)]
        case _:
            assert tomllib.loads(block.text)


def _documents(text: str) -> list[str]:
    """One document, or one a line."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text.strip().splitlines()
    return [text]


def test_every_block_is_of_a_language_that_is_checked() -> None:
    checked = {"python", "sh", "bash", "yaml", "json", "toml", "sql"} | SAMPLES
    for page in pages():
        for block in blocks(page):
            assert block.info.split(" ")[0] in checked, f"{block.page}: a block of {block.info!r}"
