"""Judging ticks: each is taken whole, or refused and changes nothing (rules 1, 2, 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tracker.core.admission.holds import created_from, held_from, with_holds
from tracker.core.home.home import RAISE_LIMIT, HomeNode
from tracker.core.log import KeyTick, SegmentLow, SubmitTick
from tracker.core.membership.shards import Shards
from tracker.core.model import Cells, RefusalCode, Refused, Tick, TickContent, Unit
from tracker.core.model.names import unprintable_unit
from tracker.core.model.slots import add_delay
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.replication.replication import Replication
from tracker.core.shard.cells import new_cells
from tracker.core.shard.shard import MAX_JOINED

MAX_FRONTS_OF_NODE = 10_000
MAX_FRONTS_OF_PIPELINE = 100_000
"""At one time, as far as its home has applied: each shard reports all of them."""


@dataclass(slots=True, eq=False)
class TickJudge:
    """Judges the ticks of nodes at home here. It keeps nothing."""

    _shards: Shards
    _replication: Replication

    def judge(self, pipeline: Pipeline, node: HomeNode, event: SubmitTick, due: int) -> KeyTick:
        """The entry that a tick becomes, if its number is the one that is due; raises Refused, changing nothing,
        if it cannot be."""
        if event.number != due:
            raise Refused(
                RefusalCode.OUT_OF_ORDER,
                f"pipeline {pipeline.spec.name!r}: node {node.key} sent tick {event.number}, "
                f"tick {due} is due",
                expected=due,
            )
        floors = pipeline.floors()
        try:
            content = self._checked(pipeline, node, event, floors)
        except Refused as refused:
            if refused.refusal.code is RefusalCode.BELOW_MIN_TIME:
                refused.refusal = replace(refused.refusal, min_times=tuple(floors))
            raise
        late = Cells.empty()
        if content.consumed.size:
            is_late = content.consumed.below(floors)
            if is_late is not None:
                late = content.consumed.select(is_late)
                content = replace(content, consumed=content.consumed.select(~is_late))
        pipeline.home.accept(node, content)
        return KeyTick(Tick(pipeline.spec.name, node.key, event.number, content), late)

    def _checked(
        self, pipeline: Pipeline, node: HomeNode, event: SubmitTick, floors: list[int]
    ) -> TickContent:
        """What a tick comes to, whose number is due: with the cells of holds, and nothing where it repeats a batch.
        Raises Refused."""
        content = event.content
        if content.batch is not None and pipeline.home.is_repeated_batch(node, content.batch):
            return TickContent()
        pipeline.home.check_cells(content)
        if content.holds:
            content = with_holds(pipeline, node, event.number, content, floors)
        pipeline.home.check(node, content, pipeline.announced, floors)
        if content.units_consumed:
            self._check_consumed_units(pipeline, content.units_consumed)
        created = event.content.created
        if created.size and not event.content.consumed.size:
            self._check_labels(pipeline, node, created)
        comes_of_more = content.consumed.size or node.held
        if created.size and (comes_of_more or pipeline.graph_change.of_edges):
            self._check_ways(pipeline, node, event.content, floors)
        if content.joins:
            self._check_room_for_fronts(pipeline, node, content)
        self._check_room(pipeline, content)
        return content

    def _check_consumed_units(self, pipeline: Pipeline, units: tuple[Unit, ...]) -> None:
        """A unit that is known is consumed under the name that it has; a new name can be printed."""
        if unprintable_unit(unit.name for unit in units) is None:
            return
        known = pipeline.shard.names
        new = (unit.name for unit in units if known(unit.segment).slot(unit.name) is None)
        pipeline.home.check_printable("unit", unprintable_unit(new))

    def _check_labels(self, pipeline: Pipeline, node: HomeNode, created: Cells) -> None:
        """Items that come of nothing are a front's: none may lie below what it was granted or has
        promised, also where another front holds min time. This is what an evicted front meets that
        goes on with what it labelled before. But what a node holds, it may emit there."""
        if not node.fronts:
            return
        floors: dict[int, tuple[int, str]] = {}
        for front, claim in node.fronts.items():
            granted = node.granted(front)
            if granted is not None:
                bound = (max(granted, claim.promise), front)
                floors[claim.segment] = min(bound, floors.get(claim.segment, bound))
        for segment, (floor, front) in floors.items():
            lowest = created.lowest_slots().get(segment, floor)
            if lowest < floor and lowest < held_from(pipeline, node, segment):
                raise Refused(
                    RefusalCode.BELOW_MIN_TIME,
                    f"pipeline {pipeline.spec.name!r}, segment {pipeline.spec.segments[segment]!r}: "
                    f"front {front!r} of node {node.key} created an item at slot {lowest}, but "
                    f"it may label from slot {floor} on: it has promised that much, or was granted "
                    "it when it joined; label the item with a later slot",
                )

    def _check_ways(
        self, pipeline: Pipeline, node: HomeNode, content: TickContent, floors: list[int]
    ) -> None:
        """A node may create along an edge that is not declared, that is gone, or that this home has not heard of yet: refused is
        what cannot have come of anything that its tick consumes, nor of what it holds or its fronts may label. What is
        consumed late, or held where min time has passed, rules nothing out: it keeps no min time away."""
        consumed, distance = content.consumed.lowest_slots(), pipeline.declared.distance
        for segment, lowest in content.created.lowest_slots().items():
            for u, slot in consumed.items():
                if add_delay(slot, distance(u, segment)) <= lowest:
                    break  # it comes of that, late or not, as nearly everything does
            else:
                self._check_way(pipeline, node, content, floors, segment, lowest)

    def _check_way(
        self, pipeline: Pipeline, node: HomeNode, content: TickContent, floors: list[int],
        segment: int, lowest: int,
    ) -> None:  # fmt: skip
        """The same of one segment, where what is created lowest comes of nothing that is consumed in time."""
        spec = pipeline.spec
        if lowest >= created_from(pipeline, node, content, segment, floors):
            return
        late = {held.segment for held in node.held.values() if held.slot < floors[held.segment]}
        is_late = content.consumed.below(floors)
        if is_late is not None:
            late |= content.consumed.select(is_late).lowest_slots().keys()
        if any(pipeline.declared.connects(u, segment) for u in late):
            return
        if lowest >= created_from(pipeline, node, content, segment, floors, pipeline.graph):
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {spec.name!r}: the edge by which node {node.key} created in segment "
                f"{spec.segments[segment]!r} is new, and not every shard is known to reckon with it; ask again",
            )
        consumed = content.consumed.lowest_slots().items()
        of = ", ".join(f"{spec.segments[u]!r} at slot {slot}" for u, slot in consumed)
        of = (
            f"what the same tick consumes, in {of}"
            if of
            else "what it holds or its fronts may label"
        )
        is_gone = segment in pipeline.home.removed
        gone = ", a segment that was removed and is drained," if is_gone else ""
        raise Refused(
            RefusalCode.INVALID,
            f"pipeline {spec.name!r}, segment {spec.segments[segment]!r}: node {node.key} created an item at slot "
            f"{lowest},{gone} which by the pipeline's edges cannot come of {of}; let the node create where its edges "
            "lead, or declare the edge before it is used (lowmark pipelines apply)",
        )

    def _check_room_for_fronts(
        self, pipeline: Pipeline, node: HomeNode, content: TickContent
    ) -> None:
        """Of a pipeline that has not begun, those that it waits for may always join: they are what empties the table."""
        spec, joined = pipeline.spec, pipeline.shard.joined
        more = len({join.front for join in content.joins} - node.fronts.keys())
        for whose, there, most in (
            (f"node {node.key}", len(node.fronts), MAX_FRONTS_OF_NODE),
            ("all nodes together", len(pipeline.shard.fronts), MAX_FRONTS_OF_PIPELINE),
        ):
            if more and there + more > most:
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {spec.name!r}: {there} fronts are those of {whose} and {more} more of node {node.key} would "
                    f"pass the limit of {most}; let some leave first",
                )
        if pipeline.shard.begun or not spec.fronts or len(joined) < MAX_JOINED:
            return
        missing = {*spec.fronts} - {name for _, name in joined}
        for join in content.joins:
            if join.front in missing or (node.key.node_id, join.front) in joined:
                continue
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {spec.name!r}: front {join.front!r} of node {node.key} cannot join: {len(joined)} fronts have, the "
                f"limit is {MAX_JOINED} for a pipeline that has not begun, and it waits for {sorted(missing)[:20]}; let those "
                "join, or declare others (lowmark pipelines apply)",
            )

    def _check_room(self, pipeline: Pipeline, content: TickContent) -> None:
        """Raises Refused where a table has no room for what comes in. A tick that consumes anything is
        how tables empty themselves: it is never refused for space (rule 4). An empty table takes a tick of
        any size, which would never be taken otherwise."""
        if content.consumed.size or content.units_consumed:
            return
        if content.created.size:
            for shard in pipeline.combiner.views:
                self._check_room_for_cells(pipeline, shard, content.created)
        if content.units_created:
            self._check_room_for_units(pipeline, content.units_created)

    def _check_room_for_cells(self, pipeline: Pipeline, shard: int, created: Cells) -> None:
        """Creating in a cell that is open takes no room; of another shard it is not known which are. But a
        tick that creates anything at or below the lowest open cell is taken whole: readers may have filled
        the table with what they consumed ahead of its creation, and ticks of the lowest slots alone empty it
        then. All of the tick counts, wherever it is kept: else, of two full shards, each tick could be the
        lowest of one and wait for the other. So the tick of the lowest slot of all is never refused."""
        spec = pipeline.spec
        if shard == self._shards.own:
            there = sum(pipeline.shard.cells.open_slots)
        else:
            there = pipeline.combiner.open_slots(shard)
        if there + created.size <= spec.max_open_cells:
            return
        if _begins_lowest(created, pipeline.combiner.views[shard].lows.values()):
            return
        created = created.select(
            self._replication.tables[-1][1].owners(created.slots, spec.name) == shard
        )
        more = new_cells(created, pipeline.shard.cells if shard == self._shards.own else None)
        if there and more and there + more > spec.max_open_cells:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {spec.name!r}: shard {shard} has {there} open cells and {more} more "
                f"could pass the limit max_open_cells of {spec.max_open_cells}; find out what holds "
                f"min time back (lowmark explain), or {RAISE_LIMIT}",
            )

    def _check_room_for_units(self, pipeline: Pipeline, units: tuple[Unit, ...]) -> None:
        """A tick that creates any at or below the lowest that is open of its segment is taken whole: what is above may
        have been consumed ahead of its creation, and is let go of when min time has passed it, not before. Of names that
        another shard keeps it is known how many there are, not which."""
        spec, name = pipeline.spec, pipeline.spec.name
        room = {}
        for segment in {unit.segment for unit in units}:
            keeper = self._replication.tables[-1][1].names_keeper(name, segment)
            new = {unit.name for unit in units if unit.segment == segment}
            if keeper == self._shards.own:
                known = pipeline.shard.names(segment)
                new = {each for each in new if known.slot(each) is None}
                room[segment] = len(known), known.lowest_slot, len(new)
            elif keeper in pipeline.combiner.views:
                low = pipeline.combiner.views[keeper].lows.get(segment)
                if low is not None and low.open_units:
                    room[segment] = low.open_units, low.lowest_unit, len(new)
        for segment, (there, _, more) in room.items():
            if there and more and there + more > spec.max_open_units:
                if any(u.segment in room and u.slot <= room[u.segment][1] for u in units):
                    return
                raise Refused(
                    RefusalCode.FULL,
                    f"pipeline {name!r}, segment {spec.segments[segment]!r}: {there} units "
                    f"are open and {more} more would pass the limit max_open_units of "
                    f"{spec.max_open_units}; is its reader running? If so, {RAISE_LIMIT}",
                )


def _begins_lowest(cells: Cells, lows: Iterable[SegmentLow]) -> bool:
    """Whether one of some cells is, or lies below, the lowest that is reported open of its segment; or lies
    below all that is open, of whatever segment."""
    open_lows = [low for low in lows if low.open_slots]
    if open_lows and int(cells.slots.min()) < min(low.slot for low in open_lows):
        return True
    return any(
        bool(((cells.segments == low.segment) & (cells.slots <= low.slot)).any())
        for low in open_lows
    )
