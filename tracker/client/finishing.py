"""Finishing an upgrade: all processes use what their release has brought, and none of the release before can take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tracker.client.rescaling import UNANSWERED, RoutingInfo, Wait
from tracker.core.insight.describe import ShardDescription
from tracker.core.model import RefusalCode
from tracker.errors import RefusedError


def level_to_finish(routing: RoutingInfo) -> int:
    """The feature level that finishing the upgrade leads to: the highest that the process of any shard speaks. Where that is
    the one by which all record, there is nothing to finish."""
    return max([routing.table.level, *(shard.state.speaks for shard in routing.shards)])


def waits_for(routing: RoutingInfo) -> list[str]:
    """For whom finishing waits, in words: shards that are away, or whose process is of an older release, and standbys of
    one."""
    level = level_to_finish(routing)
    shards = [_shard_text(s.state) for s in routing.shards if s.state.speaks < level]
    return shards + [
        f"the standby at {s.address} of release {s.release} speaks feature levels up to {s.speaks}"
        for s in routing.standbys
        if s.speaks < level
    ]


def _shard_text(shard: ShardDescription) -> str:
    if not shard.speaks:
        return f"shard {shard.shard} is away, or is of a release that states no feature level"
    release = f" of release {shard.release}" if shard.release else ""
    return f"the process of shard {shard.shard}{release} speaks feature levels up to {shard.speaks}"


class Asks(Protocol):
    """Whom it is asked of: `Admin`."""

    def ask_to_finish(self, level: int) -> None: ...
    def routing(self) -> RoutingInfo: ...


class Finishing(Wait[RoutingInfo]):
    """One attempt, until all record by the newest level, or the time is up."""

    def __init__(self, admin: Asks, on_progress: Callable[[str], None] | None = None) -> None:
        super().__init__(on_progress, UNANSWERED)
        self._admin = admin

    def _too_late(self, within: str) -> str:
        return (
            f"the upgrade is not finished {within}. Start each of these with the newer release, and finish it then; until it "
            "is finished the release before can take the place of any process"
        )

    def _step(self, left_s: float) -> RoutingInfo | None:
        """Looks, and asks where nothing is known to be in the way."""
        routing = self._admin.routing()
        if missing := waits_for(routing):
            self._say("; ".join(missing))
            return None
        try:
            self._admin.ask_to_finish(level_to_finish(routing))
        except RefusedError as refused:
            if refused.refusal.code is not RefusalCode.NOT_READY:
                raise
            self._say(refused.refusal.message)
            return None
        return self._admin.routing()
