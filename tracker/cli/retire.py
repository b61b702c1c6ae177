"""`lowmark nodes retire`: closing nodes that are gone for good, one or many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
from tracker.cli.durations import lasting
from tracker.cli.render.retired import Retired, Retirement, loss_text, retired_json, retired_text
from tracker.cli.shared import Shared
from tracker.cli.slots import Slots, parse_segment_slots
from tracker.client import Admin, Explanation, LowmarkError, NodeClient, NodeInfo, NodeList
from tracker.client.admin import as_shown
from tracker.client.node import JOIN_TIMEOUT_S
from tracker.core.insight.explain import MAX_EXPLAINED_CELLS, OpenCell
from tracker.core.model import NodeKey, PipelineSpec, TickContent
from tracker.core.model.slots import FOREVER
from tracker.view.explanations import node_text
from tracker.view.model import cells_of
from tracker.view.nodes import left_out
from tracker.view.printing import as_printable


def retire(
    context: typer.Context,
    pipeline: PipelineName,
    node_id: Annotated[str, typer.Argument(help="id of the node; or give --silent-for")] = "",
    silent_for_s: Annotated[
        float | None,
        lasting(
            "--silent-for",
            help="all that have no stream of ticks, and have committed nothing for so long",
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="with --silent-for: of this kind alone: front, query, ...")
    ] = "",
    write_off: Annotated[
        list[str] | None,
        typer.Option(
            help="of one node: SEGMENT=FROM..TO, or SEGMENT=SLOT: give up what is open there, by slots or ISO times; "
            "may be repeated"
        ),
    ] = None,
    release_holds: Annotated[
        bool, typer.Option("--release-holds", help="let go of what it holds, in its place")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be done, and do nothing")
    ] = False,
    yes: Yes = False,
) -> None:
    """Close a node that is gone for good, or many; its fronts end with it. What it left open is waited for:
    others may still consume it. Or it is written off, where it is named.

    What it holds stays held, until a node of its id comes back; or it is let go of here.

    Nobody can tell whose the open items are: lowmark explain shows which slots are open, lowmark nodes list which nodes
    are gone. Each node with its open work, and what is open at the named slots, is shown, and asked for, before.
    """
    as_json = Shared.of(context).as_json
    silent_ms = _checked_ms(node_id, silent_for_s, kind, write_off or ())
    if as_json and not (yes or dry_run):
        raise typer.BadParameter("--json cannot ask: add --yes, or --dry-run")
    with connect(context) as admin:
        wanted = _Wanted(node_id, silent_ms, kind, release_holds)
        plan = _planned(admin, pipeline, wanted, write_off or ())
        if not as_json:
            _show(plan)
        if dry_run or not plan.nodes:
            outcome = plan.outcome(dry_run)
        else:
            if not yes:
                ask(plan.question())
            outcome = _carry_out(context, admin, plan)
    show(context, retired_json(outcome), retired_text(as_printable(outcome)))
    if outcome.stayed:
        fail(
            "some cells hold other items by now and stay, or a shard does not answer what is open there; look again with lowmark "
            "explain"
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One node by its id, or all of a kind (any, if empty) that are gone for so long."""

    node_id: str
    silent_ms: int
    kind: str
    release_holds: bool

    def of(self, found: NodeList) -> tuple[NodeInfo, ...]:
        if not self.node_id:
            return found.gone(self.silent_ms, self.kind)
        return tuple(node for node in found.nodes if node.node_id == self.node_id)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done: the nodes to retire, and by segment the slots that are named, with the cells open there."""

    wanted: _Wanted
    found: NodeList
    nodes: tuple[NodeInfo, ...]
    named: tuple[tuple[str, Slots], ...]
    cells: tuple[tuple[OpenCell, ...], ...]

    @property
    def spec(self) -> PipelineSpec:
        return self.found.spec

    @property
    def lost(self) -> list[OpenCell]:
        """Each cell once, however often it is named."""
        return list(
            {(each.segment, each.slot): each for cells in self.cells for each in cells}.values()
        )

    def question(self) -> str:
        whom = (
            str(self.nodes[0].known.key)
            if len(self.nodes) == 1
            else f"these {len(self.nodes)} nodes"
        )
        held = self.wanted.release_holds and any(node.known.hold_count for node in self.nodes)
        let_go = " and let go of what is held there" if held else ""
        given_up = f" and give up {len(self.lost)} cells: nobody waits for their items any more"
        return f"Close {whom} for good{let_go}{given_up if self.lost else ''}?"

    def outcome(self, dry_run: bool) -> Retirement:
        """Where nothing is done."""
        names = self.spec.segments
        would = [
            Retired(
                node,
                {held.name: (names[held.segment], held.slot) for held in node.known.holds}
                if self.wanted.release_holds
                else {},
            )
            for node in self.nodes
        ]
        return Retirement(self.spec, would, self.lost, dry_run=dry_run)


def _checked_ms(
    node_id: str, silent_for_s: float | None, kind: str, write_off: Sequence[str]
) -> int:
    """For how long nodes are to be gone. Raises typer.BadParameter."""
    if bool(node_id) == (silent_for_s is not None):
        raise typer.BadParameter("name a NODE_ID, or give --silent-for for all that are gone")
    if node_id and kind:
        raise typer.BadParameter("--kind is for --silent-for")
    if write_off and not node_id:
        raise typer.BadParameter("--write-off is for one node: name it")
    for text in write_off:
        parse_segment_slots(text)
    return int((silent_for_s or 0) * 1000)


def _planned(admin: Admin, pipeline: str, wanted: _Wanted, write_off: Sequence[str]) -> _Plan:
    """Ends the command where a shard does not answer whose nodes, or cells, may be meant."""
    found = admin.nodes(pipeline)
    nodes = wanted.of(found)
    if not (wanted.node_id and nodes):
        _check_all_answer(found.silent_shards)
    if wanted.node_id and not nodes:
        why = "; ".join([*left_out(found), "lowmark nodes list shows the nodes"])
        fail(f"pipeline {pipeline!r} has no node {wanted.node_id!r}; {why}")
    named = tuple(parse_segment_slots(text, found.spec) for text in write_off)
    explained = list(_explained(admin, pipeline, named))
    for explanation in explained:
        _check_whole(explanation)
    return _Plan(wanted, found, nodes, named, tuple(tuple(cells_of(each)) for each in explained))


def _show(plan: _Plan) -> None:
    """The nodes with their open work, what is to be written off, and which nodes nobody has looked at."""
    spec = as_printable(plan.spec)
    for node in plan.nodes:
        say(node_text(as_printable(node.known), spec))
    for (segment, _), cells in zip(plan.named, plan.cells, strict=True):
        say(loss_text(as_printable(segment), cells, spec))
    if not plan.wanted.node_id:
        for sentence in left_out(plan.found):
            say(sentence, err=True)


def _carry_out(context: typer.Context, admin: Admin, plan: _Plan) -> Retirement:
    """Of many, those that are back by now stay: nobody was shown them as they are."""
    pipeline, wanted, lost = plan.spec.name, plan.wanted, plan.lost
    nodes = plan.nodes
    if not wanted.node_id:
        gone = {node.known.key for node in wanted.of(admin.nodes(pipeline))}
        nodes = tuple(node for node in nodes if node.known.key in gone)
    done: list[Retired] = []
    for node in nodes:
        try:
            released: dict[str, tuple[str, int]] = {}
            key = node.known.key
            if wanted.release_holds and node.known.hold_count:
                _check_as_shown(admin, plan, node)
                released, key = _release(context, pipeline, node)
            admin.retire(
                pipeline,
                node.node_id,
                as_shown(lost),
                shown=key,
                generation=plan.found.generation,
            )
        except (LowmarkError, typer.Exit):
            if done:
                say(
                    f"{len(done)} of {len(nodes)} nodes are retired; repeat it for the others",
                    err=True,
                )
            raise
        done.append(Retired(node, released))
    explained = [*_explained(admin, pipeline, plan.named)]
    is_known = not any(explanation.silent_shards for explanation in explained)
    shown = [cell for explanation in explained for cell in cells_of(explanation)]
    open_still = {(cell.segment, cell.slot) for cell in (shown if is_known else lost)}
    return Retirement(
        plan.spec,
        done,
        [cell for cell in lost if (cell.segment, cell.slot) not in open_still],
        [cell for cell in lost if (cell.segment, cell.slot) in open_still],
        [node for node in plan.nodes if node not in nodes],
    )


def _check_as_shown(admin: Admin, plan: _Plan, node: NodeInfo) -> None:
    """Ends the command where a node has joined again since it was shown: who lets go in its place would close it, and give up
    what it has come to hold."""
    found = admin.nodes(plan.spec.name)
    if found.generation != plan.found.generation or (
        found.newest_key(node.node_id) != node.known.key
    ):
        fail(
            f"node {node.node_id!r} is not as it was shown: it has joined again since, or its pipeline was restarted, or its home "
            "does not answer; nothing is done to it, look at it again with lowmark nodes list"
        )


def _release(
    context: typer.Context, pipeline: str, node: NodeInfo
) -> tuple[dict[str, tuple[str, int]], NodeKey]:
    """Lets go of all that a node holds, in its place: whoever ran under its id is closed by that. Returns
    (segment, slot) by name, and the key by which it did so."""
    with NodeClient(
        Shared.of(context).target, pipeline, node.node_id, kind=node.known.kind
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
            fail(f"what {node.node_id} holds was not let go of: {error}")
        return released, client.joined.key


def _explained(
    admin: Admin, pipeline: str, named: Iterable[tuple[str, Slots]]
) -> Iterator[Explanation]:
    """What is open at the named slots now."""
    for segment, (first, last) in named:
        yield admin.explain(
            pipeline, segment, from_slot=first, to_slot=last + 1, max_cells=MAX_EXPLAINED_CELLS
        )


def _check_whole(explanation: Explanation) -> None:
    """Every shard has listed every open cell: nothing is given up that was not shown."""
    _check_all_answer(explanation.silent_shards)
    if len(cells_of(explanation)) < sum(part.open_cells for part in explanation.parts):
        fail(f"more than {MAX_EXPLAINED_CELLS} cells of a shard are open there: name fewer")


def _check_all_answer(silent_shards: dict[int, str]) -> None:
    for shard, why in silent_shards.items():
        fail(f"shard {shard} does not answer, so what it holds cannot be shown: {why}")
