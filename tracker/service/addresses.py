"""Where the shards are: known from the start, and learned when one has moved to a standby.

A process that takes a shard over says so to every other one by the first message of its link, and the
store says it too, for those who could not be told. The newest owner counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload


class Addresses(Sequence[str]):
    """host:port of every shard, by number."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._epochs = [0] * len(self._addresses)
        self._moved: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    @overload
    def __getitem__(self, shard: int) -> str: ...
    @overload
    def __getitem__(self, shard: slice) -> list[str]: ...
    def __getitem__(self, shard: int | slice) -> str | list[str]:
        return self._addresses[shard]

    def set(self, shard: int, address: str) -> None:
        """The own shard's address, when it is known."""
        self._addresses[shard] = address

    def on_move(self, shard: int, moved: Callable[[], None]) -> None:
        """Calls `moved` when a shard has another address."""
        self._moved[shard] = moved

    def learn(self, shard: int, epoch: int, address: str) -> None:
        """The owner with this epoch is reached there; an older one is passed over, and so is a
        number that no shard has."""
        if not 0 <= shard < len(self._addresses) or not address or epoch < self._epochs[shard]:
            return
        self._epochs[shard] = epoch
        if address != self._addresses[shard]:
            self._addresses[shard] = address
            if shard in self._moved:
                self._moved[shard]()
