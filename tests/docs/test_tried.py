"""The first table of "What was tried" in docs/spark-reference.md names what is tried, and nothing else."""

from __future__ import annotations

import re

from local_tracker.spark.versions import SUPPORTED_PYSPARK
from tests.connectors.kinds import CONNECTORS
from tests.connectors.lake.__main__ import NAMES
from tests.docs.pages import ROOT, table_rows
from tests.spark_versions.__main__ import ROWS

PAGE = ROOT / "docs" / "spark-reference.md"
TABLE = table_rows(PAGE, "source")
BY_CONNECTORS = "`make connectors`: "


def versions(cell: str) -> str:
    return cell.partition(",")[0]


def test_it_is_where_the_readme_sends_to() -> None:
    assert "docs/spark-reference.md#what-was-tried" in (ROOT / "README.md").read_text()
    section = PAGE.read_text().partition("\n## What was tried\n")[2]
    assert section.lstrip().startswith("| source | sink |")


def test_each_connector_has_a_row_and_each_such_row_a_connector() -> None:
    told = {
        row[4].removeprefix(BY_CONNECTORS): versions(row[3])
        for row in TABLE
        if row[4].startswith(BY_CONNECTORS)
    }
    assert told == {kind.name: kind.pyspark for kind in CONNECTORS}


def test_each_file_of_queries_over_tables_has_a_row() -> None:
    commands = re.findall(r"`python -m tests.connectors.lake (\w+)`", "".join(r[4] for r in TABLE))
    assert sorted(commands) == sorted(NAMES)


def test_files_are_tried_on_all_versions() -> None:
    (row, *_) = TABLE
    assert row[3] == f"{SUPPORTED_PYSPARK[0]} to {SUPPORTED_PYSPARK[-1]}"
    assert len(ROWS) == 16, "the table says sixteen"


def test_what_is_not_tried_says_so() -> None:
    untried = [row for row in TABLE if not row[3]]
    assert untried
    assert all(re.search("not tried|refused", row[4]) for row in untried)
