"""The pipeline as it is registered: as over files, but for its one front."""

from __future__ import annotations

from dataclasses import replace

from examples.flights.pipeline import SPEC as OVER_FILES

FRONT = "topic"
SPEC = replace(OVER_FILES, fronts=(FRONT,))
