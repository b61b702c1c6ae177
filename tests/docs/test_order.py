"""A reader finds on: the site and the README order the pages alike, and each page ends with where to go next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.config import load_config

from scripts.site_pages import relinked
from tests.docs.pages import ROOT, table_rows

LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
NEXT = re.compile(
    r"\n## Where to go next\n\n((?:- \[[^\]]+\]\([^)]+\): [^\n]+\n(?:  [^\n]+\n)*){1,3})\Z"
)
"""The last section of a page: one to three links, each with a reason."""


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_a_page_ends_with_where_to_go_next(page: Path) -> None:
    assert NEXT.search(page.read_text()), (
        f"{page.name} must end with a section 'Where to go next' of one to three items "
        "'- [page](page.md): reason'"
    )


@pytest.mark.parametrize(
    "end",
    [
        "",
        "## Where to go next\n",
        "## Where to go next\n\n- [A](a.md)\n",
        "## Where to go next\n\n" + 4 * "- [A](a.md): why.\n",
        "## Where to go next\n\n- [A](a.md): why.\n\n## More\n",
    ],
    ids=["nothing", "no link", "no reason", "too many", "not last"],
)
def test_an_end_that_leads_nowhere_is_found(end: str) -> None:
    assert NEXT.search(f"# A page\n\n{end}") is None
    assert NEXT.search("# A page\n\n## Where to go next\n\n- [A](a.md): why.\n")


def test_the_readme_has_the_sections_and_pages_of_the_site_in_their_order() -> None:
    nav = load_config(str(ROOT / "mkdocs.yml")).nav
    assert nav is not None
    sections = {
        title.lower(): pages
        for section in nav
        if isinstance(section, dict)
        for title, pages in section.items()
        if isinstance(pages, list)
    }
    rows = table_rows(ROOT / "README.md", "you want to")
    shown = {wanted.partition(",")[0]: pages for wanted, pages in rows}
    assert [*shown] == [*sections]
    for title, pages in shown.items():
        linked = LINK.findall(relinked(pages, "README.md", "index.md"))
        assert [page for page in linked if not page.startswith("examples/")] == sections[title]
