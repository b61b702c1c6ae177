"""Two ways to the barrier: a front through a tracked query, and one that is behind, without."""

from __future__ import annotations

from pathlib import Path

from tracker.core.model import Edge, PipelineSpec

NAME, READ, DELIVER = "barrier", "read", "deliver"
QUERIED, DIRECT = "queried", "direct"
"""The fronts: one feeds what the query reads, the other what the barrier takes."""
SPEC = PipelineSpec(NAME, (READ, DELIVER), (Edge(READ, DELIVER),), fronts=(QUERIED, DIRECT))
FED = {QUERIED: READ, DIRECT: DELIVER}
BARRIER = "load"


def read_directory(root: Path) -> Path:
    """What the query reads."""
    return root / "in"


def written_directory(root: Path) -> Path:
    """What the query writes."""
    return root / "out"


def direct_directory(root: Path) -> Path:
    return root / "direct"


def heard_path(root: Path) -> Path:
    """What the barrier's processes have heard of min time, each line before they act on it."""
    return root / "heard.jsonl"
