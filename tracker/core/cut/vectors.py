"""The vectors of all shards, and the stable cut, M, that they amount to (rules 5, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Vectors:
    """The vectors of all shards, and the stable cut. Shards and homes are the same numbers, but homes stay known
    when their shards have left."""

    def __init__(self, shards: Iterable[int]) -> None:
        self._applied: dict[int, dict[int, int]] = {shard: {} for shard in shards}
        self.cut = dict.fromkeys(self._applied, 0)
        """The stable cut: by home the entries of its log that every shard is known to have applied."""
        self._slowest: dict[int, int] = {}
        """By home a shard that is not known to have applied more of its log than the cut has: as long as that one
        says nothing new, the cut stays, whatever the others say."""

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that count."""
        return tuple(self._applied)

    def add_shard(self, shard: int) -> None:
        """A shard counts from here on. The cut stays where it is: no entry in it has a part for the shard,
        since none is given one before every process counts it."""
        self._applied.setdefault(shard, {})
        self.cut.setdefault(shard, 0)

    def remove_shard(self, shard: int) -> None:
        """A shard has left; its home log is still part of the cut."""
        self._applied.pop(shard, None)
        self._move([*self.cut])

    def add_home(self, home: int) -> None:
        """A home of a shard that has left before this process came."""
        self.cut.setdefault(home, 0)

    def take(self, shard: int, applied: Iterable[tuple[int, int]]) -> bool:
        """A shard's vector has come this far; returns whether the cut has moved."""
        vector = self._applied[shard]
        news = [(home, number) for home, number in applied if vector.get(home) != number]
        vector.update(news)
        slowest = self._slowest
        return self._move(home for home, _ in news if slowest.get(home, shard) == shard)

    def _move(self, homes: Iterable[int]) -> bool:
        """Moves the cut along these homes, of which the slowest shard's word may have changed. It never goes back."""
        moved = False
        shards, vectors = [*self._applied], self._applied.values()
        for home in homes:
            before = self.cut.get(home)
            if before is None:
                continue
            numbers = [vector.get(home, 0) for vector in vectors]
            number = min(numbers)
            self._slowest[home] = shards[numbers.index(number)]
            if number > before:
                self.cut[home] = number
                moved = True
        return moved

    def behind(self, home: int, number: int) -> list[tuple[int, int]]:
        """(shard, missing entries) of the shards not known to have applied an entry of a home's log."""
        applied = [(shard, vector.get(home, 0)) for shard, vector in self._applied.items()]
        return [(shard, number - last) for shard, last in applied if last < number]

    def vector(self, shard: int) -> Mapping[int, int]:
        """A shard's vector, as it is now."""
        return self._applied[shard]

    def of(self, shard: int) -> tuple[tuple[int, int], ...]:
        """A shard's vector, by home."""
        return tuple(self._applied[shard].items())
