"""Pages of the site that are other files of the project: the README, ARCHITECTURE.md, CONTRIBUTING.md, the chart's README, each example
with its files, and the public names by the module that offers them. mkdocs calls the `on_` functions (its hooks).

The pages under docs/ are read in the repository too, so their links lead to files there (`../examples/lake`); here
these lead to the page that shows the file. A link that leads nowhere fails the build (`strict`).
"""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from lowmark._face import declared

ROOT = Path(__file__).resolve().parents[1]
WHOLE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "helm/lowmark/README.md": "chart.md",
}
"""Pages of the project, and where the site has them."""
BESIDE = {
    "SECURITY.md": "reporting.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CHANGELOG.md": "changes.md",
}
"""The same, of pages that others link to, and that the list of pages leaves out."""
WORDS = "ARCHITECTURE.md#words"
"""The table of words, of which the site has a page: the glossary."""
SHOWN = {"helm/lowmark/ci": "chart-values.md"}
"""Folders that pages link to, and the page that shows their files."""
COPIED = (
    "LICENSE",
    "helm/lowmark/files/alerts.yaml",
    "helm/lowmark/files/grafana/fleet.json",
    "helm/lowmark/files/grafana/pipeline.json",
)
"""Files that pages link to, as they are."""
TITLES = {
    "ci": "Values of the chart, by what they are for",
    "lake": "A lake: Kafka, Delta and Iceberg",
}
NOTEBOOK = ".ipynb"
SHOWN_SUFFIXES = {".py": "python", ".yaml": "yaml", ".sql": "sql", ".sh": "sh", ".md": "markdown"}
SABOTAGE = "LOWMARK_DOCS_SABOTAGE"
"""The variable by which `scripts.docs` has one of these planted into a page."""
PLANTED = {
    "link": "[nowhere](nowhere.md)",
    "foreign": '<script src="https://elsewhere.example/counted.js"></script>',
}
_PLANTED_AT = "start.md"
FACE = ("", "spark", "fronts", "nodes", "periods", "barrier", "admin", "errors", "testing")
"""The modules of the public face, in the order in which one needs them: `lowmark` itself, and those below it."""
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_OPENING = re.compile(r"\A(```[\w-]*) [^\n]*")
"""Of a block that has a name for the tests behind its language, which the site's highlighter would not take."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def public_names(module: str) -> dict[str, str]:
    """Where each name of a module of the public face is implemented, by the name."""
    source = ROOT / "lowmark" / f"{module or '__init__'}.py"
    return {
        name: f"{where}.{name}"
        for name, where in declared(source.read_text()).items()
        if not name.startswith("__")
    }


def examples() -> list[Path]:
    """The examples: folders, and files beside them."""
    there = [p for p in (ROOT / "examples").iterdir() if not p.name.startswith(("_", "."))]
    return sorted(p for p in there if p.is_dir() or p.suffix in (".py", NOTEBOOK))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The sections whose pages are made here are named by a folder in mkdocs.yml."""
    made = {
        "examples/": [f"examples/{each.stem}.md" for each in examples()],
        "api/": [f"api/{module or 'lowmark'}.md" for module in FACE],
    }
    assert config.nav is not None
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if isinstance(pages, str) and pages in made:
                section[title] = made[pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not under docs/."""
    for source, page in _places().items():
        if source in COPIED:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for source, page in {**WHOLE, **BESIDE}.items():
        text = relinked((ROOT / source).read_text(), source, page)
        listed = InclusionLevel.NOT_IN_NAV if source in BESIDE else InclusionLevel.UNDEFINED
        files.append(File.generated(config, page, content=text, inclusion=listed))
    for example in examples():
        page = f"examples/{example.stem}.md"
        files.append(File.generated(config, page, content=example_page(example)))
    for folder, page in SHOWN.items():
        files.append(File.generated(config, page, content=example_page(ROOT / folder)))
    files.append(File.generated(config, "glossary.md", content=glossary()))
    for module in FACE:
        page = f"api/{module or 'lowmark'}.md"
        files.append(File.generated(config, page, content=api_page(module)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of a page under docs/ lead to where the site has what they name."""
    where = page.file.src_uri
    if page.file.generated_by:
        return markdown
    planted = PLANTED.get(os.environ.get(SABOTAGE, ""), "") if where == _PLANTED_AT else ""
    return relinked(f"{markdown}\n{planted}\n" if planted else markdown, f"docs/{where}", where)


def relinked(text: str, source: str, page: str) -> str:
    """A text of the project's file `source` as the site's page: links outside of code lead to the site's pages, and
    blocks are named by their language alone."""

    def moved(link: re.Match[str]) -> str:
        before, target, anchor, after = (
            link.group(1),
            link.group(2),
            link.group(3) or "",
            link.group(4),
        )
        if re.match(r"\w+:", target):
            return link.group()
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if named + anchor == WORDS:
            named, anchor = "docs/glossary.md", ""
        place = _places().get(named, named.removeprefix("docs/"))
        return f"{before}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor}{after}"

    kept: list[str] = []
    last = 0
    for fence in _FENCE.finditer(text):
        kept += [_LINK.sub(moved, text[last : fence.start()]), _OPENING.sub(r"\1", fence.group())]
        last = fence.end()
    return "".join([*kept, _LINK.sub(moved, text[last:])])


def _places() -> dict[str, str]:
    """Where the site has what a link in the repository leads to, but for the pages under docs/."""
    shown = {f"examples/{each.name}": f"examples/{each.stem}.md" for each in examples()}
    inside = {
        str(file.relative_to(ROOT)): f"examples/{each.stem}.md"
        for each in examples()
        if each.is_dir()
        for file in each.iterdir()
    }
    copied = {name: f"files/{posixpath.basename(name)}" for name in COPIED}
    return {**WHOLE, **BESIDE, **SHOWN, **copied, **inside, **shown, "helm/lowmark": "chart.md"}


def example_page(example: Path) -> str:
    """An example with all its files, to copy; a notebook cell by cell."""
    lines = _cells(example) if example.suffix == NOTEBOOK else _example_lines(example)
    return "\n".join(lines)


def glossary() -> str:
    """The words of ARCHITECTURE.md, by the alphabet."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Words\n")[2]
    heading, line, *rows = section.partition("\n## ")[0].strip().splitlines()
    page = "\n".join(
        ["# Glossary", "", "What the words of these pages mean, each with its nearest standard term.",
         "[Concepts in pictures](docs/concepts.md) shows the first of them.", "",
         heading, line, *sorted(rows, key=lambda row: row.split("|")[1].strip().casefold())]
    )  # fmt: skip
    return relinked(page, "ARCHITECTURE.md", "glossary.md")


def _cells(notebook: Path) -> Iterator[str]:
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        yield f"{text}\n" if cell["cell_type"] == "markdown" else f"```python\n{text}\n```\n"
    yield f"The notebook is `{notebook.relative_to(ROOT)}`."


def _example_lines(example: Path) -> Iterator[str]:
    title = TITLES.get(example.name, example.stem.replace("_", " ").capitalize())
    yield f"# {title}\n"
    shown = [example] if example.is_file() else sorted(p for p in example.iterdir() if p.is_file())
    for file in shown:
        text = file.read_text() if file.suffix in SHOWN_SUFFIXES else ""
        if text.strip():
            yield f"## `{file.relative_to(ROOT)}`\n"
            yield f"````{SHOWN_SUFFIXES[file.suffix]}\n{text.rstrip()}\n````\n"


def api_page(module: str) -> str:
    """The names of a module of the public face, by their docstrings."""
    name = f"lowmark.{module}" if module else "lowmark"
    doc = ast.get_docstring(
        ast.parse((ROOT / "lowmark" / f"{module or '__init__'}.py").read_text())
    )
    lines = [f"# {name}\n", f"{doc}\n"]
    lines += [f"::: {where}\n" for _, where in sorted(public_names(module).items())]
    return "\n".join(lines)
