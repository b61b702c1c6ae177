"""The project's Markdown pages, taken apart for the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[Path]:
    """Every page that readers are sent to, and what those fill in who report something or change it."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".github/**/*.md")])


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its opening fence (`python spark`), and its text."""

    page: str
    info: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    name = str(page.relative_to(ROOT))
    return [Block(name, info.strip(), text) for info, text in found]


def blocks_below(page: Path, heading: str) -> list[Block]:
    """Those of one section, up to the next heading of its level."""
    section = re.search(
        rf"^## {re.escape(heading)}$(.*?)^## ", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert section is not None, f"{page.name} has no section {heading!r}"
    return [block for block in blocks(page) if f"```{block.info}\n{block.text}```" in section[1]]


def without_blocks(page: Path) -> str:
    """A page's text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link into a page may name after '#': its headings, as they are commonly slugged."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_rows(page: Path, first_column: str) -> list[list[str]]:
    """The rows of the table whose heading begins with `first_column`, as lists of cells."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
