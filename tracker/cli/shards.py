"""`lowmark shards`: which shards there are, and letting there be more or fewer."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tracker.cli.common import connect, fail, say, show, show_waiting
from tracker.cli.fit import Fitting, Misfit, When
from tracker.cli.render.shards import routing_json, routing_table
from tracker.cli.shared import Shared
from tracker.client import Admin, RefusedError, RoutingInfo
from tracker.client.connection import parse_targets
from tracker.client.rescaling import Wish
from tracker.core.insight.describe import ShardRole
from tracker.core.model import RefusalCode

RESCALE_TIMEOUT_S = 600.0


def shards(
    context: typer.Context,
    number: Annotated[
        int | None,
        typer.Argument(min=1, max=64, help="let so many shards own the slots to come"),
    ] = None,
    evacuate: Annotated[
        bool,
        typer.Option(
            "--evacuate",
            help="shards that go hand over what is open at once, instead of waiting until it is done",
        ),
    ] = False,
    without: Annotated[
        list[int] | None,
        typer.Option(
            help="a shard that is to go, before those with the highest numbers; repeatable"
        ),
    ] = None,
    members: Annotated[
        str | None,
        typer.Option(
            help="instead of a number: host:port of the processes of a set, in order, with ,: one shard for each"
        ),
    ] = None,
    when: Annotated[
        When | None,
        typer.Option(
            help="with --members: before the set is made smaller (to these), or after it was made larger"
        ),
    ] = None,
    finish_upgrade: Annotated[
        bool,
        typer.Option(
            "--finish-upgrade",
            help="let all processes use what their release has brought: the release before can take part no more",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="seconds to wait until it is done; it goes on all the same")
    ] = RESCALE_TIMEOUT_S,
) -> None:
    """Show the shards: which own slots, which are joining, draining or leaving, and by which version of the table
    slots are dealt. With NUMBER: let so many own the slots to come, while ticks flow. Repeating it changes nothing.

    For more than there are, start a process for each first: lowmark serve --join HOST:PORT --listen ... With --members
    the shards follow the size of a set of processes, as a StatefulSet is one.

    Until --finish-upgrade each process can be replaced by one of the release before. It waits until all are of the newer one.
    """
    _check_together(number, members, when, finish_upgrade)
    if (evacuate or without) and number is None:
        raise typer.BadParameter(
            "--evacuate and --without go with NUMBER: --members evacuates where it must"
        )
    with connect(context) as admin:
        if finish_upgrade:
            return _finish_upgrade(context, admin, timeout)
        if members is not None:
            routing = _fit(admin, parse_targets(members), when, timeout)
        elif number is not None:
            wish = Wish(number, evacuate, tuple(without or ()))
            routing = _rescale(context, admin, wish, timeout)
        else:
            routing = admin.routing()
            return show(context, routing_json(routing), routing_table(routing))
    _show_owners(context, routing)


def _show_owners(context: typer.Context, routing: RoutingInfo) -> None:
    owners = routing.of(ShardRole.OWNER)
    numbers = ", ".join(str(shard.state.shard) for shard in owners)
    version = f"(version {routing.table.version} of the table)"
    text = f"{len(owners)} shard{'s' if len(owners) > 1 else ''}: {numbers} {version}"
    show(context, routing_json(routing), text)


def _check_together(
    number: int | None, members: str | None, when: When | None, finish_upgrade: bool
) -> None:
    if finish_upgrade and (number is not None or members is not None):
        raise typer.BadParameter("--finish-upgrade goes with neither NUMBER nor --members")
    if (number is not None and members is not None) or (members is None) != (when is None):
        raise typer.BadParameter("give the NUMBER of shards, or --members with --when")


def _finish_upgrade(context: typer.Context, admin: Admin, timeout_s: float) -> None:
    routing = admin.finish_upgrade(timeout_s=timeout_s, on_progress=show_waiting)
    text = f"all processes record by feature level {routing.table.level}"
    show(context, routing_json(routing), text)


def _rescale(context: typer.Context, admin: Admin, wish: Wish, timeout_s: float) -> RoutingInfo:
    try:
        return admin.rescale(
            wish.shards,
            evacuate=wish.evacuate,
            without=wish.without,
            timeout_s=timeout_s,
            on_progress=show_waiting,
        )
    except RefusedError as error:
        if error.refusal.code is RefusalCode.FULL:
            fail(
                f"{error}; start a process for each: lowmark serve --join {Shared.of(context).target.split(',')[0]} "
                "--listen HOST:PORT --store sqlite:DIRECTORY"
            )
        raise


def _fit(admin: Admin, wanted: tuple[str, ...], when: When | None, timeout_s: float) -> RoutingInfo:
    fitting = Fitting(wanted, time.monotonic() + timeout_s)
    try:
        (fitting.let_go if when is When.BEFORE else fitting.take_in)(admin)
    except Misfit as misfit:
        fail(misfit)
    say(f"{len(wanted)} shard{'s' if len(wanted) > 1 else ''}, one for each process", err=True)
    return admin.routing()
