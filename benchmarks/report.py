"""python -m benchmarks.report: puts the figures of build/bench.json into docs/performance.md.

The page has a block for each benchmark, between `<!-- bench NAME -->` and `<!-- end -->`. Those that the
run has figures of are written anew, with the machine that they are from; others stay as they are. Several
files may be named; a later one's figures take the place of an earlier one's.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import table
from benchmarks.machine import described
from benchmarks.plot import plot
from scripts.summary import BUILD, ROOT

PAGE = ROOT / "docs" / "performance.md"
IMAGES = "img"
_BLOCK = re.compile(r"<!-- bench (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def main(files: Sequence[str]) -> int:
    runs = [json.loads(Path(file).read_text()) for file in files or [str(BUILD / "bench.json")]]
    page, filled = filled_page(PAGE.read_text(), runs, PAGE.parent / IMAGES)
    PAGE.write_text(page)
    print(f"report: OK filled={','.join(sorted(filled)) or 'none'} page={PAGE.relative_to(ROOT)}")
    return 0


def filled_page(
    page: str, runs: Sequence[dict[str, Any]], images: Path
) -> tuple[str, frozenset[str]]:
    """The page with the blocks that the runs have figures of written anew, and which those are; plots
    are written to `images`. Raises ValueError for figures that the page has no block for."""
    blocks: dict[str, str] = {}
    for run in runs:
        for name in dict.fromkeys(result["section"] for result in run["results"]):
            blocks[name] = _block(name, run, images)
    missing = blocks.keys() - set(_BLOCK.findall(page))
    if missing:
        raise ValueError(f"docs/performance.md has no block for {', '.join(sorted(missing))}")

    def written(match: re.Match[str]) -> str:
        name = match[1]
        if name not in blocks:
            return match[0]
        return f"<!-- bench {name} -->\n{blocks[name]}\n<!-- end -->"

    return _BLOCK.sub(written, page), frozenset(blocks)


def _block(name: str, run: dict[str, Any], images: Path) -> str:
    figures = [result for result in run["results"] if result["section"] == name]
    parts = [f"{described(run['machine'])}; budget `{run['budget']}`.", table(figures)]
    for curve in run["curves"]:
        if curve["section"] != name:
            continue
        file = f"bench-{re.sub('[^a-z]+', '-', curve['name'].lower())}.svg"
        images.mkdir(exist_ok=True)
        (images / file).write_text(
            plot(curve["name"], curve["x"], curve["y"], curve["lines"], curve["logarithmic"])
        )
        parts.append(f"![{curve['name']}]({IMAGES}/{file})")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
