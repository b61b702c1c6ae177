"""README and the pages on Spark name the versions that the package demands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from local_tracker.spark.versions import SUPPORTED_PYSPARK
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "docs" / "spark.md"]
REFERENCE = ROOT / "docs" / "spark-reference.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_the_python_that_is_demanded(page: Path) -> None:
    demanded = PROJECT["requires-python"].removeprefix(">=")
    assert set(re.findall(r"Python ≥ ([\d.]*\d)", page.read_text())) == {demanded}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_the_range_of_spark_that_is_demanded(page: Path) -> None:
    (pyspark,) = (
        extra for extra in PROJECT["optional-dependencies"]["spark"] if extra.startswith("pyspark")
    )
    first, last = SUPPORTED_PYSPARK[0], SUPPORTED_PYSPARK[-1]
    assert f"PySpark {first} to PySpark {last}" in " ".join(page.read_text().split())
    major, minor = map(int, last.split("."))
    assert pyspark == f"pyspark>={first},<{major}.{minor + 1}"


def test_the_table_of_versions_has_those_that_are_tried() -> None:
    rows = re.findall(r"^\| (\d\.\d) \|", REFERENCE.read_text(), re.MULTILINE)
    assert tuple(rows) == SUPPORTED_PYSPARK
