"""The site in a real browser, opened as files: it is searched, and its calculator computes, without a server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from benchmarks.sizing import LOAD, measured, on_the_page, reckoned
from tests.dashboard.browser import Browser, Page
from tests.docs.pages import ROOT

NUMBERS = {name: float(text) for name, text in on_the_page("What you have", 2).items()}
FIELD = "document.querySelector('.md-search__input')"
RESULT = "document.querySelector('.md-search-result__link')"


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Browser, str]]:
    """A browser, and where it finds the site. The site is built without mkdocstrings, which takes most of the time: the
    pages of the Python API are there, and nearly empty."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        site = Path(directory, "site")
        plugins = ["search", "offline"]
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), plugins=plugins))
        browser = Browser(Path(directory))
        yield browser, site.as_uri()
        browser.close()


def test_a_word_is_searched_and_its_page_opened(opened: tuple[Browser, str]) -> None:
    browser, site = opened
    page = browser.page(f"{site}/index.html")
    page.until(f"document.readyState === 'complete' && {FIELD} !== null")
    page.run(f"{FIELD}.focus()")
    page.call("Input.insertText", text="withWatermark")
    page.press("End")  # the search listens to keys
    page.until(f"{RESULT}?.href.includes('/faq.html')")
    found = browser.page(page.run(f"{RESULT}.href"))
    found.until_says("Do I still need withWatermark?", "article")
    assert page.complaints() + found.complaints() == []
    page.close()
    found.close()


def _shown(page: Page) -> dict[str, str]:
    rows = "[...[...document.querySelectorAll('article table')][2].tBodies[0].rows]"
    cells = "[row.cells[0].innerText.trim(), row.cells[3].innerText.trim()]"
    return dict(page.run(f"{rows}.map(row => {cells})"))


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        LOAD,
        {"hosts": 200.0, "window": 2.5, "subscribers": 1000.0},
        {
            "fronts": 0.0,
            "queries": 30_000.0,
            "interval": 60.0,
            "segments": 20_000.0,
            "backlog": 12.0,
        },
    ],
    ids=["the example", "what was measured", "many hosts", "many queries"],
)
def test_the_calculator_computes_what_its_oracle_does(
    opened: tuple[Browser, str], numbers: dict[str, float]
) -> None:
    browser, site = opened
    page = browser.page(f"{site}/sizing.html")
    page.until(f"document.querySelectorAll('article input').length === {len(NUMBERS)}")
    names = [*NUMBERS]
    for name, number in numbers.items():
        field = f"document.querySelectorAll('article input')[{names.index(name)}]"
        page.run(f"{field}.value = {json.dumps(number)}, {field}.dispatchEvent(new Event('input'))")
    expected = reckoned({**NUMBERS, **numbers}, measured())
    assert _shown(page) == {name: f"{float(f'{v:.3g}'):,.10g}" for name, v in expected.items()}
    assert page.complaints() == []
    page.close()
