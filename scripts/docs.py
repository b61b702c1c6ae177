"""`make docs`: the site of the project's pages, and whether it is whole.

    python -m scripts.docs

Builds it strictly (a link or an anchor that leads nowhere is an error), looks whether a page asks another site for
anything, and runs the tests of the pages: each block of code in them is run, parsed or looked up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

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


def build() -> subprocess.CompletedProcess[str]:
    """Builds the site into `SITE`."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--clean", "--site-dir", str(SITE)],
        cwd=ROOT, check=False, capture_output=True, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip


def main() -> int:
    start = time.monotonic()
    print("== the site", flush=True)
    built = build()
    print("\n".join(line for line in built.stderr.splitlines() if not line.startswith("INFO")))
    made = sorted(SITE.rglob("*.html")) if built.returncode == 0 else []
    outside = {str(page.relative_to(SITE)): found for page in made if (found := foreign(page))}
    for page, found in outside.items():
        print(f"{page} loads {', '.join(found)}")
    print("== blocks, links and tables of the pages", flush=True)
    tests = subprocess.call([sys.executable, "-m", "pytest", "-q", "tests/docs"], cwd=ROOT)
    shown: dict[str, object] = {
        "pages": len(made),
        "blocks": sum(len(blocks(page)) for page in pages()),
        "foreign": sum(map(len, outside.values())),
        "seconds": round(time.monotonic() - start),
    }
    details = {"foreign_by_page": outside, "build_exit": built.returncode, "tests_exit": tests}
    return finish(
        "docs", ok=bool(made) and not outside and tests == 0, shown=shown, details=details
    )


if __name__ == "__main__":
    sys.exit(main())
