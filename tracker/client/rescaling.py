"""Letting a tracker have another number of shards, and waiting until it has."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tracker.core.insight.describe import (
    RoutingDescription,
    ShardDescription,
    ShardRole,
    StandbyDescription,
)
from tracker.core.model import RefusalCode
from tracker.errors import RefusedError, UnavailableError

ASK_MS = 1_000
"""How long one attempt waits for the table to be in force, before it is looked how far that is."""
UNANSWERED = "the sequencer has not answered"
JOIN_GRACE_S = 10.0
"""How long more processes than there are may be on their way, before there are too few of them."""
LOOK_INTERVAL_S = 0.25
"""How often it is looked, or asked, again."""

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as another process sees it, and where it listens (host:port)."""

    state: ShardDescription
    address: str


@dataclass(frozen=True, slots=True)
class RoutingInfo:
    """The shards, by number, by which table slots are dealt to them, and who waits for one, as one process sees it. group: the
    number of its group (None: it is too old to tell); elsewhere: where processes of the other groups are reached."""

    table: RoutingDescription
    shards: tuple[ShardInfo, ...]
    standbys: tuple[StandbyDescription, ...] = ()
    group: int | None = None
    elsewhere: tuple[str, ...] = ()

    def of(self, *roles: ShardRole) -> list[ShardInfo]:
        """The shards that are for something."""
        return [shard for shard in self.shards if shard.state.role in roles]


@dataclass(frozen=True, slots=True)
class Wish:
    """So many shards, without some of those there are; evacuate: those that go hand over at once what is open."""

    shards: int
    evacuate: bool = False
    without: tuple[int, ...] = ()


class Asks(Protocol):
    """Whom a rescale is asked of: `Admin`."""

    def ask_to_rescale(self, wish: Wish, wait_ms: int) -> bool: ...
    def routing(self) -> RoutingInfo: ...


class Wait(ABC, Generic[Done]):
    """What an operator asks of the shards, asked for and looked at until it is done, or the time is up."""

    def __init__(self, on_progress: Callable[[str], None] | None, waits_for: str) -> None:
        """on_progress: called with what it waits for, in a sentence, whenever that has changed; waits_for: the same, before
        anybody has answered."""
        self._on_progress, self._waits_for = on_progress, waits_for

    def wait(self, timeout_s: float) -> Done:
        """Returns when it is done. Raises RefusedError; UnavailableError if it is not in time."""
        deadline = time.monotonic() + timeout_s
        while (done := self._step(max(0.0, deadline - time.monotonic()))) is None:
            if time.monotonic() + LOOK_INTERVAL_S >= deadline:
                raise UnavailableError(self._too_late(f"within {timeout_s:g} s: {self._waits_for}"))
            time.sleep(LOOK_INTERVAL_S)
        return done

    @abstractmethod
    def _step(self, left_s: float) -> Done | None:
        """Asks, or looks, once. Returns what there is when it is done. Raises RefusedError."""

    @abstractmethod
    def _too_late(self, within: str) -> str:
        """What is not so. within: the time, and what it waits for."""

    def _say(self, waits_for: str) -> None:
        if waits_for != self._waits_for:
            self._waits_for = waits_for
            if self._on_progress is not None:
                self._on_progress(waits_for)


class Rescaling(Wait[RoutingInfo]):
    """One rescale, from the first attempt until the shards that go have gone."""

    def __init__(
        self,
        admin: Asks,
        wish: Wish,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(on_progress, UNANSWERED)
        self._admin, self._wish = admin, wish
        self._too_few_since_s: float | None = None
        self._leaving: set[int] | None = None
        """The shards that go; None while the table is not in force."""

    def _too_late(self, within: str) -> str:
        return (
            f"{self._wish.shards} shards are not there {within}. What has begun goes on by itself; asking for the same "
            "again waits on"
        )

    def _step(self, left_s: float) -> RoutingInfo | None:
        if self._leaving is None and not self._ask(left_s):
            return None
        routing = self._admin.routing()
        if self._leaving is None:
            going = routing.of(ShardRole.DRAINING, ShardRole.LEAVING)
            self._leaving = {shard.state.shard for shard in going}
        left = [shard.state for shard in routing.shards if shard.state.shard in self._leaving]
        if not left:
            return routing
        self._say(f"version {routing.table.version} is in force; {_leaving(left)}")
        return None

    def _ask(self, left_s: float) -> bool:
        """Whether the table is in force."""
        wait_ms = min(ASK_MS, int(left_s * 1_000))
        try:
            if self._admin.ask_to_rescale(self._wish, wait_ms):
                return True
        except RefusedError as refused:
            if refused.refusal.code is RefusalCode.FULL:
                self._check_grace(refused, left_s)
            elif refused.refusal.code is not RefusalCode.NOT_READY:
                raise
            self._say(refused.refusal.message)
            return False
        self._too_few_since_s = None
        routing = self._admin.routing()
        away = [s.state.shard for s in routing.shards if not s.state.connected]
        waits = f"; shards {away} are not connected" if away else ""
        if routing.table.asked:
            self._say(f"every shard says up to which slot it has heard of something{waits}")
        else:
            self._say(f"every shard takes over version {routing.table.version} of the table{waits}")
        return False

    def _check_grace(self, refused: RefusedError, left_s: float) -> None:
        """A process that was started a moment ago has not asked for its number yet."""
        now_s = time.monotonic()
        if self._too_few_since_s is None:
            self._too_few_since_s = now_s
        over = now_s - self._too_few_since_s >= JOIN_GRACE_S
        if over or left_s <= LOOK_INTERVAL_S:
            raise refused


def _leaving(shards: list[ShardDescription]) -> str:
    """What shards that go wait for."""
    said = []
    for shard in shards:
        if shard.role is ShardRole.LEAVING:
            said.append(f"shard {shard.shard} owns nothing any more and says its last")
        elif shard.open_slots:
            said.append(f"shard {shard.shard} drains: {shard.open_slots:,} slots are open there")
        else:
            said.append(f"shard {shard.shard} drains: nothing is open there any more")
    return "; ".join(said)
