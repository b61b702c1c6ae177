"""The shards of a tracker: tables, and JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from tracker.client import RoutingInfo, ShardInfo
from tracker.client.finishing import behind, level_to_finish, waits_text
from tracker.core.insight.describe import ShardDescription, ShardRole
from tracker.view.pipelines import shards_json

_ROLES = {
    ShardRole.OWNER: "owns slots",
    ShardRole.SPARE: "spare",
    ShardRole.JOINING: "joins",
    ShardRole.DRAINING: "drains",
    ShardRole.LEAVING: "leaves",
}


def shards_table(shards: list[ShardInfo]) -> Table:
    """The shards, by their links to the process that was asked."""
    table = Table("shard", "address", "link", "entries behind", "state")
    for shard in shards:
        table.add_row(*_link_of(shard), shard.state.role.value)
    return table


def routing_table(routing: RoutingInfo) -> Table:
    """The shards, by what they are for."""
    changing = ", changing" if routing.table.changing else ""
    caption = f"version {routing.table.version} of the table{changing}; {upgrade_text(routing)}"
    table = Table(
        "shard", "address", "link", "behind", "state", "open slots", "release", caption=caption
    )
    for shard in routing.shards:
        role = shard.state.role
        state = Text(_ROLES[role], "" if role is ShardRole.OWNER else "yellow")
        slots = f"{shard.state.open_slots:,}"
        table.add_row(*_link_of(shard), state, slots, _release_of(shard.state))
    return table


def upgrade_text(routing: RoutingInfo) -> str:
    """By which feature level all record, and what an upgrade that is not finished waits for."""
    level, newest = routing.table.level, level_to_finish(routing)
    if level == newest:
        return f"feature level {level}"
    missing = behind(routing)
    waits = f"waits: {waits_text(missing)}" if missing else "can be finished: --finish-upgrade"
    return f"feature level {level}; the upgrade to {newest} {waits}"


def _release_of(shard: ShardDescription) -> str:
    if not shard.speaks:
        return "unknown"
    return f"{shard.release or 'unknown'} (levels to {shard.speaks})"


def _link_of(shard: ShardInfo) -> tuple[str, str, Text, str]:
    state = shard.state
    link = Text("up", "green") if state.connected else Text("down", "red")
    return str(state.shard), shard.address, link, f"{state.entries_behind:,}"


def routing_json(routing: RoutingInfo) -> dict[str, Any]:
    """The table, and the shards in it."""
    table = routing.table
    return {
        "version": table.version,
        "changing": table.changing,
        "level": table.level,
        "level_to_finish": level_to_finish(routing),
        "upgrade_waits_for": [shard.shard for shard in behind(routing)],
        "asked": list(table.asked),
        "shards": shards_json(list(routing.shards)),
    }
