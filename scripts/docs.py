"""`make docs`: the site of the project's pages, and whether it is whole.

    python -m scripts.docs [--sabotage link|foreign]

Builds it strictly (a link or an anchor that leads nowhere is an error), looks whether a page asks another site for
anything, and runs the tests of the pages: each block of code in them is run, parsed or looked up. With a sabotage a page
gets a link that leads nowhere, or asks another site, and only the site is looked at.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

from scripts.site_pages import PLANTED, SABOTAGE
from scripts.summary import BUILD, ROOT, finish
from tests.docs.pages import blocks, pages

SITE = BUILD / "site"
RESOURCES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a page loads, by tag: the attribute that names it."""
LINKS_ALONE = {"canonical", "prev", "next"}
"""Relations of `link` that load nothing."""


class _Resources(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = RESOURCES.get(tag)
        if name and given.get(name) and given.get("rel") not in LINKS_ALONE:
            self.found.append(str(given[name]))


def foreign(page: Path) -> list[str]:
    """What a built page loads from other sites."""
    parser = _Resources()
    parser.feed(page.read_text())
    return [each for each in parser.found if re.match(r"(\w+:)?//", each)]


def build(sabotage: str = "") -> subprocess.CompletedProcess[str]:
    """Builds the site into `SITE`, with what a sabotage plants."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--clean", "--site-dir", str(SITE)],
        cwd=ROOT, check=False, capture_output=True, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", SABOTAGE: sabotage},
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.docs", description=__doc__)
    parser.add_argument("--sabotage", choices=[*PLANTED], default="")
    sabotage = parser.parse_args(arguments).sabotage
    start = time.monotonic()
    print("== the site", flush=True)
    built = build(sabotage)
    said = [line for line in built.stderr.splitlines() if not line.startswith("INFO")]
    print("\n".join(said))
    made = sorted(SITE.rglob("*.html"))
    outside = {str(page.relative_to(SITE)): found for page in made if (found := foreign(page))}
    for page, found in outside.items():
        print(f"{page} loads {', '.join(found)}")
    tests = 0
    if not sabotage:
        print("== blocks, links and tables of the pages", flush=True)
        tests = subprocess.call([sys.executable, "-m", "pytest", "-q", "tests/docs"], cwd=ROOT)
    shown: dict[str, object] = {
        "pages": len(made),
        "blocks": sum(len(blocks(page)) for page in pages()),
        "broken": sum(line.startswith("WARNING") for line in said),
        "foreign": sum(map(len, outside.values())),
        "seconds": round(time.monotonic() - start),
    }
    details = {"foreign_by_page": outside, "build_exit": built.returncode, "tests_exit": tests}
    ok = built.returncode == 0 and bool(made) and not outside and tests == 0
    return finish("docs", ok=ok, shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
