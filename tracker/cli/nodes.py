"""`lowmark nodes`: which nodes a pipeline has, and looking after those that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from tracker.cli.common import (
    PipelineName,
    Yes,
    ask,
    connect,
    fail,
    say,
    show,
)
from tracker.cli.render.nodes import TYPES, loss_text, nodes_table, retired_json, retired_text
from tracker.cli.shared import Shared
from tracker.cli.slots import Slots, parse_segment_slots
from tracker.cli.tables import Format, TableFormat, usable, write_table
from tracker.client import Admin, Explanation, LowmarkError, NodeClient
from tracker.client.node import JOIN_TIMEOUT_S
from tracker.core.insight.explain import MAX_EXPLAINED_CELLS, NodeExplanation, OpenCell
from tracker.core.model import Cells, TickContent
from tracker.core.model.names import printable
from tracker.core.model.slots import FOREVER
from tracker.view.explanations import node_text
from tracker.view.model import cells_of, nodes_of
from tracker.view.nodes import left_out, node_row
from tracker.view.printing import as_printable


def nodes_list(
    context: typer.Context, pipeline: PipelineName, format: TableFormat = Format.TABLE
) -> None:
    """Show the nodes of a pipeline, those that are gone first: state, kind, home shard, last tick, and what it waits for.

    State: gone, it has no stream of ticks; evicted, after a silence; silent, it has a stream and no tick has come for 5
    seconds; live; retired. Time is the lowest slot that its fronts promise or that it holds, and how far that is behind
    now. Each shard lists the 1,000 longest silent.
    """
    format = usable(context, format)
    with connect(context) as admin:
        found = admin.nodes(pipeline)
    rows = [node_row(node, found.spec) for node in found.nodes]
    document = {
        "pipeline": found.spec.name,
        "nodes": rows,
        "omitted": found.omitted,
        "silent_shards": {str(shard): why for shard, why in found.silent_shards.items()},
    }
    write_table(context, format, rows, TYPES, lambda: nodes_table(rows, found.spec), document)
    for sentence in left_out(found):
        say(sentence, err=True)


def retire(
    context: typer.Context,
    node_id: Annotated[str, typer.Argument(help="id of the node")],
    pipeline: PipelineName,
    write_off: Annotated[
        list[str] | None,
        typer.Option(
            "--write-off",
            help="SEGMENT=FROM..TO, or SEGMENT=SLOT: give up what is open there, by slots or ISO times; may be "
            "repeated",
        ),
    ] = None,
    release_holds: Annotated[
        bool, typer.Option("--release-holds", help="let go of what it holds, in its place")
    ] = False,
    yes: Yes = False,
) -> None:
    """Close a node that is gone for good; its fronts end with it. What it left open is waited for:
    others may still consume it. Or it is written off, where it is named.

    What it holds stays held, until a node of its id comes back; or it is let go of here.

    Nobody can tell whose the open items are: lowmark explain shows which slots are open and which nodes
    are silent. What is open at the named slots is shown, and asked for, before it is given up.
    """
    as_json = Shared.of(context).as_json
    named_slots = write_off or ()
    _check_usage(named_slots, as_json and not yes)
    with connect(context) as admin:
        node = _find_node(admin, pipeline, node_id)
        spec = admin.pipeline(pipeline).spec
        named = [parse_segment_slots(text, spec) for text in named_slots]
        names = spec.segments
        if not as_json:
            say(node_text(as_printable(node), as_printable(spec)))
        lost: dict[tuple[int, int], OpenCell] = {}
        for segment, explanation in _explained(admin, pipeline, named):
            _check_whole(explanation)
            cells = cells_of(explanation)
            lost |= {(cell.segment, cell.slot): cell for cell in cells}
            if not as_json:
                say(loss_text(printable(segment), cells, spec))
        if not yes:
            ask(_closing(node, len(lost), release_holds))
        released = _release(context, pipeline, node) if release_holds and node.hold_count else {}
        admin.retire(pipeline, node_id, _checksums(lost.values()))
        open_still = {
            (cell.segment, cell.slot)
            for _, explanation in _explained(admin, pipeline, named)
            for cell in cells_of(explanation)
        }
    gone = [cell for at, cell in lost.items() if at not in open_still]
    stayed = [cell for at, cell in lost.items() if at in open_still]
    told = retired_json(node_id, names, gone, stayed, released)
    text = retired_text(
        printable(node_id), gone, stayed, as_printable(released), as_printable(spec)
    )
    show(context, told, text)
    if stayed:
        fail("some cells hold other items by now and stay; look again with lowmark explain")


def _check_usage(write_off: Sequence[str], must_ask_json: bool) -> None:
    for text in write_off:
        parse_segment_slots(text)
    if must_ask_json:
        raise typer.BadParameter("--json cannot ask: add --yes")


def _closing(node: NodeExplanation, cell_count: int, release_holds: bool) -> str:
    """What is asked before a node is closed."""
    let_go = " and let go of what it holds" if release_holds and node.hold_count else ""
    given_up = f" and give up {cell_count} cells: nobody waits for their items any more"
    return f"Close {node.key} for good{let_go}{given_up if cell_count else ''}?"


def _release(
    context: typer.Context, pipeline: str, node: NodeExplanation
) -> dict[str, tuple[str, int]]:
    """Lets go of all that a node holds, in its place: whoever ran under its id is closed by that. Returns
    (segment, slot) by name."""
    with NodeClient(
        Shared.of(context).target, pipeline, node.key.node_id, kind=node.kind
    ) as client:
        try:
            client.join(take_over=True)
            held = client.holds
            released = {name: (hold.segment, hold.slot) for name, hold in held.items()}
            if held:
                moves = tuple(hold.at(FOREVER) for hold in held.values())
                client.commit(TickContent(holds=moves))
                client.flush(JOIN_TIMEOUT_S)
        except LowmarkError as error:
            fail(f"what {node.key.node_id} holds was not let go of: {error}")
        return released


def _find_node(admin: Admin, pipeline: str, node_id: str) -> NodeExplanation:
    explanation = admin.explain(pipeline, max_cells=0)
    for node in nodes_of(explanation):
        if node.key.node_id == node_id:
            return node
    _check_all_answer(explanation)
    fail(f"pipeline {pipeline!r} has no node {node_id!r}; lowmark explain lists the nodes")


def _explained(
    admin: Admin, pipeline: str, named: Sequence[tuple[str, Slots]]
) -> Iterator[tuple[str, Explanation]]:
    """What is open at the named slots now, with the name of each segment."""
    for segment, (first, last) in named:
        yield (
            segment,
            admin.explain(
                pipeline, segment, from_slot=first, to_slot=last + 1, max_cells=MAX_EXPLAINED_CELLS
            ),
        )


def _check_whole(explanation: Explanation) -> None:
    """Every shard has listed every open cell: nothing is given up that was not shown."""
    _check_all_answer(explanation)
    if len(cells_of(explanation)) < sum(part.open_cells for part in explanation.parts):
        fail(f"more than {MAX_EXPLAINED_CELLS} cells of a shard are open there: name fewer")


def _check_all_answer(explanation: Explanation) -> None:
    for shard, why in explanation.silent_shards.items():
        fail(f"shard {shard} does not answer, so what it holds cannot be shown: {why}")


def _checksums(cells: Iterable[OpenCell]) -> Cells:
    return Cells.of((cell.segment, cell.slot, cell.checksum, cell.items) for cell in cells)
