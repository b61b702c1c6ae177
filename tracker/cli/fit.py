"""`lowmark shards --members`: a tracker's shards follow the size of a set of processes, as a StatefulSet is one.

Processes are added to such a set at its end, and taken from its end. So which shards are to go is not free:
those of the last processes. Before some are taken away, their shards have to be gone; after some were added,
they have to get slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from tracker.cli.common import say, show_waiting
from tracker.client import Admin, RoutingInfo, UnavailableError
from tracker.core.insight.describe import ShardRole

_LOOK_INTERVAL_S = 0.5
_GOING = (ShardRole.DRAINING, ShardRole.LEAVING)


class When(StrEnum):
    """Before the set is made smaller, or after it was made larger."""

    BEFORE = "before"
    AFTER = "after"


class Misfit(Exception):
    """The shards are not those of the set; says what to do."""


class Fitting:
    """One attempt to fit, until a moment of the monotonic clock."""

    def __init__(self, wanted: tuple[str, ...], deadline: float) -> None:
        self._wanted, self._deadline = wanted, deadline

    def let_go(self, admin: Admin) -> None:
        """Those behind the set hand over what is open, and go. Raises Misfit if it would be others."""
        count = len(self._wanted)
        self._until(admin, lambda routing: not routing.of(ShardRole.JOINING), "one is joining")
        while True:
            routing = admin.routing()
            if len(there := _members(routing)) <= count and not routing.of(*_GOING):
                self._check(routing)
                return
            self._check(routing)
            if spare := routing.of(ShardRole.SPARE):
                # Only a shard that has had slots can be let go; so these get some, for a moment.
                self._rescale(admin, len(there))
                say(f"{len(spare)} without slots are to go, too", err=True)
            self._rescale(admin, count, evacuate=True)

    def take_in(self, admin: Admin) -> None:
        """Waits until the set's processes have joined, and gives them slots. Raises Misfit, and
        UnavailableError if they have not joined in time."""
        count = len(self._wanted)
        if len(owners := admin.routing().of(ShardRole.OWNER)) > count:
            raise Misfit(
                f"{len(owners)} shards own slots, and the set has {count} processes: let the others go "
                "before the set is made smaller (lowmark shards --members ... --when before)"
            )
        wanted = set(self._wanted)
        self._until(
            admin,
            lambda routing: wanted <= {address for _, address in _members(routing)},
            "not all of the set have joined (one whose shard has left waits to be ended, and joins when it was: kubectl delete pod)",
        )
        self._check(admin.routing())
        self._rescale(admin, count)

    def _check(self, routing: RoutingInfo) -> None:
        """The shards that stay are those with the lowest numbers: they must be the set's."""
        staying = [address for _, address in _members(routing)][: len(self._wanted)]
        if strangers := set(staying) - set(self._wanted):
            raise Misfit(
                f"the shards with the lowest numbers are at {', '.join(staying)}, and "
                f"{', '.join(sorted(strangers))} would not be in the set: the shards of other processes would "
                "go. Wait until each process serves its own shard (lowmark shards), or leave the set as it is"
            )

    def _rescale(self, admin: Admin, shards: int, *, evacuate: bool = False) -> None:
        admin.rescale(
            shards,
            evacuate=evacuate,
            timeout_s=max(0.0, self._deadline - time.monotonic()),
            on_progress=show_waiting,
        )

    def _until(self, admin: Admin, wanted: Callable[[RoutingInfo], bool], why: str) -> None:
        """Looks until the shards are as wanted. Raises UnavailableError when the time is up."""
        shown = False
        while not wanted(admin.routing()):
            if time.monotonic() >= self._deadline:
                raise UnavailableError(f"{why} in the time that was given; see lowmark shards")
            if not shown:
                show_waiting(why)
                shown = True
            time.sleep(_LOOK_INTERVAL_S)


def _members(routing: RoutingInfo) -> list[tuple[int, str]]:
    """Shards that own slots or could, by number, and where each is served."""
    found = routing.of(ShardRole.OWNER, ShardRole.SPARE)
    return sorted((shard.state.shard, shard.address) for shard in found)
