"""`lowmark shards` and `lowmark rescale`: which shards there are, and letting there be more or fewer."""

from __future__ import annotations

from typing import Annotated

import typer

from tracker.cli.common import connect, fail, show, show_waiting
from tracker.cli.render.shards import routing_json, routing_table
from tracker.cli.shared import Shared
from tracker.client import RefusedError
from tracker.core.insight.describe import ShardRole
from tracker.core.model import RefusalCode

RESCALE_TIMEOUT_S = 600.0


def shards(context: typer.Context) -> None:
    """Show the shards: which own slots, which are joining, draining or leaving, and by which version of
    the table slots are dealt."""
    with connect(context) as admin:
        routing = admin.routing()
    show(context, routing_json(routing), routing_table(routing))


def rescale(
    context: typer.Context,
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
) -> None:
    """Let so many shards own the slots to come, while ticks flow. Repeating it changes nothing.

    For more than there are, start a process for each first: lowmark serve --join HOST:PORT --listen ...
    """
    with connect(context) as admin:
        try:
            routing = admin.rescale(
                number, evacuate=evacuate, timeout_s=timeout, on_progress=show_waiting
            )
        except RefusedError as error:
            if error.refusal.code is RefusalCode.FULL:
                fail(
                    f"{error}; start a process for each: lowmark serve --join {Shared.of(context).target.split(',')[0]} "
                    "--listen HOST:PORT --store sqlite:DIRECTORY"
                )
            raise
    owners = ", ".join(str(shard.state.shard) for shard in routing.of(ShardRole.OWNER))
    version = f"(version {routing.table.version} of the table)"
    text = f"{number} shard{'s' if number > 1 else ''}: {owners} {version}"
    show(context, routing_json(routing), text)
