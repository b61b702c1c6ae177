"""The shards of a tracker: tables, and JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from tracker.client import RoutingInfo, ShardInfo
from tracker.core.insight.describe import ShardRole
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
    caption = f"version {routing.table.version} of the table{changing}"
    table = Table("shard", "address", "link", "behind", "state", "open slots", caption=caption)
    for shard in routing.shards:
        role = shard.state.role
        state = Text(_ROLES[role], "" if role is ShardRole.OWNER else "yellow")
        table.add_row(*_link_of(shard), state, f"{shard.state.open_slots:,}")
    return table


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
        "asked": list(table.asked),
        "shards": shards_json(list(routing.shards)),
    }
