"""The flights' pipeline before, between and behind its changes, and where the queries that come and go keep what.

airports -> parse -> enrich -> aggregate
              |        +-----> carriers                 until it is removed
              |        +-----> delayed --+              from when it is added
              +-------> dead_letters <---+
pulse
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from examples.flights.pipeline import SPEC, Places
from lowmark import Edge

LATE_MIN = 60
"""A flight that leaves so many minutes late is in the table of delayed ones."""

LATE_LETTERS = "late"
"""What the names of files with letters of delayed flights begin with."""

REMOVED, ADDED, PULSE = "carriers", "delayed", "pulse"

BEFORE = replace(
    SPEC,
    segments=(*SPEC.segments, REMOVED, PULSE),
    edges=(*SPEC.edges, Edge("enrich", REMOVED)),
    fronts=(*SPEC.fronts, PULSE),
)
GROWN = replace(
    BEFORE,
    segments=(*BEFORE.segments, ADDED),
    edges=(*BEFORE.edges, Edge("enrich", ADDED), Edge(ADDED, "dead_letters")),
)
SHRUNK = replace(
    GROWN,
    segments=tuple(segment for segment in GROWN.segments if segment != REMOVED),
    edges=tuple(edge for edge in GROWN.edges if edge.target != REMOVED),
)
SEGMENTS = GROWN.segments
"""All that there ever are."""


@dataclass(frozen=True, slots=True)
class ChangePlaces(Places):
    """Directories of a run: also what `enrich` writes for each of its readers, and their tables."""

    def written_for(self, reader: str) -> Path:
        """What `enrich` writes for a query."""
        return self.enriched if reader == "aggregate" else self.root / f"for-{reader}"

    def table(self, query: str) -> Path:
        """What a query that comes or goes has written."""
        return self.root / "tables" / query
