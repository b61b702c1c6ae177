"""In which group of a deployment a pipeline lives (see docs/groups.md)."""

from __future__ import annotations

from dataclasses import dataclass

DIRECTORY_GROUP = 0
"""The group that records where each pipeline lives."""
NOWHERE = -1
"""No group: the name is free."""
MAX_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pipeline's name belongs. version: grows whenever that is decided on, and is never given to a name twice;
    came_from: of the placement from which the pipeline was moved; of the first claim of the name where it was not. above: in a
    generation above this one a pipeline begins that is registered by it; of a name that is given back, that which ended the
    one that had it."""

    pipeline: str
    group: int
    version: int
    came_from: int = 0
    above: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A group as the directory knows it: where its processes are reached, as host:port, and whether it is given no new
    pipelines."""

    group: int
    addresses: tuple[str, ...]
    cordoned: bool = False
