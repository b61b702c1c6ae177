"""The part of a page that a script writes, between two marks."""

from __future__ import annotations

from pathlib import Path


def between(page: str, marks: tuple[str, str], text: str, path: Path, what: str) -> str:
    """The page with a text between its marks, the rest as it is. path, what: of the page, and of what is written there.
    Raises SystemExit where the marks are not there."""
    begin, end = marks
    head, found, rest = page.partition(begin)
    _, ended, tail = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{path} has no marks for {what}")
    return head + begin + text + end + tail


def table_marks(name: str, script: str) -> tuple[str, str]:
    """Those of a table that a script writes."""
    return f"<!-- {name}: written by {script} -->\n", f"\n<!-- end of {name} -->"
