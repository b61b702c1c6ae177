"""The stable cut (M) at one process, and how far it must come before anything is announced (rule 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracker.core.cut.vectors import Vectors
from tracker.core.model import durable as d


@dataclass(init=False, eq=False)
class StableCut:
    """The vectors that have been heard, and a lower bound of M from before. Snapshots keep M itself."""

    vectors: Vectors = d.forgotten(d.HEARD_AGAIN)
    _needed: dict[int, int] = d.forgotten("it is how far M had come at the last snapshot")
    """Lower bound of the stable cut before anything is announced: peers may have let go of runs below it. Empty once
    M is known to have come as far, which it never falls behind again."""
    held_back: bool = d.forgotten("after a restart announcements wait for M")
    """Whether announcements wait for that bound; once reached, every pipeline is looked at again."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.vectors = Vectors(shards)
        self._needed = {}
        self.held_back = False

    def need(self, cut: Iterable[tuple[int, int]]) -> None:
        """Nothing is announced before the stable cut has come as far. Reports of changes need nothing: once in a
        while all pipelines may be looked at again, but not after each report."""
        for home, number in cut:
            self._needed[home] = max(number, self._needed.get(home, 0))
            self.held_back = True

    def hold_back(self) -> None:
        """Something may have been to announce, and was not, since nothing may be announced yet."""
        self.held_back = True

    def release(self) -> None:
        """M has come as far, and announcements go on."""
        self.held_back = False
        self._needed.clear()

    @property
    def is_reached(self) -> bool:
        """Whether the stable cut has come as far as is needed."""
        cut = self.vectors.cut
        return all(cut.get(home, 0) >= number for home, number in self._needed.items())

    def let_go_by(self) -> tuple[tuple[int, int], ...]:
        """The stable cut as far as it has ever come, also before a restart: runs inside it are not kept."""
        needed, cut = self._needed, self.vectors.cut
        return tuple((home, max(cut[home], needed.get(home, 0))) for home in self.vectors.homes)

    def restore(self, shards: Iterable[int], former: Iterable[int], lost: Iterable[int]) -> None:
        """Begins anew with the shards that a snapshot knows, and the homes of those that have left, or are lost."""
        self.vectors = Vectors(shards)
        for home in former:
            self.vectors.add_home(home)
        for home in lost:
            self.vectors.lose_home(home)
        self._needed = {}
