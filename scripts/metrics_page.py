"""Writes the tables of docs/metrics.md from the list of metrics: `python -m scripts.metrics_page`.

`--check` fails if the page does not say what the list says; the tests do the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts.marked import between, table_marks
from scripts.summary import ROOT
from tracker.metrics.names import LOCAL_TRACKER, PROCESS, SERVICE, Metric

PAGE = ROOT / "docs" / "metrics.md"
TABLES = {"service": SERVICE, "local-tracker": LOCAL_TRACKER, "process": PROCESS}


def table(metrics: Sequence[Metric]) -> str:
    """The rows of a list of metrics, in Markdown."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows)


def written(page: str) -> str:
    """The page with its tables as the list has them, between the marks of each."""
    for name, metrics in TABLES.items():
        page = between(page, table_marks(name, "scripts.metrics_page"), table(metrics), PAGE, name)
    return page


def main() -> int:
    page = PAGE.read_text()
    fresh = written(page)
    if "--check" in sys.argv[1:]:
        print("fresh" if page == fresh else f"{PAGE} is not fresh: python -m scripts.metrics_page")
        return 0 if page == fresh else 1
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
