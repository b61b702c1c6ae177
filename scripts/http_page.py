"""Writes the table of routes of docs/http.md from their declarations: `python -m scripts.http_page`.

`--check` fails if the page does not have what they declare; the tests do the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from scripts.marked import between, table_marks
from scripts.summary import ROOT
from tracker.dashboard.routes import ROUTES

PAGE = ROOT / "docs" / "http.md"


def rows() -> Iterator[str]:
    """The table, in Markdown."""
    yield from ("| GET | parameters | what it answers |", "|---|---|---|")
    for route in ROUTES:
        given = ", ".join(f"`{each.name}`" for each in route.parameters if each.place != "path")
        yield f"| `{route.path}` | {given} | {route.what} |"


def written(page: str) -> str:
    """The page with its table as the routes are declared."""
    marks = table_marks("routes", "scripts.http_page")
    return between(page, marks, "\n".join(rows()), PAGE, "the routes")


def main() -> int:
    page = PAGE.read_text()
    fresh = written(page)
    if "--check" in sys.argv[1:]:
        print("fresh" if page == fresh else f"{PAGE} is not fresh: python -m scripts.http_page")
        return int(page != fresh)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
