"""What a shard hands over when slots, nodes and names move, and takes up (rule 10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from tracker.core.admission.generations import Generations
from tracker.core.admission.nodes import Nodes
from tracker.core.config import ProcessConfig
from tracker.core.home.home import HomeNode, restore_node, snapshot_node
from tracker.core.log import Announcement, Effect, UnitsArrived
from tracker.core.log.journal import Journal
from tracker.core.log.sizes import (
    CELL_BYTES,
    given_up_bytes,
    node_bytes,
    pieces,
    staged_bytes,
    unit_bytes,
)
from tracker.core.log.steps import (
    MAX_CELLS_PER_MOVE,
    CellsMoved,
    DepartureSummary,
    LateEntry,
    NodesMoved,
)
from tracker.core.membership.shards import Shards
from tracker.core.model import Cells, Unit
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.pipeline.pipelines import Pipelines
from tracker.core.reporting.reporter import Reporter
from tracker.core.shard.cells import shown_items


@dataclass(slots=True, eq=False)
class HandOver:
    """Moves nodes, cells and departure summaries between shards, by entries of bounded size."""

    _journal: Journal
    _shards: Shards
    _pipelines: Pipelines
    _reporter: Reporter
    _nodes: Nodes
    _generations: Generations
    _config: ProcessConfig
    _effects: list[Effect]
    moved_cells: int = d.forgotten("it counts since the process was started", default=0)
    """Open cells that this process has handed over since it was started."""

    def give_nodes(self) -> None:
        """The nodes that are at home elsewhere by the newest table go there, with all that their home
        knows of them; from then on this home's entries are split by that table."""
        version, before = self._shards.membership.table.version, self._shards.membership.previous
        assert before is not None, "a table that is not adopted here has taken the place of one"
        for name, pipeline in self._pipelines.items():
            closed = {key for _, of, key in self._nodes.closed_keys if of == name}
            moving: dict[int, list[HomeNode]] = {}
            for node in pipeline.home.nodes.values():
                home = self._shards.routing.home(name, node.key.node_id)
                # A table that was lost with its sequencer may have brought nodes here. Nobody takes them of this one, nor needs
                # them: since then the pipeline stands, or is complete.
                was_here = before.home(name, node.key.node_id) == self._shards.own
                if home == self._shards.own or not was_here:
                    continue
                if node.evicted or node.key not in closed:
                    moving.setdefault(home, []).append(node)
            for home, nodes in moving.items():
                for entry in _nodes_moved(
                    version, home, pipeline, nodes, self._config.max_bytes_per_move
                ):
                    self._journal.append_home(entry)

    def give_cells(self) -> None:
        """What is open here and belongs elsewhere by the newest table goes there: no home splits by an
        older one any more, so nothing else comes for it."""
        version = self._shards.membership.table.version
        for name, pipeline in self._pipelines.items():
            shard = pipeline.shard
            cells = shard.cells.open_cells()
            if len(cells):
                cells = cells.select(
                    self._shards.routing.owners(cells.slots, name) != self._shards.own
                )
            self.moved_cells += len(cells)
            units = [
                unit
                for segment, names in shard.units.items()
                if self._shards.routing.names_keeper(name, segment) != self._shards.own
                for unit in names.units(segment)
            ]
            given_up = [
                cell
                for cell in shard.written_off.cells.values()
                if self._shards.routing.owner(cell.slot, name) != self._shards.own
            ]
            consumed = [
                Unit(segment, unit, LOWEST_SLOT)
                for segment, names in shard.units.items()
                if self._shards.routing.names_keeper(name, segment) != self._shards.own
                for unit in names.early
            ]
            most_bytes = self._config.max_bytes_per_move
            moved = partial(CellsMoved, version, name, pipeline.generation)
            for part in _cells_in_pieces(cells, most_bytes):
                self._journal.append_home(moved(cells=part))
            for names_moved in pieces(units, unit_bytes, most_bytes):
                self._journal.append_home(moved(units=names_moved))
            for names_consumed in pieces(consumed, unit_bytes, most_bytes):
                self._journal.append_home(moved(consumed=names_consumed))
            for listed in pieces(given_up, given_up_bytes, most_bytes):
                self._journal.append_home(moved(written_off=listed))

    def take_nodes(self, entry: NodesMoved, home: int, now_ns: int) -> None:
        """Nodes leave this home, or come to it."""
        if entry.restart is not None:
            self._generations.begin_generation(entry.pipeline, entry.restart, now_ns)
        pipeline = self._pipelines.get(entry.pipeline)
        if pipeline is None or entry.generation != pipeline.generation:
            return  # their keys are over
        nodes, claims = pipeline.home, pipeline.claims()
        self._pipelines.mark(entry.pipeline)  # some may be granted here what they wait for
        for saved in entry.nodes:
            node_id = saved.key.node_id
            if home == self._shards.own:
                nodes.let_go(node_id)
                nodes.newest.pop(node_id, None)
                nodes.drop_staged(node_id, unless=lambda _: False)
                continue
            node = restore_node(saved)
            node.heard(now_ns)
            nodes.take(node)
            nodes.take_up(node, claims.get(node_id, {}))
            if not node.evicted:
                nodes.newest[node_id] = node.key
        if home != self._shards.own:
            for node_id, contribution in entry.staged:
                nodes.stage(node_id, (contribution,))

    def take_cells(self, entry: CellsMoved, home: int) -> None:
        """Cells and names leave this shard, or come to it. Both touch the cells, as by a tick: so they
        are held until every shard is known to have gone by the entry (rule 6)."""
        pipeline = self._pipelines.get(entry.pipeline)
        self._pipelines.mark(entry.pipeline)
        if pipeline is None:
            return
        if (
            entry.generation != pipeline.generation
        ):  # its cells are dropped, and what was given up stays listed
            pipeline.shard.list_given_up(entry, gives=home == self._shards.own)
            return
        if home == self._shards.own:
            pipeline.shard.give_cells(entry, home)
            return
        pipeline.shard.take_cells(entry, home)
        for segment in {unit.segment for unit in entry.units}:
            pipeline.shard.forget_names(segment, pipeline.durable[segment])
            self._effects.append(UnitsArrived(entry.pipeline, segment))

    def take_summaries(self, summaries: Iterable[DepartureSummary], now_ns: int) -> None:
        """What a shard that leaves has announced binds those that stay, and what it has listed goes on. That
        some segments are complete, each finds out by itself, and takes them to be as far as the pipeline was:
        with what it has announced, all might be complete, and the registrar has not logged that. What is
        announced here and not durable yet counts for nothing: a crash may keep the summaries and lose it."""
        for words in summaries:
            if words.restart is not None:
                self._generations.begin_generation(words.pipeline, words.restart, now_ns)
            pipeline = self._pipelines.get(words.pipeline)
            if pipeline is None:
                continue  # it was deleted
            if words.generation == pipeline.generation:
                announced = words.announced
            else:
                announced = (min(words.announced),) * len(words.announced)
            size = len(pipeline.departed_floors)
            # Segments may be new, and not known where it left; or not known here, where a shard that has told it of them is lost.
            announced = (*announced[:size], *(min(announced),) * (size - len(announced)))
            floors = zip(pipeline.departed_floors, announced, strict=True)
            pipeline.departed_floors = [max(pair) for pair in floors]
            least = min(words.announced)
            known = [least if slot == FOREVER else slot for slot in announced]
            news = tuple((s, slot) for s, slot in enumerate(known) if slot > pipeline.durable[s])
            if news:
                self._reporter.publish(
                    Announcement(words.pipeline, news, pipeline.generation), now_ns
                )
            for late in words.late:
                before = pipeline.shard.late.get(late.segment, LateEntry(late.segment))
                pipeline.shard.late[late.segment] = LateEntry(
                    late.segment,
                    shown_items(before.items + late.items),
                    shown_items(before.cells + late.cells),
                    max(before.last_slot, late.last_slot),
                )
                pipeline.shard.changes.segments[late.segment] = None
            for segment, items in words.written_off_items:
                pipeline.shard.written_off.add_items(segment, items)
                pipeline.shard.changes.segments[segment] = None
            self._pipelines.mark(words.pipeline)


def _cells_in_pieces(cells: Cells, most_bytes: int) -> Iterator[Cells]:
    number = min(MAX_CELLS_PER_MOVE, max(1, most_bytes // CELL_BYTES))
    for first in range(0, len(cells), number):
        chunk = slice(first, first + number)
        yield Cells(
            cells.segments[chunk], cells.slots[chunk], cells.checksums[chunk], cells.counts[chunk]
        )


def _nodes_moved(
    version: int, home: int, pipeline: Pipeline, nodes: list[HomeNode], most_bytes: int
) -> Iterator[NodesMoved]:
    """What is staged goes before the nodes that it is of: with its node a home lets go of it, so a process
    that dies between two entries would have lost the rest. Staged again, it changes nothing."""
    staged = (
        (node.key.node_id, contribution)
        for node in nodes
        if not node.retired
        for contribution in pipeline.home.staged.get(node.key.node_id, {}).values()
    )
    moved = partial(NodesMoved, version, pipeline.spec.name, home, pipeline.restart)
    for contributions in pieces(staged, staged_bytes, most_bytes):
        yield moved(staged=contributions)
    for saved in pieces(map(snapshot_node, nodes), node_bytes, most_bytes):
        yield moved(nodes=saved)
