"""Programs of pages that write rows in order, run as they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tracker
from fronts.files import FileFront
from tests.docs.pages import ROOT, blocks
from tracker.core.model import PipelineSpec

KEYS = ["o2", "o1", "o0"]
"""Of the rows that a shown barrier writes, in order: by their own times."""


def program(page: str, info: str) -> str:
    """A block of a page, by the words after its fence."""
    (found,) = [block.text for block in blocks(ROOT / "docs" / page) if block.info == info]
    return found


def run_shown(page: str, info: str, directory: Path, **more: Any) -> dict[str, Any]:
    """Runs a barrier of a page over three rows; returns the names that it has."""
    files = directory / "files"
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("orders", ("deliver",), fronts=("shop",)))
        with FileFront(embedded.target, "orders", "shop", "deliver", files, format="json") as front:
            assert (
                front.write([{"order": f"o{n}", "time": 2**60 - n} for n in range(3)]) is not None
            )
            front.leave()
        names: dict[str, Any] = {
            "target": embedded.target, "files": str(files), "state": directory / "state", **more,
        }  # fmt: skip
        exec(compile(program(page, info), page, "exec"), names)
    return names
