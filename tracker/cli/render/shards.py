"""The shards of a tracker: tables, and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from tracker.client import RoutingInfo, ShardInfo
from tracker.client.finishing import level_to_finish, waits_for
from tracker.client.losing import Lost, LostPipeline
from tracker.core.insight.describe import ShardDescription, ShardRole, StandbyDescription
from tracker.view.pipelines import shards_json
from tracker.view.printing import as_printable

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
    for standby in routing.standbys:
        table.add_row("", standby.address, "", "", "standby", "", _release_of(standby))
    return table


def upgrade_text(routing: RoutingInfo) -> str:
    """By which feature level all record, and what an upgrade that is not finished waits for."""
    level, newest = routing.table.level, level_to_finish(routing)
    if level == newest:
        return f"feature level {level}"
    missing = "; ".join(waits_for(routing))
    waits = f"waits: {missing}" if missing else "can be finished: --finish-upgrade"
    return f"feature level {level}; the upgrade to {newest} {waits}"


def _release_of(process: ShardDescription | StandbyDescription) -> str:
    if not process.speaks:
        return "unknown"
    return f"{process.release or 'unknown'} (levels to {process.speaks})"


def lost_table(lost: Lost) -> Table:
    """What became of the pipelines when shards were declared lost."""
    which = ", ".join(map(str, lost.shards))
    table = Table("pipeline", "now", "open there", caption=f"shards {which} are lost")
    for pipeline in lost.pipelines:
        reported = ", ".join(
            f"{each.segment}: {each.cells:,} slots, {each.items:,} items, from slot {each.lowest}"
            for each in pipeline.open
        )
        table.add_row(
            as_printable(pipeline.pipeline),
            _now(lost, pipeline),
            as_printable(reported or "nothing"),
        )
    return table


def _now(lost: Lost, pipeline: LostPipeline) -> Text:
    if pipeline.complete:
        return Text("complete, as before")
    if lost.goes_on(pipeline):
        return Text(f"in a new generation, from slot {pipeline.from_slot}", "green")
    if pipeline.from_slot is None:
        return Text("stands: restart it from a slot that you name", "yellow")
    return Text(f"stands: restart it, from slot {pipeline.from_slot}", "yellow")


def lost_json(lost: Lost) -> dict[str, Any]:
    """The same."""
    return {
        "lost": list(lost.shards),
        "write_off": lost.write_off,
        "pipelines": [
            {
                "pipeline": each.pipeline,
                "generation": each.generation,
                "complete": each.complete,
                "stands": not (each.complete or lost.goes_on(each)),
                "from_slot": each.from_slot,
                "open": [asdict(open_there) for open_there in each.open],
            }
            for each in lost.pipelines
        ],
    }


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
        "upgrade_waits_for": waits_for(routing),
        "standbys": [asdict(standby) for standby in routing.standbys],
        "asked": list(table.asked),
        "shards": shards_json(list(routing.shards)),
    }
