"""Where the shards are: known from the start, and learned when one comes, or has moved to a standby.

A process that takes a shard over says so to every other one by the first message of its link, and the
store says it too, for those who could not be told. The newest owner counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tracker.core.membership.step_checks import MAX_ADDRESS_CHARACTERS
from tracker.wire.refusals import invalid


class Addresses(Mapping[int, str]):
    """host:port of every shard, by number."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = dict(addresses)
        self._epochs: dict[int, int] = {}
        self._moved: dict[int, Callable[[], None]] = {}
        self.releases: dict[int, str] = {}
        """By shard the release of the process there, as it has stated at the begin of a stream; for people."""

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[int]:
        return iter(self._addresses)

    def __getitem__(self, shard: int) -> str:
        return self._addresses[shard]

    def set(self, shard: int, address: str) -> None:
        """Where a shard is: the own one, when that is known, or one that has come."""
        self._addresses[shard] = address

    def forget(self, shard: int) -> None:
        """A shard has gone for good."""
        for known in (self._addresses, self._epochs, self._moved, self.releases):
            known.pop(shard, None)

    def on_move(self, shard: int, moved: Callable[[], None]) -> None:
        """Calls `moved` when a shard has another address."""
        self._moved[shard] = moved

    def learn(self, shard: int, epoch: int, address: str) -> None:
        """The owner with this epoch is reached there; an older one is passed over, and so is a
        number that no shard has."""
        if shard not in self._addresses or not address or epoch < self._epochs.get(shard, 0):
            return
        self._epochs[shard] = epoch
        if address != self._addresses[shard]:
            self._addresses[shard] = address
            if shard in self._moved:
                self._moved[shard]()


def nobody_reaches(address: str) -> bool:
    """Whether an address is one to listen on alone: no other machine reaches this one there."""
    return address.rpartition(":")[0].strip("[]") in ("0.0.0.0", "::")


def checked_address(address: str) -> str:
    """Raises Refused(INVALID) for what nobody could be reached at."""
    host, _, port = address.rpartition(":")
    if (
        not host
        or not port.isdigit()
        or not 0 < int(port) < 65_536
        or not host.isprintable()
        or len(address) > MAX_ADDRESS_CHARACTERS
        or nobody_reaches(address)
    ):
        raise invalid(
            f"{address[:100]!r} is no address at which a shard is reached: host:port, of up to "
            f"{MAX_ADDRESS_CHARACTERS} characters",
        )
    return address
