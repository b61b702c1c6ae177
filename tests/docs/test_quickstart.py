"""examples/quickstart.ipynb runs as a new user runs it, and is kept without what it has put out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from scripts.site_pages import example_page
from tests.docs.pages import ROOT
from tests.waits import HANG_S, PROGRAM_S

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def as_kept() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def executed(notebook: Any, directory: Path) -> Any:
    """Run in a kernel of its own, anywhere else than in the project. Raises CellExecutionError."""
    NotebookClient(
        notebook, timeout=PROGRAM_S, startup_timeout=HANG_S, kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
    ).execute()  # fmt: skip
    return notebook


def put_out(notebook: Any, cell: str) -> str:
    """The text that a cell has put out."""
    (found,) = [each for each in notebook.cells if each.id == cell]
    return "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in found.outputs
    )


def test_every_cell_runs(tmp_path: Path) -> None:
    notebook = executed(as_kept(), tmp_path)
    assert "127.0.0.1:" in put_out(notebook, "tracker")
    assert "held by open items of segment pack" in put_out(notebook, "stands")
    assert "is shipped" in put_out(notebook, "ship")
    (plot,) = [each for each in notebook.cells if each.id == "plot"]
    assert any("image/svg+xml" in output.get("data", {}) for output in plot.outputs)


def test_a_cell_that_fails_is_noticed(tmp_path: Path) -> None:
    notebook = as_kept()
    cells = {cell.id: cell for cell in notebook.cells}
    # Nobody packs: what follows must not find the orders packed.
    cells["pack"].source = cells["pack"].source.replace("for slot, value in queue:", "for _ in ():")
    cells["pack"].source = cells["pack"].source.replace("timeout_s=60", "timeout_s=0.5")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        executed(notebook, tmp_path)


def test_it_is_kept_without_output() -> None:
    notebook = as_kept()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 10
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_the_site_shows_its_cells() -> None:
    page = example_page(NOTEBOOK)
    assert page.startswith("# Lowmark in ten cells\n")
    for cell in as_kept().cells:
        assert cell.source in page
