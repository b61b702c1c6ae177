"""The site: links of the repository lead to its pages, all public names are in it, and nothing of other sites."""

from __future__ import annotations

from pathlib import Path

from lowmark._face import declared
from scripts.docs import foreign
from scripts.site_pages import FACE, ROOT, api_page, examples, glossary, public_names, relinked
from tests.docs.pages import table_rows


def test_links_lead_to_the_pages_of_the_site() -> None:
    text = "[a](../README.md#try-it) [b](spark.md) [c](../examples/lake) [d](https://a.example) ![e](img/x.svg)"
    moved = "[a](index.md#try-it) [b](spark.md) [c](examples/lake.md) [d](https://a.example) ![e](img/x.svg)"
    assert relinked(text, "docs/kafka.md", "kafka.md") == moved
    assert relinked("[f](docs/spark.md#limits)", "README.md", "index.md") == "[f](spark.md#limits)"
    assert (
        relinked("[g](../../docs/kubernetes.md)", "helm/lowmark/README.md", "chart.md")
        == "[g](kubernetes.md)"
    )


def test_the_words_of_the_architecture_are_the_glossary() -> None:
    link = "[words](../ARCHITECTURE.md#words), [map](../ARCHITECTURE.md#the-map)"
    moved = "[words](glossary.md), [map](architecture.md#the-map)"
    assert relinked(link, "docs/kafka.md", "kafka.md") == moved
    shown = [line for line in glossary().splitlines() if line.startswith("| ")]
    words = [row[0] for row in table_rows(ROOT / "ARCHITECTURE.md", "word")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in shown] == [
        "word",
        *sorted(words, key=str.casefold),
    ]


def test_code_stays_as_it_is_but_for_the_names_of_blocks() -> None:
    text = "```python front\nx = '[a](../README.md)'\n```\n[a](../README.md)"
    assert (
        relinked(text, "docs/a.md", "a.md")
        == "```python\nx = '[a](../README.md)'\n```\n[a](index.md)"
    )


def test_every_module_of_the_public_face_has_a_page_with_all_its_names() -> None:
    modules = {file.stem for file in (ROOT / "lowmark").glob("*.py") if declared(file.read_text())}
    assert {module or "__init__" for module in FACE} == modules
    for module in FACE:
        page = api_page(module)
        for where in public_names(module).values():
            assert f"::: {where}\n" in page


def test_every_example_has_a_page() -> None:
    assert {"flights", "hours", "lake"} <= {example.stem for example in examples()}


def test_what_a_page_loads_of_other_sites_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="https://a.example">a</a><script src="//cdn.example/x.js"></script><img src="img/y.png">'
        '<link rel="stylesheet" href="https://b.example/z.css"><link rel="canonical" href="https://c.example/">'
    )
    assert foreign(page) == ["//cdn.example/x.js", "https://b.example/z.css"]
