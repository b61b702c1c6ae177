"""`lowmark shards` and `lowmark rescale`: which shards there are, and letting there be more or fewer."""

from __future__ import annotations

from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as missing:  # an executor installs the client alone
    raise SystemExit(
        f"the lowmark command needs {missing.name}: pip install 'lowmark[server]'"
    ) from None

from tracker.cli.common import (
    ANSWER_TIMEOUT_S,
    DEFAULT_TARGET,
    EXIT_REFUSED,
    AsJson,
    Target,
    fail,
    print_json,
)
from tracker.client import Admin, RefusedError, RoutingInfo
from tracker.core.describe import ShardRole
from tracker.core.model import RefusalCode
from tracker.view.pipelines import shards_json

RESCALE_TIMEOUT_S = 600.0

_ROLES = {
    ShardRole.OWNER: "owns slots",
    ShardRole.SPARE: "spare",
    ShardRole.JOINING: "joins",
    ShardRole.DRAINING: "drains",
    ShardRole.LEAVING: "leaves",
}


def shards(target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Show the shards: which own slots, which are joining, draining or leaving, and by which version of
    the table slots are dealt."""
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        routing = admin.routing()
    if as_json:
        print_json(_as_json(routing))
    else:
        Console().print(_table(routing))


def rescale(
    number: Annotated[
        int, typer.Option("--shards", min=1, max=64, help="how many shards own the slots to come")
    ],
    evacuate: Annotated[
        bool,
        typer.Option(
            "--evacuate",
            help="shards that go hand over what is open at once, instead of waiting until it is done",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="seconds to wait until it is done; it goes on all the same")
    ] = RESCALE_TIMEOUT_S,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Let so many shards own the slots to come, while ticks flow. Repeating it changes nothing.

    For more than there are, start a process for each first: lowmark serve --join HOST:PORT --listen ...
    """

    def say(waits_for: str) -> None:
        typer.echo(f"waiting: {waits_for}", err=True)

    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        try:
            routing = admin.rescale(number, evacuate=evacuate, timeout_s=timeout, on_progress=say)
        except RefusedError as error:
            if error.refusal.code is RefusalCode.FULL:
                fail(
                    f"{error}; start a process for each: lowmark serve --join {target.split(',')[0]} "
                    "--listen HOST:PORT --store sqlite:DIRECTORY",
                    EXIT_REFUSED,
                )
            raise
    if as_json:
        print_json(_as_json(routing))
    else:
        owners = [str(shard.state.shard) for shard in routing.of(ShardRole.OWNER)]
        typer.echo(
            f"{number} shard{'s' if number > 1 else ''}: {', '.join(owners)} "
            f"(version {routing.table.version} of the table)"
        )


def _as_json(routing: RoutingInfo) -> dict[str, Any]:
    table = routing.table
    return {
        "version": table.version,
        "changing": table.changing,
        "asked": list(table.asked),
        "shards": shards_json(list(routing.shards)),
    }


def _table(routing: RoutingInfo) -> Table:
    changing = ", changing" if routing.table.changing else ""
    caption = f"version {routing.table.version} of the table{changing}"
    table = Table("shard", "address", "link", "behind", "state", "open slots", caption=caption)
    for shard in routing.shards:
        state = shard.state
        table.add_row(
            str(state.shard),
            shard.address,
            Text("up", "green") if state.connected else Text("down", "red"),
            f"{state.entries_behind:,}",
            Text(_ROLES[state.role], "" if state.role is ShardRole.OWNER else "yellow"),
            f"{state.open_slots:,}",
        )
    return table
