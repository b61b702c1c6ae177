"""The vectors of all shards, and the stable cut, M, that they amount to (rules 5, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

ALL = 2**63 - 1
"""More entries than any log has."""


class Vectors:
    """The vectors of all shards, and the stable cut. Shards and homes are the same numbers, but homes stay known
    when their shards have left."""

    def __init__(self, shards: Iterable[int]) -> None:
        self._applied: dict[int, dict[int, int]] = {shard: {} for shard in shards}
        self.cut = dict.fromkeys(self._applied, 0)
        """The stable cut: by home the entries of its log that every shard is known to have applied; of a lost home all."""
        self._places = {shard: place for place, shard in enumerate(self._applied)}
        self._by_home: dict[int, list[int]] = {home: [0] * len(self._places) for home in self.cut}
        """The same vectors by home, each shard's number at its place: what the cut is the least of."""
        self._slowest: dict[int, int] = {}
        """By home the place of a shard that is not known to have applied more of its log than the cut has: as long
        as that one says nothing new, the cut stays, whatever the others say."""

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that count."""
        return tuple(self._applied)

    def add_shard(self, shard: int) -> None:
        """A shard counts from here on. The cut stays where it is: no entry in it has a part for the shard,
        since none is given one before every process counts it."""
        if shard not in self._applied:
            self._applied[shard], self._places[shard] = {}, len(self._places)
            for numbers in self._by_home.values():
                numbers.append(0)
        self.add_home(shard)

    def remove_shard(self, shard: int) -> None:
        """A shard has left; its home log is still part of the cut."""
        if self._applied.pop(shard, None) is not None:
            gone = self._places[shard]
            self._places = {each: place for place, each in enumerate(self._applied)}
            for numbers in self._by_home.values():
                del numbers[gone]
        self._move([*self._by_home])

    def add_home(self, home: int) -> None:
        """A home of a shard that has left before this process came."""
        if home not in self.cut:
            self.cut[home] = 0
            self._by_home[home] = [vector.get(home, 0) for vector in self._applied.values()]

    def lose_home(self, home: int) -> None:
        """A shard was declared lost: how much anyone has of its log does not count any more, and is more at some."""
        self.cut[home] = ALL
        self._by_home.pop(home, None)
        for vector in self._applied.values():
            vector.pop(home, None)

    @property
    def homes(self) -> Set[int]:
        """Those whose logs are waited for: all but the lost ones."""
        return self._by_home.keys()

    def take(self, shard: int, applied: Iterable[tuple[int, int]]) -> bool:
        """A shard's vector has come this far; returns whether the cut has moved."""
        vector, place = self._applied[shard], self._places[shard]
        by_home, slowest, moved = self._by_home, self._slowest, []
        for home, number in applied:
            if vector.get(home) != number:
                vector[home] = number
                if home in by_home:
                    by_home[home][place] = number
                    if slowest.get(home, place) == place:
                        moved.append(home)
        return self._move(moved)

    def _move(self, homes: Iterable[int]) -> bool:
        """Moves the cut along these homes, of which the slowest shard's word may have changed. It never goes back."""
        moved = False
        for home in homes:
            numbers = self._by_home[home]
            number = min(numbers)
            self._slowest[home] = numbers.index(number)
            if number > self.cut[home]:
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

    def validate(self) -> None:
        """Raises AssertionError where the two ways in which the vectors are kept differ."""
        places = {shard: place for place, shard in enumerate(self._applied)}
        assert self._places == places, "a shard is not at its place"
        vectors = [*self._applied.values()]
        by_home = {home: [vector.get(home, 0) for vector in vectors] for home in self.homes}
        assert self._by_home == by_home, "a home's numbers are not those of the vectors"
