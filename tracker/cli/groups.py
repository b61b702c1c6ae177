"""`lowmark groups`: the groups of a deployment, and pipelines that move between them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from tracker.cli.common import PipelineName, connect, say, show
from tracker.client import Admin, GroupInfo, LowmarkError, RefusedError, UnavailableError
from tracker.core.model import Refusal, RefusalCode

MOVE_TIMEOUT_S = 120.0
"""A move that does not come forward is given up after half of that."""

Group = Annotated[int, typer.Argument(metavar="GROUP", min=0, max=255, help="number of the group")]


def groups_list(context: typer.Context) -> None:
    """Show the groups of a deployment, and what each has to do."""
    with connect(context) as admin:
        found = admin.groups()
    show(context, {"groups": [group_json(each) for each in found]}, _table(found))


def cordon(
    context: typer.Context,
    group: Group,
    undo: Annotated[bool, typer.Option("--undo", help="give it new pipelines again")] = False,
) -> None:
    """Give a group no new pipelines from now on. Those that live there stay."""
    with connect(context) as admin:
        admin.cordon(group, not undo)
    told = "is given new pipelines again" if undo else "is given no new pipelines"
    show(context, {"group": group, "cordoned": not undo}, f"group {group} {told}")


def drain(context: typer.Context, group: Group) -> None:
    """Move all pipelines of a group to the others, one after another, so that it can be taken away.

    It is cordoned first. Each goes to the group that has the fewest pipelines by then. What cannot move is named at the
    end, and stays; repeating the command goes on with that.
    """
    with connect(context, MOVE_TIMEOUT_S) as admin:
        admin.cordon(group)
        moved, stayed = _emptied(admin, group)
        for name, why in stayed.items():
            say(f"{name} stays in group {group}: {why}", err=True)
        document = {"group": group, "moved": moved, "stayed": stayed}
        show(context, document, f"group {group}: {len(moved)} pipelines moved, {len(stayed)} stay")
    if stayed:
        raise typer.Exit(1)


def _emptied(admin: Admin, group: int) -> tuple[list[str], dict[str, str]]:
    """Moves all pipelines of a group away, until none is found that was not there before: one may have been about to be registered
    there when the group was cordoned. Returns those that moved, and by name why others stay. Raises UnavailableError."""
    moved: list[str] = []
    stayed: dict[str, str] = {}
    while names := _pipelines_of(admin, group) - {*moved} - stayed.keys():
        for name in sorted(names):
            try:
                target = _emptiest(admin, group)
                admin.move(name, target)
            except LowmarkError as error:
                stayed[name] = str(error)
                continue
            moved.append(name)
            say(f"{name} is in group {target}", err=True)
    return moved, stayed


def move(
    context: typer.Context,
    pipeline: PipelineName,
    to: Annotated[
        int, typer.Option("--to", min=0, max=255, help="number of the group to which it goes")
    ],
) -> None:
    """Move a pipeline to another group of the deployment while it runs.

    Its nodes wait until it is there, and go on with what they have. A move that cannot be made is given up, and the
    pipeline goes on where it was.
    """
    with connect(context, MOVE_TIMEOUT_S) as admin:
        admin.move(pipeline, to)
    show(context, {"pipeline": pipeline, "group": to}, f"{pipeline} is in group {to}")


def _pipelines_of(admin: Admin, group: int) -> set[str]:
    """The names of all that live in a group, or are on their way there, which may belong there already though no process lists
    them. Raises UnavailableError where it does not answer, or whoever is asked has not heard of it."""
    known = {each.group: each for each in admin.groups()}  # first: what comes lives there then
    names = {info.spec.name for info in admin.pipelines() if info.group == group}
    silent = dict(admin.silent_groups)
    if group not in known:
        silent[group] = "who is asked has not heard of it yet"
    if group in silent:
        raise UnavailableError(
            f"group {group} is cordoned, and not drained: it does not say what lives there "
            f"({silent[group]}); repeat the command when it answers"
        )
    return names.union(known[group].arriving)


def _emptiest(admin: Admin, group: int) -> int:
    """The group with the fewest pipelines beside one. Raises RefusedError where there is none."""
    open_groups = [
        each
        for each in admin.groups()
        if each.group != group and not each.cordoned and not each.silent
    ]
    if not open_groups:
        message = (
            f"no other group than {group} takes pipelines: each is cordoned, or does not answer"
        )
        raise RefusedError(Refusal(RefusalCode.NOT_READY, message))
    return min(open_groups, key=lambda each: (each.pipelines, each.group)).group


def group_json(group: GroupInfo) -> dict[str, Any]:
    return {
        "group": group.group, "addresses": [*group.addresses], "cordoned": group.cordoned,
        "silent": group.silent or None, "shards": group.shards, "pipelines": group.pipelines,
        "ticks_per_s": round(group.ticks_per_s, 1), "open_cells": group.open_cells,
        "memory_bytes": group.memory_bytes, "leaving": [*group.leaving],
        "arriving": [*group.arriving],
    }  # fmt: skip


def _table(groups: list[GroupInfo]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("group", "shards", "pipelines", "ticks/s", "open cells", "memory", ""):
        table.add_column(name, justify="left" if not name else "right")
    for each in groups:
        notes = [each.silent] if each.silent else []
        notes += ["cordoned"] if each.cordoned else []
        notes += [f"{name} leaves" for name in each.leaving]
        notes += [f"{name} comes" for name in each.arriving]
        table.add_row(
            str(each.group), str(each.shards), str(each.pipelines), f"{each.ticks_per_s:.0f}",
            str(each.open_cells), f"{each.memory_bytes / 2**20:.0f} MiB", "; ".join(notes),
        )  # fmt: skip
    return table
