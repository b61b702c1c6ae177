"""Pages only name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, pages, without_blocks

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:\w[\w.-]*/)+[\w.*-]*)`")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(without_blocks(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}: no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_paths_in_the_text_exist(page: Path) -> None:
    made_by_commands = ("build/", ".venv/")
    top_level = {path.name for path in ROOT.iterdir()}
    for named in CODE_PATH.findall(without_blocks(page)):
        if named.split("/")[0] in top_level and not named.startswith(made_by_commands):
            assert list(ROOT.glob(named.rstrip("/"))), (
                f"{page.name} names {named}, which is not there"
            )


def test_the_map_of_the_core_is_complete() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    core = ROOT / "tracker" / "core"
    for module in core.rglob("*.py"):
        name = module.relative_to(ROOT)
        room = f"`{name.parent}/`"  # named as a whole, with what each of its modules is for
        told = f"`{name}`" in text or room in text
        assert module.name == "__init__.py" or told, f"ARCHITECTURE.md lacks {name}"
