"""The commands for operators: why min time stands, nodes that are gone, stores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tracker.cli.common import (
    ANSWER_TIMEOUT_S,
    DEFAULT_TARGET,
    EXIT_REFUSED,
    AsJson,
    PipelineName,
    SegmentName,
    Target,
    Yes,
    fail,
    print_json,
)
from tracker.client import Admin, Explanation
from tracker.client.moments import parse_slot
from tracker.core.diagnosis import SILENT_AFTER_MS
from tracker.core.explain import MAX_EXPLAINED_CELLS, NodeExplanation, OpenCell
from tracker.core.model import Cells
from tracker.core.slots import FOREVER, LOWEST_SLOT

nodes_app = typer.Typer(no_args_is_help=True, help="Look after nodes that are gone.")

Slots = tuple[int, int]
"""The first and the last slot."""


def explain(
    pipeline: PipelineName,
    segment: SegmentName = None,
    slots: Annotated[
        str | None, typer.Option(help="list open cells at these slots alone: FROM..TO, or one")
    ] = None,
    cells: Annotated[
        int,
        typer.Option(min=0, max=MAX_EXPLAINED_CELLS, help="open cells to list, of each shard"),
    ] = 100,
    at: Annotated[
        str | None,
        typer.Option(
            help="what keeps min time from this moment: an ISO date or time, now, or slot:N; if not "
            "given, what keeps it from moving"
        ),
    ] = None,
    silent_after: Annotated[
        float,
        typer.Option(
            min=0, help="seconds: a node that says nothing for longer is taken to be stuck"
        ),
    ] = SILENT_AFTER_MS / 1000,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Say why min time is where it is, and what would let it move: the front that has not promised more,
    the node that is gone or stuck, the batch that is not committed, the shard that is behind."""
    from tracker.view.explanations import explanation_json, explanation_text

    first, last = _slots(slots) if slots else (LOWEST_SLOT, FOREVER - 1)
    if at is not None:
        try:
            parse_slot(at, 1)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        slack_ns = admin.pipeline(pipeline).spec.slack_ns if at is not None else 0
        explanation = admin.explain(
            pipeline, segment, from_slot=first, to_slot=last + 1, max_cells=cells,
            at=None if at is None else parse_slot(at, slack_ns, up=True),
            silent_after_ms=int(silent_after * 1000),
        )  # fmt: skip
    if as_json:
        print_json(explanation_json(explanation))
    else:
        typer.echo(explanation_text(explanation))


