"""Where a barrier's units come from: what a source has committed, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tracker.core.model.units import unit_name
from tracker.files import STORES, Stores, child


@dataclass(frozen=True, slots=True)
class Found:
    """Units that a source has committed together. scope: who numbers its commits, one query say; number: of
    this one, -1 where they have none; names: of the units."""

    scope: str
    number: int
    names: tuple[str, ...]


class Source(Protocol):
    """Where units come from."""

    @property
    def name(self) -> str:
        """The source's own, the same after a restart."""

    def after(self, cursors: Mapping[str, int]) -> Iterator[Found]:
        """What was committed after the last commits that are known, by scope; in the order of each scope's
        numbers. Names that were told before may be among them. Raises FilesError where it cannot be read."""


class FilesIn:
    """All files in a directory, such as those of a file front: each is a unit of its own."""

    def __init__(self, location: str, stores: Stores = STORES) -> None:
        """Raises FilesError where it is out of reach."""
        self.name = stores.location(location)
        self._files = stores.files(self.name)
        self._told: set[str] = set()

    def after(self, cursors: Mapping[str, int]) -> Iterator[Found]:
        if not cursors:
            self._told = set()  # to another reader, or to one that begins anew
        there = {name for name in self._files.names(self.name) if name[0] not in "._"}
        new = sorted(there - self._told)
        if new:
            yield Found("", -1, tuple(unit_name(child(self.name, name)) for name in new))
        self._told = there
