"""`lowmark shards`: which shards there are, and letting there be more or fewer."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tracker.cli.common import Yes, ask, connect, fail, say, show, show_waiting
from tracker.cli.durations import lasting
from tracker.cli.fit import Fitting, Misfit, When
from tracker.cli.render.shards import lost_json, lost_table, routing_json, routing_table
from tracker.cli.shared import Shared
from tracker.client import Admin, RefusedError, RoutingInfo
from tracker.client.connection import parse_targets
from tracker.client.rescaling import Wish
from tracker.core.insight.describe import ShardRole
from tracker.core.model import RefusalCode

RESCALE_TIMEOUT_S = 600.0


Members = Annotated[
    str | None,
    typer.Option(
        help="instead of a number: host:port of the processes of a set, in order, with ,: one shard for each"
    ),
]
FinishUpgrade = Annotated[
    bool,
    typer.Option(
        "--finish-upgrade",
        help="let all processes use what their release has brought: the release before can take part no more",
    ),
]
DeclareLost = Annotated[
    list[int] | None,
    typer.Option(
        help="a shard that never comes back, since its store is gone: the others go on without it; repeatable"
    ),
]
WriteOff = Annotated[
    bool,
    typer.Option(
        "--write-off",
        help="with --declare-lost: give up what was open, and go on at once; else pipelines stand until each is restarted",
    ),
]
Group = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=255,
        help="whose shards, in a deployment of several groups; with --members it is that of the process which is asked",
    ),
]
Timeout = Annotated[
    float,
    lasting(
        "--timeout",
        show_default=f"{RESCALE_TIMEOUT_S:g}s",
        help="how long to wait until it is done; it goes on all the same",
    ),
]


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
    members: Members = None,
    when: Annotated[
        When | None,
        typer.Option(
            help="with --members: before the set is made smaller (to these), or after it was made larger"
        ),
    ] = None,
    finish_upgrade: FinishUpgrade = False,
    declare_lost: DeclareLost = None,
    write_off: WriteOff = False,
    group: Group = None,
    yes: Yes = False,
    timeout_s: Timeout = RESCALE_TIMEOUT_S,
) -> None:
    """Show the shards: which own slots, which are joining, draining or leaving, and by which version of the table
    slots are dealt. With NUMBER: let so many own the slots to come, while ticks flow. Repeating it changes nothing.

    For more than there are, start a process for each first: lowmark serve --join HOST:PORT --listen ... With --members
    the shards follow the size of a set of processes, as a StatefulSet is one.

    Until --finish-upgrade each process can be replaced by one of the release before. It waits until all are of the newer one.

    With --declare-lost: what was open there is shown, and held or given up, in all pipelines; should it come back after
    all, it is refused by the others, and ends.
    """
    _check_together(number, members, when, finish_upgrade)
    if declare_lost:
        if number is not None or members is not None or finish_upgrade:
            raise typer.BadParameter("--declare-lost goes with no other change of the shards")
        return _declare_lost(context, tuple(declare_lost), write_off, yes, group, timeout_s)
    if write_off:
        raise typer.BadParameter("--write-off goes with --declare-lost")
    if (evacuate or without) and number is None:
        raise typer.BadParameter(
            "--evacuate and --without go with NUMBER: --members evacuates where it must"
        )
    with connect(context) as admin:
        routing = _stay_in(admin, group, changes=finish_upgrade or number is not None)
        if finish_upgrade:
            return _finish_upgrade(context, admin, timeout_s)
        if members is not None:
            routing = _fit(admin, parse_targets(members), when, timeout_s)
        elif number is not None:
            wish = Wish(number, evacuate, tuple(without or ()))
            routing = _rescale(context, admin, wish, timeout_s)
        else:
            return show(context, routing_json(routing), routing_table(routing))
    _show_owners(context, routing)


def _stay_in(admin: Admin, group: int | None, *, changes: bool) -> RoutingInfo:
    """All that is asked from now on is asked of one group; returns its shards as they are. Raises typer.BadParameter where it has to be named: what changes
    its shards is not left to who happens to be asked."""
    admin.group = group
    routing = admin.routing()
    if group is None and changes and (routing.group or routing.elsewhere):
        raise typer.BadParameter(
            "the deployment has several groups, each with shards of its own: name one by --group; lowmark groups list shows "
            "them"
        )
    if group is None:
        admin.group = routing.group
    return routing


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


def _declare_lost(
    context: typer.Context,
    lost: tuple[int, ...],
    write_off: bool,
    yes: bool,
    group: int | None,
    timeout_s: float,
) -> None:
    as_json = Shared.of(context).as_json
    if as_json and not yes:
        raise typer.BadParameter("--json cannot ask: add --yes")
    with connect(context) as admin:
        routing = _stay_in(admin, group, changes=True)
        if not as_json:
            for shard in routing.shards:
                if shard.state.shard in lost:
                    say(
                        f"shard {shard.state.shard} at {shard.address}: {shard.state.open_slots:,} slots were open there"
                    )
        if not yes:
            what = (
                "given up" if write_off else "held, and every pipeline stands until you restart it"
            )
            ask(
                f"Declare shards {', '.join(map(str, lost))} lost for good? What was open in any pipeline is {what}."
            )
        report = admin.declare_lost(
            lost, write_off=write_off, timeout_s=timeout_s, on_progress=show_waiting
        )
    show(context, lost_json(report), lost_table(report))


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