@nodes_app.command("retire")
def retire(
    node_id: Annotated[str, typer.Argument(help="id of the node")],
    pipeline: PipelineName,
    wait: Annotated[
        bool, typer.Option("--wait", help="what it left open is waited for (if nothing is said)")
    ] = False,
    write_off: Annotated[
        bool, typer.Option("--write-off", help="give up what is open at --slots")
    ] = False,
    slots: Annotated[
        list[str] | None,
        typer.Option(help="SEGMENT=FROM..TO, or SEGMENT=SLOT: what is lost; may be repeated"),
    ] = None,
    yes: Yes = False,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Close a node that is gone for good; its fronts end with it. What it left open is waited for:
    others may still consume it. Or it is written off, where it is named.

    Nobody can tell whose the open items are: lowmark explain shows which slots are open and which nodes
    are silent. What is open at the named slots is shown, and asked for, before it is given up.
    """
    if wait and write_off:
        raise typer.BadParameter("--wait and --write-off are two ways; choose one")
    if write_off != bool(slots):
        raise typer.BadParameter("--write-off and --slots go together: name what is lost")
    named = [_segment_slots(text) for text in slots or ()]
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        node = _find_node(admin, pipeline, node_id)
        lost, names = _show_loss(admin, pipeline, node, named, quiet=as_json)
        if not yes:
            if as_json:
                raise typer.BadParameter("--json cannot ask: add --yes")
            _ask(node, lost)
        admin.retire(pipeline, node_id, _cells(lost))
        stayed = _still_open(admin, pipeline, named, lost)
    _tell_outcome(node_id, names, lost, stayed, as_json)
    if stayed:
        fail("some cells hold other items by now and stay; look again with lowmark explain", 1)


def restart(
    pipeline: PipelineName,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="a slot, or an ISO date or time; not before min time, where it begins if not given",
        ),
    ] = None,
    yes: Yes = False,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Begin a pipeline anew from its min time: a new generation. What is open is dropped and listed,
    all nodes are closed and must join again, and whatever they send of before is refused.

    Fronts are told from which slot on to commit anew what they have published. Nothing that was
    announced is taken back. What is open is shown, and asked for, before it is dropped.
    """
    if as_json and not yes:
        raise typer.BadParameter("--json cannot ask: add --yes")
    with Admin(target, ANSWER_TIMEOUT_S) as admin:
        info = admin.pipeline(pipeline)
        from_slot = _from_slot(from_, info.spec.slack_ns)
        if not as_json:
            for segment in info.state.segments:
                typer.echo(
                    f"{segment.segment}: {segment.open_items} items open in {segment.open_slots} slots"
                )
        if not yes:
            question = f"Drop what is open in {pipeline}, close its nodes and begin anew?"
            typer.confirm(question, abort=True)
        generation, began = admin.restart(pipeline, info.state.generation, from_slot)
    if as_json:
        print_json({"pipeline": pipeline, "generation": generation, "from_slot": began})
    else:
        typer.echo(
            f"{pipeline} is in generation {generation}, from slot {began} on; start its nodes again"
        )


def _from_slot(text: str | None, slack_ns: int) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return parse_slot(text, slack_ns)


def _find_node(admin: Admin, pipeline: str, node_id: str) -> NodeExplanation:
    explanation = admin.explain(pipeline, max_cells=0)
    for part in explanation.parts:
        for node in part.nodes:
            if node.key.node_id == node_id:
                return node
    _need_all(explanation)
    fail(
        f"pipeline {pipeline!r} has no node {node_id!r}; lowmark explain lists the nodes",
        EXIT_REFUSED,
    )


def _need_all(explanation: Explanation) -> None:
    for shard, why in explanation.silent_shards.items():
        fail(f"shard {shard} does not answer, so what it holds cannot be shown: {why}", 1)


def _show_loss(
    admin: Admin,
    pipeline: str,
    node: NodeExplanation,
    named: list[tuple[str, Slots]],
    quiet: bool,
) -> tuple[list[OpenCell], tuple[str, ...]]:
    """The open cells at the named slots, and the names of the segments; says them unless `quiet`."""
    from tracker.view.explanations import cells_of, node_text, ranges_text

    names = admin.pipeline(pipeline).spec.segments
    if not quiet:
        typer.echo(node_text(node, names))
    lost: dict[tuple[int, int], OpenCell] = {}
    for segment, (first, last) in named:
        explanation = admin.explain(
            pipeline,
            segment,
            from_slot=first,
            to_slot=last + 1,
            max_cells=MAX_EXPLAINED_CELLS,
        )
        _need_all(explanation)
        cells = cells_of(explanation)
        if len(cells) < sum(part.open_cells for part in explanation.parts):
            fail(f"more than {MAX_EXPLAINED_CELLS} cells of a shard are open there: name fewer", 1)
        lost |= {(cell.segment, cell.slot): cell for cell in cells}
        if not quiet:
            items = sum(cell.items for cell in cells)
            at = ranges_text(cell.slot for cell in cells) or "none"
            typer.echo(f"to be written off in {segment}: {items} items; open slots: {at}")
    return list(lost.values()), names


def _ask(node: NodeExplanation, lost: list[OpenCell]) -> None:
    question = f"Close {node.key} for good"
    if lost:
        question += f" and give up {len(lost)} cells: nobody waits for their items any more"
    typer.confirm(question + "?", abort=True)


def _cells(lost: list[OpenCell]) -> Cells:
    return Cells.of((cell.segment, cell.slot, cell.checksum, cell.items) for cell in lost)


def _still_open(
    admin: Admin, pipeline: str, named: list[tuple[str, Slots]], lost: list[OpenCell]
) -> list[OpenCell]:
    """Which of the cells are open still: they hold other items than were shown."""
    from tracker.view.explanations import cells_of

    wanted = {(cell.segment, cell.slot) for cell in lost}
    left: dict[tuple[int, int], OpenCell] = {}
    for segment, (first, last) in named:
        explanation = admin.explain(
            pipeline, segment, from_slot=first, to_slot=last + 1, max_cells=MAX_EXPLAINED_CELLS
        )
        left |= {(cell.segment, cell.slot): cell for cell in cells_of(explanation)}
    return [cell for place, cell in left.items() if place in wanted]


def _tell_outcome(
    node_id: str,
    names: tuple[str, ...],
    lost: list[OpenCell],
    stayed: list[OpenCell],
    as_json: bool,
) -> None:
    from tracker.view.explanations import cell_json

    kept = {(cell.segment, cell.slot) for cell in stayed}
    gone = [cell for cell in lost if (cell.segment, cell.slot) not in kept]
    if as_json:
        told: dict[str, Any] = {"node": node_id, "retired": True}
        told["written_off"] = [cell_json(cell, names) for cell in gone]
        told["stayed"] = [cell_json(cell, names) for cell in stayed]
        print_json(told)
        return
    typer.echo(f"{node_id} is retired")
    if lost:
        typer.echo(f"written off: {sum(cell.items for cell in gone)} items in {len(gone)} cells")


def _segment_slots(text: str) -> tuple[str, Slots]:
    segment, _, slots = text.rpartition("=")
    if not segment:
        raise typer.BadParameter(f"--slots {text!r} is not SEGMENT=FROM..TO or SEGMENT=SLOT")
    return segment, _slots(slots)


def _slots(text: str) -> Slots:
    first, dots, last = text.partition("..")
    try:
        slots = int(first), int(last if dots else first)
    except ValueError:
        raise typer.BadParameter(f"--slots {text!r} is not FROM..TO or one slot") from None
    if not LOWEST_SLOT <= slots[0] <= slots[1] < FOREVER:
        raise typer.BadParameter(f"--slots {text!r}: the first is above the last, or no slot")
    return slots
