"""README and docs/spark.md name the versions that the package demands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "docs" / "spark.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_the_python_that_is_demanded(page: Path) -> None:
    demanded = PROJECT["requires-python"].removeprefix(">=")
    assert set(re.findall(r"Python ≥ ([\d.]*\d)", page.read_text())) == {demanded}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_the_one_release_of_spark_that_is_demanded(page: Path) -> None:
    (pyspark,) = (
        extra for extra in PROJECT["optional-dependencies"]["spark"] if extra.startswith("pyspark")
    )
    (named,) = set(re.findall(r"PySpark ([\d.]*\d)", page.read_text()))
    major, minor = map(int, named.split("."))
    assert pyspark == f"pyspark>={major}.{minor},<{major}.{minor + 1}"
